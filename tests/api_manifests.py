"""Manifests that several tests use: one that is valid, and tables of changes to it that are valid or not.

A change names a place as `spec/stages/1/map/function` and gives the value to put there, or `ABSENT`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

FLIGHTS = """\
apiVersion: millrace.dev/v1alpha1
kind: ConsumerPipeline
metadata: {name: flight-delays}
spec:
  replicas: 3
  kafka:
    bootstrapServers: kafka:9092
    credentials: {secretRef: {name: kafka-user}}
    properties: {client.rack: a}
  source:
    topic: flights
    groupId: flight-delays
    startFrom: Earliest
    create: {partitions: 12}
    format: json
  stages:
  - {name: departed, filter: {function: "flights:departed"}}
  - {name: score, map: {function: "flights:score", onError: DeadLetter}}
  - {name: legs, flatMap: {function: "flights.legs:split"}}
  - {name: scored, produce: {topic: flights.scored, create: {partitions: 12}}}
  deadLetter: {topic: flight-delays.dead, maxRatio: 0.01, maxConsecutive: 100}
  delivery: ExactlyOnce
  commit: {interval: 500ms}
  worker:
    code: {configMapRef: {name: flights-code}}
    env:
    - {name: TZ, value: UTC}
    - {name: EMPTY}
"""

MINIMAL = """\
apiVersion: millrace.dev/v1alpha1
kind: ConsumerPipeline
metadata: {name: smallest}
spec:
  kafka: {bootstrapServers: "localhost:9092"}
  source: {topic: in}
  stages:
  - {name: look, map: {function: "look:at"}}
"""

WINDOW: Mapping[str, Any] = {"size": "1h", "time": "scheduled", "lateness": "24h"}

COLLECT: Mapping[str, Any] = {
    "schema": "carrier string not null, origin string, scheduled timestamp, delay double",
    "groupBy": ["carrier"],
    "window": WINDOW,
    "aggregate": {"flights": "count(*)", "delay": "avg(delay)"},
    "trigger": {"interval": "10s"},
    "sink": {"parquet": {"path": "results"}},
}


_UNGROUPED: Mapping[str, Any] = {key: COLLECT[key] for key in ("schema", "sink")}


class _Absent:
    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


@dataclass(frozen=True)
class Bad:
    """A change that makes FLIGHTS invalid, and every problem that `load` must then report, word for word (without
    the line).

    `only_python` says why the generated schemas can't know; empty where they must refuse it too.
    """

    name: str
    changes: Mapping[str, object]
    problems: tuple[str, ...] = field(default=())
    only_python: str = ""


def changed(changes: Mapping[str, object], text: str = FLIGHTS) -> dict[str, Any]:
    """The manifest as plain data, with changes."""
    manifest: dict[str, Any] = yaml.safe_load(text)
    for path, value in changes.items():
        *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
        place: Any = manifest
        for part in parents:
            place = place[part]
        if value is ABSENT:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(copy.deepcopy(value))
        else:
            place[last] = copy.deepcopy(value)
    return manifest


VALID: Mapping[str, Mapping[str, object]] = {
    "as it is": {},
    "no replicas: parked": {"spec/replicas": 0},
    "suspended": {"spec/suspend": True},
    "nothing is to stay": {"spec/deletionPolicy": "Delete"},
    "all of a worker's pod": {
        "spec/nodeLost": {"after": "1h30m"},
        "spec/worker": {
            "image": "localhost:5000/flights@sha256:" + "0" * 64,
            "imagePullSecrets": [{"name": "registry"}],
            "resources": {"requests": {"cpu": "0.5", "memory": "1G"}, "limits": {"ephemeralStorage": "1Gi"}},
            "nodeSelector": {"example.com/disk": "fast"},
            "tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}],
            "priorityClassName": "steady",
            "labels": {"team": "air", "app.kubernetes.io/part-of": "flights", "example.com/empty": ""},
            "annotations": {"example.com/about": "any text: \u00fc", "sidecar.istio.io/inject": "false"},
            "affinity": {
                "required": [
                    {"key": "topology.kubernetes.io/zone", "values": ["a", "b"]},
                    {"key": "gpu", "operator": "DoesNotExist"},
                ],
                "preferred": [{"weight": 100, "key": "spot", "operator": "NotIn", "values": ["true"]}],
            },
            "topologySpread": [
                {"topologyKey": "kubernetes.io/hostname"},
                {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"},
            ],
        },
    },
    "the most replicas": {"spec/replicas": 10_000},
    "a chain that ends in a function": {"spec/stages/3": ABSENT},
    "only a produce stage": {"spec/stages": [{"name": "copy", "produce": {"topic": "out"}}]},
    "no dead letters and nothing that needs them": {
        "spec/deadLetter": ABSENT,
        "spec/stages/1/map/onError": "Stop",
    },
    "keys without a value": {"spec/worker": None, "spec/source/groupId": None, "spec/replicas": None},
    "several brokers": {"spec/kafka/bootstrapServers": "a.b-c:9092, 10.0.0.1:65535,[::1]:1"},
    "a start in time": {"spec/source/startFrom": "2026-02-28T23:59:59.123456789+01:00"},
    "the longest commit interval": {"spec/commit/interval": "4s1000ms"},
    "the shortest commit interval": {"spec/commit/interval": "0.1s"},
    "the longest group id": {"spec/source/groupId": "g" * 177},
    "the longest topic": {"spec/source/topic": "t" * 249},
    "the longest stage name": {"spec/stages/0/name": "s" * 63},
    "a topic of dots": {"spec/source/topic": "..."},
    "as many stages as there may be": {
        "spec/stages": [{"name": f"s{i}", "map": {"function": "m:f"}} for i in range(32)]
    },
    "all ratios": {"spec/deadLetter/maxRatio": 1},
    "a ratio of none": {"spec/deadLetter/maxRatio": 0.0},
    "labels and what a server adds": {
        "metadata/labels": {"team": "air"},
        "metadata/resourceVersion": "17",
        "metadata/managedFields": [{"manager": "kubectl"}],
        "status": {"observedGeneration": 1},
    },
    "produce, then collect": {"spec/stages/4": {"name": "by-carrier", "collect": COLLECT}},
    "collect alone": {"spec/stages": [{"name": "by-carrier", "collect": COLLECT}]},
    "a collect stage with all that it may have": {
        "spec/stages/4": {
            "name": "by-carrier",
            "collect": {
                **COLLECT,
                "window": {
                    "size": "1h",
                    "slide": "15m",
                    "time": "scheduled",
                    "lateness": "0s",
                    "late": "DeadLetter",
                },
                "trigger": {"interval": "500ms"},
                "spark": {
                    "conf": {"spark.driver.memory": "2g"},
                    "shufflePartitions": 8,
                    "stateStore": "RocksDB",
                    "image": "spark:1",
                    "driver": {"cores": 1, "cpu": "0.5", "memory": "1Gi"},
                    "executors": {"instances": 2, "memory": "1Gi"},
                },
            },
        }
    },
    "as many executors as there is work for, and storage": {
        "spec/stages/4": {
            "name": "by-carrier",
            "collect": {**COLLECT, "spark": {"executors": {"min": 1, "max": 1}}},
        },
        "spec/storage": {"persistentVolumeClaim": {"claimName": "flights"}},
    },
    "a collect stage that waits for enough to do": {
        "spec/stages/4": {
            "name": "by-carrier",
            "collect": {**COLLECT, "trigger": {"onLag": {"messages": 100_000, "age": "5m"}}},
        }
    },
    "a collect stage that waits for one of the two": {
        "spec/stages/4": {"name": "by-carrier", "collect": {**COLLECT, "trigger": {"onLag": {"age": "168h"}}}}
    },
    "a collect stage with a trigger that says nothing": {
        "spec/stages/4": {"name": "by-carrier", "collect": {**COLLECT, "trigger": {}}}
    },
    "a collect stage without groups": {
        "spec/stages/4": {
            "name": "all",
            "collect": {
                **{key: value for key, value in COLLECT.items() if key not in ("groupBy", "trigger")},
                "window": {"size": "4.5s", "slide": "1.5s", "time": "scheduled", "lateness": "87600h"},
            },
        }
    },
    "a function that collects": {
        "spec/stages/4": {"name": "all", "collect": {**_UNGROUPED, "function": "flights:collect"}}
    },
    "a function that writes by itself, on event time": {
        "spec/stages/4": {
            "name": "all",
            "collect": {
                "schema": COLLECT["schema"],
                "window": {"time": "scheduled", "lateness": "1h"},
                "function": "flights:collect",
            },
        }
    },
    "folders of dates": {
        "spec/stages/4": {
            "name": "all",
            "collect": {
                **COLLECT,
                "sink": {
                    "parquet": {
                        "path": "r",
                        "partitionBy": ["year(window_start)", "date(window_end)", "carrier"],
                    }
                },
            },
        }
    },
    "folders of a function's result": {
        "spec/stages/4": {
            "name": "all",
            "collect": {
                **_UNGROUPED,
                "function": "flights:collect",
                "sink": {"parquet": {"path": "r", "partitionBy": ["hour(any)", "other"]}},
            },
        }
    },
    "results to a topic": {
        "spec/stages/4": {
            "name": "all",
            "collect": {
                **COLLECT,
                "sink": {
                    "kafka": {
                        "topic": "flights.counted",
                        "key": ["carrier", "window_start"],
                        "create": {"partitions": 2},
                    }
                },
            },
        }
    },
    "results to look at": {"spec/stages/4": {"name": "all", "collect": {**COLLECT, "sink": {"console": {}}}}},
    "an aggregate with more than columns in it": {
        "spec/stages/4": {
            "name": "all",
            "collect": {
                **COLLECT,
                "aggregate": {
                    "a": "sum(case when Delay > 15 then 1 else 0 end)",
                    "b": "percentile_cont(0.5) within group (order by delay desc)",
                    "c": "cast(avg(delay) as decimal(10, 2)) -- not more",
                    "d": "extract(year from min(scheduled))",
                    "e": "aggregate(collect_list(delay), 0D, (sum, x) -> sum + x)",
                    "f": "max(scheduled) - INTERVAL '1' DAY",
                    "g": "first(`origin`) filter (where origin is not null and carrier <> 'it''s (')",
                },
            },
        }
    },
    "late rows that are left out, where there are no dead letters": {
        "spec/deadLetter": ABSENT,
        "spec/stages/1/map/onError": "Stop",
        "spec/stages/4": {
            "name": "by-carrier",
            "collect": {**COLLECT, "window": {**WINDOW, "late": "Drop"}},
        },
    },
    "batch and reduce": {
        "spec/stages/0": {"name": "lists", "batch": {"count": 50_000, "bytes": 67_108_864, "interval": "1h"}},
        "spec/stages/2": {
            "name": "totals",
            "reduce": {
                "initial": "builtins:dict",
                "accumulate": "a:b",
                "flush": "a:b",
                "key": "order.customer",
                "onError": "DeadLetter",
                "interval": "10ms",
            },
        },
    },
    "outputs with key, headers and partition of their own": {
        "spec/stages/3/produce": {
            "topic": "flights.scored",
            "key": "flights:key",
            "headers": [{"name": "X-Carrier", "from": "carrier"}, {"name": "route", "from": "flights:route"}],
            "partitioner": "origin.number",
            "onError": "DeadLetter",
        },
    },
    "lists by default, and an effect at the end": {
        "spec/stages/2": {"name": "lists", "batch": {}},
        "spec/stages/3": {"name": "insert", "map": {"function": "a:b"}},
    },
    "accumulated for its effect": {
        "spec/stages/3": {"name": "sum", "reduce": {"initial": "a:b", "accumulate": "a:b", "flush": "a:b"}},
    },
    "a pool of each kind": {
        "spec/stages/0/filter/pool": {"threads": 1000},
        "spec/stages/1/map/pool": {"asyncio": 100_000},
        "spec/stages/1/map/timeout": "1h",
        "spec/stages/2/flatMap/pool": {"processes": 256},
        "spec/stages/2/flatMap/ordering": "Partition",
    },
    "orders that messages leave a pool in": {
        "spec/delivery": "AtLeastOnce",
        "spec/stages/1/map/pool": {"threads": 8},
        "spec/stages/1/map/ordering": "Key",
        "spec/stages/2/flatMap/pool": {"asyncio": 8},
        "spec/stages/2/flatMap/ordering": "None",
    },
    "a function that is called again": {
        "spec/stages/1/map/retry": {
            "attempts": 5,
            "backoff": "1ms",
            "maxBackoff": "10m",
            "exceptions": ["TimeoutError", "requests.exceptions:ConnectionError"],
        },
    },
    "a function that is called again, without more words": {"spec/stages/1/map/retry": {"attempts": 1}},
    "a function that gets whole batches": {"spec/stages/1/map/vectorized": True},
    "an empty pool that is none": {"spec/stages/1/map/pool": None},
    "stages of the same kind": {"spec/stages/0": {"name": "departed", "map": {"function": "a:b"}}},
}

_KINDS = "map, flatMap, filter, batch, reduce, produce, collect"
_STAGE_KEYS = f"known here: name, {_KINDS}"
_SPEC_KEYS = (
    "known here: replicas, suspend, deletionPolicy, nodeLost, kafka, source, stages, deadLetter, delivery, commit, worker, "
    "storage"
)
_LATER = "leave it out; a later version will have it"
_AT = "spec.stages[4].collect"
_MAP = {"name": "more", "map": {"function": "m:f"}}


def _collect(changes: Mapping[str, object], whole: Mapping[str, object] = COLLECT) -> dict[str, object]:
    """The change that adds a collect stage with these changes."""
    manifest = copy.deepcopy(dict(whole))
    for path, value in changes.items():
        *parents, last = path.split("/")
        place: Any = manifest
        for part in parents:
            place = place[part]
        place[last] = value
    return {"spec/stages/4": {"name": "by-carrier", "collect": manifest}}


BAD = (
    # What it is
    Bad(
        "another kind's name",
        {"kind": "ConsumerPipelines"},
        (
            'kind: "ConsumerPipelines" is not allowed\n    did you mean ConsumerPipeline? (use ConsumerPipeline)',
        ),
        only_python="the API server routes by kind",
    ),
    Bad(
        "another version",
        {"apiVersion": "millrace.dev/v1"},
        (
            'apiVersion: "millrace.dev/v1" is not allowed\n'
            "    did you mean millrace.dev/v1alpha1? (use millrace.dev/v1alpha1)",
        ),
        only_python="the API server routes by version",
    ),
    Bad(
        "no version",
        {"apiVersion": ABSENT},
        ("apiVersion: it is missing\n    add apiVersion: millrace.dev/v1alpha1",),
        only_python="the API server routes by version",
    ),
    Bad(
        "no spec",
        {"spec": ABSENT},
        ("spec: it is missing\n    add spec: What the author of the pipeline wants.",),
    ),
    Bad(
        "an empty spec",
        {"spec": None},
        ("spec: it has no value\n    give spec: What the author of the pipeline wants.",),
    ),
    Bad(
        "a key at the top",
        {"sepc": {}},
        (
            'sepc: unknown key "sepc"\n    did you mean spec? (known here: apiVersion, kind, metadata, spec, status)',
        ),
    ),
    # metadata
    Bad(
        "no name",
        {"metadata/name": ABSENT},
        ("metadata.name: it is missing\n    add name: Name of the pipeline, unique in its namespace.",),
        only_python="the API server demands a name by itself",
    ),
    Bad(
        "a name in capitals",
        {"metadata/name": "Flights"},
        (
            'metadata.name: "Flights" is not a name for a pipeline\n'
            "    use lower-case letters, digits and '-', beginning with a letter, not ending in '-', "
            "at most 52 characters",
        ),
    ),
    Bad(
        "a name too long for pods",
        {"metadata/name": "f" * 53},
        (
            f'metadata.name: "{"f" * 53}" is not a name for a pipeline\n'
            "    use lower-case letters, digits and '-', beginning with a letter, not ending in '-', "
            "at most 52 characters",
        ),
    ),
    Bad(
        "an unknown key in metadata",
        {"metadata/lables": {}},
        (
            'metadata.lables: unknown key "lables"\n'
            "    did you mean labels? (known here: name, namespace, uid, generation, labels, annotations)",
        ),
        only_python="metadata is the API server's own",
    ),
    # replicas
    Bad(
        "fewer than no replicas",
        {"spec/replicas": -1},
        ("spec.replicas: -1 is out of range\n    use a whole number from 0 to 10000",),
    ),
    Bad(
        "too many replicas",
        {"spec/replicas": 10_001},
        ("spec.replicas: 10001 is out of range\n    use a whole number from 0 to 10000",),
    ),
    Bad(
        "replicas beyond any number",
        {"spec/replicas": 10**30},
        ("spec.replicas: a very large number is out of range\n    use a whole number from 0 to 10000",),
    ),
    Bad(
        "half a replica",
        {"spec/replicas": 1.5},
        ("spec.replicas: 1.5 is not a whole number\n    use a whole number from 0 to 10000",),
    ),
    Bad(
        "replicas as text",
        {"spec/replicas": "3"},
        ('spec.replicas: "3" is not a whole number\n    use a whole number from 0 to 10000',),
    ),
    Bad(
        "replicas as a boolean",
        {"spec/replicas": True},
        ("spec.replicas: true is not a whole number\n    use a whole number from 0 to 10000",),
    ),
    # kafka
    Bad(
        "no kafka",
        {"spec/kafka": ABSENT},
        ("spec.kafka: it is missing\n    add kafka: The Kafka cluster.",),
    ),
    Bad(
        "kafka is an address",
        {"spec/kafka": "kafka:9092"},
        (
            'spec.kafka: "kafka:9092" is not a mapping\n'
            "    use a mapping with bootstrapServers, credentials, properties",
        ),
    ),
    Bad(
        "a broker without a port",
        {"spec/kafka/bootstrapServers": "kafka"},
        (
            'spec.kafka.bootstrapServers: "kafka" is not a list of broker addresses\n'
            "    use HOST:PORT, or several with commas between them, for example kafka-0:9092,kafka-1:9092",
        ),
    ),
    Bad(
        "a port that is none",
        {"spec/kafka/bootstrapServers": "kafka:65536"},
        (
            'spec.kafka.bootstrapServers: "kafka:65536" is not a list of broker addresses\n'
            "    use HOST:PORT, or several with commas between them, for example kafka-0:9092,kafka-1:9092",
        ),
    ),
    Bad(
        "brokers as a list",
        {"spec/kafka/bootstrapServers": ["a:1", "b:1"]},
        (
            "spec.kafka.bootstrapServers: a list is not a string\n"
            "    use HOST:PORT, or several with commas between them, for example kafka-0:9092,kafka-1:9092",
        ),
    ),
    Bad(
        "a secret by its name alone",
        {"spec/kafka/credentials": {"secretRef": "kafka-user"}},
        ('spec.kafka.credentials.secretRef: "kafka-user" is not a mapping\n    use a mapping with name',),
    ),
    Bad(
        "a property that is a number",
        {"spec/kafka/properties": {"linger.ms": 5}},
        ('spec.kafka.properties["linger.ms"]: 5 is not a string\n    put it in quotes: "5"',),
    ),
    Bad(
        "a property that is a boolean",
        {"spec/kafka/properties": {"enable.idempotence": False}},
        (
            'spec.kafka.properties["enable.idempotence"]: false is not a string\n    put it in quotes: "false"',
        ),
    ),
    Bad(
        "a property's name in capitals",
        {"spec/kafka/properties": {"Client.Rack": "a"}},
        (
            'spec.kafka.properties["Client.Rack"]: "Client.Rack" is not the name of a librdkafka property\n'
            "    use lower-case letters, digits, '.', '_' and '-', at most 128, for example client.rack",
        ),
        only_python="a structural schema has no pattern for keys, and CEL's cost budget none to spare for one",
    ),
    Bad(
        "a property's name beyond bounds",
        {"spec/kafka/properties": {"a" * 129: "a"}},
        (
            f'spec.kafka.properties.{"a" * 57}...: "{"a" * 57}..." is not the name of a librdkafka property\n'
            "    use lower-case letters, digits, '.', '_' and '-', at most 128, for example client.rack",
        ),
    ),
    Bad(
        "too many properties",
        {"spec/kafka/properties": {f"p{i}": "" for i in range(65)}},
        ("spec.kafka.properties: it has 65 entries\n    use at most 64",),
    ),
    # source
    Bad(
        "no topic",
        {"spec/source/topic": ABSENT},
        ("spec.source.topic: it is missing\n    add topic: The topic to consume.",),
    ),
    Bad(
        "a topic without a value",
        {"spec/source/topic": None},
        ("spec.source.topic: it has no value\n    give topic: The topic to consume.",),
    ),
    Bad(
        "a topic with a blank",
        {"spec/source/topic": "my flights"},
        (
            'spec.source.topic: "my flights" is not a Kafka topic name\n'
            "    use letters, digits, '.', '_' and '-', at most 249 characters",
        ),
    ),
    Bad(
        "a topic that is a directory to the broker",
        {"spec/source/topic": ".."},
        (
            'spec.source.topic: ".." is not a Kafka topic name\n'
            "    use letters, digits, '.', '_' and '-', at most 249 characters",
        ),
    ),
    Bad(
        "a topic with a line's end",
        {"spec/source/topic": "flights\n"},
        (
            'spec.source.topic: "flights\\x0a" is not a Kafka topic name\n'
            "    use letters, digits, '.', '_' and '-', at most 249 characters",
        ),
    ),
    Bad(
        "a group id too long for its channels",
        {"spec/source/groupId": "g" * 178},
        (
            f'spec.source.groupId: "{"g" * 57}..." is not a consumer group id\n'
            "    use letters, digits, '.', '_' and '-', at most 177 characters",
        ),
    ),
    Bad(
        "a start of another spelling",
        {"spec/source/startFrom": "earliest"},
        (
            'spec.source.startFrom: "earliest" is not a place to start from\n'
            "    use Earliest, Latest, or a time with its zone, for example 2026-01-31T00:00:00Z",
        ),
    ),
    Bad(
        "a start without a zone",
        {"spec/source/startFrom": "2026-01-31T00:00:00"},
        (
            'spec.source.startFrom: "2026-01-31T00:00:00" is not a place to start from\n'
            "    use Earliest, Latest, or a time with its zone, for example 2026-01-31T00:00:00Z",
        ),
    ),
    Bad(
        "a start on a day that does not exist",
        {"spec/source/startFrom": "2026-02-30T00:00:00Z"},
        (
            'spec.source.startFrom: "2026-02-30T00:00:00Z" is not a time that a message can have\n'
            "    use a day that exists, from 1970-01-01T00:00:00Z on",
        ),
    ),
    Bad(
        "a start before there was time",
        {"spec/source/startFrom": "1969-12-31T23:59:59Z"},
        (
            'spec.source.startFrom: "1969-12-31T23:59:59Z" is not a time that a message can have\n'
            "    use a day that exists, from 1970-01-01T00:00:00Z on",
        ),
    ),
    Bad(
        "a topic to be made without partitions",
        {"spec/source/create": {"partitions": 0}},
        ("spec.source.create.partitions: 0 is out of range\n    use a whole number from 1 to 10000",),
    ),
    Bad(
        "a topic to be made: true",
        {"spec/source/create": True},
        ("spec.source.create: true is not a mapping\n    use a mapping with partitions",),
    ),
    Bad(
        "an unknown format",
        {"spec/source/format": "JSON"},
        (
            'spec.source.format: "JSON" is not allowed\n    did you mean json? (use one of json, string, bytes)',
        ),
    ),
    Bad(
        "a format that is like none",
        {"spec/source/format": "protobuf"},
        ('spec.source.format: "protobuf" is not allowed\n    use one of json, string, bytes',),
    ),
    # stages
    Bad(
        "no stages",
        {"spec/stages": []},
        ("spec.stages: it has 0 entries\n    use from 1 to 32",),
    ),
    Bad(
        "stages as a mapping",
        {"spec/stages": {"score": {"map": {}}}},
        ("spec.stages: a mapping is not a list\n    use a list, its entries beginning with '- '",),
    ),
    Bad(
        "too many stages",
        {"spec/stages": [{"name": f"s{i}", "map": {"function": "m:f"}} for i in range(33)]},
        ("spec.stages: it has 33 entries\n    use from 1 to 32",),
    ),
    Bad(
        "a stage that is a word",
        {"spec/stages/0": "departed"},
        (f'spec.stages[0]: "departed" is not a mapping\n    use a mapping with name, {_KINDS}',),
    ),
    Bad(
        "an empty entry",
        {"spec/stages/0": None},
        (f"spec.stages[0]: nothing is not a mapping\n    use a mapping with name, {_KINDS}",),
    ),
    Bad(
        "a stage without a name",
        {"spec/stages/0/name": ABSENT},
        (
            "spec.stages[0].name: it is missing\n"
            "    add name: Name of the stage, unique in the pipeline: a DNS label, other than `claims`, `decode` and "
            "`dead-letter`.",
        ),
    ),
    Bad(
        "a stage's name that is no label",
        {"spec/stages/0/name": "has_departed"},
        (
            'spec.stages[0].name (stage has_departed): "has_departed" is not a DNS label\n'
            "    use lower-case letters, digits and '-', beginning and ending with a letter or digit, "
            "at most 63 characters",
        ),
    ),
    Bad(
        "two stages of one name",
        {"spec/stages/2/name": "score"},
        (
            'spec.stages[2].name (stage score): "score" is the name of spec.stages[1] already\n'
            "    give each stage a name of its own",
        ),
    ),
    Bad(
        "the reserved name",
        {"spec/stages/2/name": "claims"},
        (
            'spec.stages[2].name (stage claims): "claims" is reserved\n'
            "    choose another name: <groupId>.claims is the consumer group that holds the claims",
        ),
    ),
    Bad(
        "a name of the figures",
        {"spec/stages/0/name": "decode", "spec/stages/2/name": "dead-letter"},
        (
            'spec.stages[0].name (stage decode): "decode" is reserved\n'
            "    choose another name: errors and dead letters call the reading of the source's format so",
            'spec.stages[2].name (stage dead-letter): "dead-letter" is reserved\n'
            "    choose another name: figures call the writing of dead letters so",
        ),
    ),
    Bad(
        "a stage of no kind",
        {"spec/stages/0": {"name": "departed"}},
        (
            "spec.stages[0] (stage departed): the stage says nothing about what it does\n"
            f"    give it exactly one of {_KINDS}",
        ),
    ),
    Bad(
        "a stage of two kinds",
        {"spec/stages/0/map": {"function": "a:b"}},
        (
            "spec.stages[0] (stage departed): the stage has 2 kinds, map and filter\n"
            f"    give it exactly one of {_KINDS}; put the others in stages of their own",
        ),
    ),
    Bad(
        "a kind of another spelling",
        {"spec/stages/0": {"name": "departed", "flatmap": {"function": "a:b"}}},
        (
            'spec.stages[0].flatmap (stage departed): unknown key "flatmap"\n'
            f"    did you mean flatMap? ({_STAGE_KEYS})",
        ),
    ),
    Bad(
        "a function without its module",
        {"spec/stages/1/map/function": "flights.score"},
        (
            'spec.stages[1].map.function (stage score): "flights.score" is not a function reference\n'
            "    use module:name, for example flights:score",
        ),
    ),
    Bad(
        "a function that is a file",
        {"spec/stages/1/map/function": "flights.py:score()"},
        (
            'spec.stages[1].map.function (stage score): "flights.py:score()" is not a function reference\n'
            "    use module:name, for example flights:score",
        ),
    ),
    Bad(
        "a function without its key",
        {"spec/stages/1/map": "flights:score"},
        (
            'spec.stages[1].map (stage score): "flights:score" is not a mapping\n'
            "    use a mapping with function, onError, retry, pool, ordering, timeout, vectorized",
        ),
    ),
    Bad(
        "no function",
        {"spec/stages/1/map": {}},
        (
            "spec.stages[1].map.function (stage score): it is missing\n"
            "    add function: The function, as module:name.",
        ),
    ),
    Bad(
        "two pools in one",
        {"spec/stages/1/map/pool": {"threads": 2, "asyncio": 2}},
        (
            "spec.stages[1].map.pool (stage score): the pool has 2 kinds, threads and asyncio\n"
            "    give it exactly one of threads, processes, asyncio",
        ),
    ),
    Bad(
        "a pool of nothing",
        {"spec/stages/1/map/pool": {}},
        (
            "spec.stages[1].map.pool (stage score): the pool is of no kind\n"
            "    give it exactly one of threads, processes, asyncio, or leave it out",
        ),
    ),
    Bad(
        "a pool of no threads",
        {"spec/stages/1/map/pool": {"threads": 0}},
        (
            "spec.stages[1].map.pool.threads (stage score): 0 is out of range\n"
            "    use a whole number from 1 to 1000",
        ),
    ),
    Bad(
        "a pool that is a number",
        {"spec/stages/1/map/pool": 8},
        (
            "spec.stages[1].map.pool (stage score): 8 is not a mapping\n    use a mapping with threads, processes, asyncio",
        ),
    ),
    Bad(
        "a timeout without a pool",
        {"spec/stages/1/map/timeout": "5s"},
        (
            "spec.stages[1].map.timeout (stage score): without a pool nothing can end the wait for a function: it "
            "runs on the worker's own thread\n"
            "    add pool: {threads: 1}, or another one, or leave timeout out",
        ),
    ),
    Bad(
        "a timeout out of range",
        {"spec/stages/1/map/timeout": "2h", "spec/stages/1/map/pool": {"threads": 1}},
        (
            'spec.stages[1].map.timeout (stage score): "2h" is out of range\n    use a duration from 1ms to 1h',
        ),
    ),
    Bad(
        "an order without a pool",
        {"spec/stages/1/map/ordering": "Key", "spec/delivery": "AtLeastOnce"},
        (
            "spec.stages[1].map.ordering (stage score): Key says how messages leave a pool, and there is none\n"
            "    add a pool, or leave ordering out",
        ),
    ),
    Bad(
        "another order",
        {"spec/stages/1/map/ordering": "key", "spec/stages/1/map/pool": {"threads": 1}},
        (
            'spec.stages[1].map.ordering (stage score): "key" is not allowed\n'
            "    did you mean Key? (use one of Partition, Key, None)",
        ),
    ),
    Bad(
        "no order with ExactlyOnce",
        {"spec/stages/1/map/ordering": "None", "spec/stages/1/map/pool": {"threads": 1}},
        (
            "spec.stages[1].map.ordering (stage score): with delivery: ExactlyOnce messages leave in the order of "
            "their partition, not None\n    use ordering: Partition, or delivery: AtLeastOnce",
        ),
    ),
    Bad(
        "an order of keys before a collect stage",
        {
            "spec/delivery": "AtLeastOnce",
            "spec/stages/1/map/ordering": "Key",
            "spec/stages/1/map/pool": {"threads": 1},
            "spec/stages/4": {"name": "by-carrier", "collect": COLLECT},
        },
        (
            "spec.stages[1].map.ordering (stage score): in a chain with a collect stage messages leave in the order of "
            "their partition, not Key\n    use ordering: Partition",
        ),
    ),
    Bad(
        "a retry that does not say how often",
        {"spec/stages/1/map/retry": {"backoff": "1s"}},
        (
            "spec.stages[1].map.retry.attempts (stage score): it is missing\n"
            "    add attempts: Calls in all for a message, the first one included (1 to 100).",
        ),
    ),
    Bad(
        "a wait that is longer than the longest",
        {"spec/stages/1/map/retry": {"attempts": 2, "backoff": "1m"}},
        (
            'spec.stages[1].map.retry.maxBackoff (stage score): "10s" is shorter than backoff, the first wait\n'
            "    make it at least as long",
        ),
    ),
    Bad(
        "waits out of range",
        {"spec/stages/1/map/retry": {"attempts": 2, "backoff": "0s", "maxBackoff": "11m"}},
        (
            'spec.stages[1].map.retry.backoff (stage score): "0s" is out of range\n'
            "    use a duration from 1ms to 10m",
            'spec.stages[1].map.retry.maxBackoff (stage score): "11m" is out of range\n'
            "    use a duration from 1ms to 10m",
        ),
    ),
    Bad(
        "an exception that is no name",
        {"spec/stages/1/map/retry": {"attempts": 2, "exceptions": ["requests.ConnectionError"]}},
        (
            'spec.stages[1].map.retry.exceptions[0] (stage score): "requests.ConnectionError" is not the name of an '
            "exception\n    use a name such as TimeoutError, or module:name, for example requests:ConnectionError",
        ),
    ),
    Bad(
        "another onError",
        {"spec/stages/1/map/onError": "Ignore"},
        (
            'spec.stages[1].map.onError (stage score): "Ignore" is not allowed\n'
            "    use one of Stop, DeadLetter",
        ),
    ),
    Bad(
        "onError of another spelling",
        {"spec/stages/1/map/onError": "deadletter"},
        (
            'spec.stages[1].map.onError (stage score): "deadletter" is not allowed\n'
            "    did you mean DeadLetter? (use one of Stop, DeadLetter)",
        ),
    ),
    Bad(
        "onError that is not of this kind",
        {"spec/stages/0": {"name": "lists", "batch": {"onError": "DeadLetter"}}},
        (
            'spec.stages[0].batch.onError (stage lists): unknown key "onError"\n'
            "    known here: count, bytes, interval",
        ),
    ),
    Bad(
        "produce in the middle",
        {"spec/stages/2": {"name": "copy", "produce": {"topic": "copy"}}},
        (
            "spec.stages[3] (stage scored): a produce stage can't come after a produce stage\n"
            "    produce ends the chain: move it to the end",
        ),
    ),
    Bad(
        "produce first",
        {"spec/stages/0": {"name": "copy", "produce": {"topic": "copy"}}, "spec/stages/3": ABSENT},
        (
            "spec.stages[1] (stage score): a map stage can't come after a produce stage\n"
            "    produce ends the chain: move it to the end",
            "spec.stages[2] (stage legs): a flatMap stage can't come after a produce stage\n"
            "    produce ends the chain: move it to the end",
        ),
    ),
    Bad(
        "produce to the source",
        {"spec/stages/3/produce/topic": "flights"},
        (
            'spec.stages[3].produce.topic (stage scored): "flights" is the topic of the source: '
            "the pipeline would feed itself for ever\n    use another topic",
        ),
    ),
    Bad(
        "produce to the dead letters",
        {"spec/stages/3/produce/topic": "flight-delays.dead"},
        (
            'spec.stages[3].produce.topic (stage scored): "flight-delays.dead" is the topic of spec.deadLetter: '
            "outputs and dead letters would mix\n    use another topic",
        ),
    ),
    # dead letters
    Bad(
        "dead letters without a topic for them",
        {"spec/deadLetter": ABSENT},
        (
            "spec.stages[1].map.onError (stage score): DeadLetter needs a topic for dead letters, and "
            "spec.deadLetter is not there\n    add spec.deadLetter with a topic, or use onError: Stop",
        ),
    ),
    Bad(
        "dead letters into the source",
        {"spec/deadLetter/topic": "flights"},
        (
            'spec.deadLetter.topic: "flights" is the topic of the source: dead letters would be consumed again\n'
            "    use another topic",
        ),
    ),
    Bad(
        "a ratio in percent",
        {"spec/deadLetter/maxRatio": 5},
        ("spec.deadLetter.maxRatio: 5 is out of range\n    use a number from 0 to 1",),
    ),
    Bad(
        "a ratio as text",
        {"spec/deadLetter/maxRatio": "1%"},
        ('spec.deadLetter.maxRatio: "1%" is not a number\n    use a number from 0 to 1',),
    ),
    Bad(
        "no dead letter in a row",
        {"spec/deadLetter/maxConsecutive": 0},
        ("spec.deadLetter.maxConsecutive: 0 is out of range\n    use a whole number from 1 to 1000000000",),
    ),
    # delivery, commit, worker
    Bad(
        "another delivery",
        {"spec/delivery": "exactly-once"},
        (
            'spec.delivery: "exactly-once" is not allowed\n'
            "    did you mean ExactlyOnce? (use one of AtLeastOnce, ExactlyOnce)",
        ),
    ),
    Bad(
        "an interval without a unit",
        {"spec/commit/interval": 1},
        (
            "spec.commit.interval: 1 is not a string\n"
            "    use a number with a unit (ms, s, m, h), for example 500ms or 1.5s",
        ),
    ),
    Bad(
        "an interval in words",
        {"spec/commit/interval": "1 second"},
        (
            'spec.commit.interval: "1 second" is not a duration\n'
            "    use a number with a unit (ms, s, m, h), for example 500ms or 1.5s",
        ),
    ),
    Bad(
        "an interval that outlasts a transaction",
        {"spec/commit/interval": "1m"},
        ('spec.commit.interval: "1m" is out of range\n    use a duration from 100ms to 5s',),
    ),
    Bad(
        "an interval of nothing",
        {"spec/commit/interval": "0s"},
        ('spec.commit.interval: "0s" is out of range\n    use a duration from 100ms to 5s',),
    ),
    Bad(
        "a variable that is a number",
        {"spec/worker/env/0/value": 1},
        ('spec.worker.env[0].value: 1 is not a string\n    put it in quotes: "1"',),
    ),
    Bad(
        "variables as a mapping",
        {"spec/worker/env": {"TZ": "UTC"}},
        ("spec.worker.env: a mapping is not a list\n    use a list, its entries beginning with '- '",),
    ),
    Bad(
        "a variable with an odd name",
        {"spec/worker/env/0/name": "A=B"},
        (
            'spec.worker.env[0].name: "A=B" is not a name of an environment variable\n'
            "    use letters, digits, '_', '-' and '.', not beginning with a digit",
        ),
    ),
    Bad(
        "a variable that is there twice",
        {"spec/worker/env/1/name": "TZ"},
        (
            'spec.worker.env[1].name: "TZ" is the name of spec.worker.env[0] already\n'
            "    give each variable a name of its own",
        ),
    ),
    # Unknown keys, and those to come
    Bad(
        "a key like none",
        {"spec/xyzzy": 1},
        (f'spec.xyzzy: unknown key "xyzzy"\n    {_SPEC_KEYS}',),
    ),
    Bad(
        "a key in Python's manner",
        {"spec/dead_letter": {}},
        (f'spec.dead_letter: unknown key "dead_letter"\n    did you mean deadLetter? ({_SPEC_KEYS})',),
    ),
    Bad(
        "scaling",
        {"spec/scaling": {"minReplicas": 1}},
        (f"spec.scaling: scaling is not available in this version\n    {_LATER}",),
    ),
    Bad(
        "more in a batch than a worker may hold, for longer than a stage may",
        {"spec/stages/0": {"name": "some", "batch": {"count": 50_001, "bytes": 0, "interval": "2h"}}},
        (
            "spec.stages[0].batch.count (stage some): 50001 is out of range\n    use a whole number from 1 to 50000",
            "spec.stages[0].batch.bytes (stage some): 0 is out of range\n    use a whole number from 1 to 67108864",
            'spec.stages[0].batch.interval (stage some): "2h" is out of range\n    use a duration from 10ms to 1h',
        ),
    ),
    Bad(
        "outputs that can't be addressed so",
        {
            "spec/deadLetter": ABSENT,
            "spec/stages/1/map/onError": "Stop",
            "spec/stages/3/produce": {
                "topic": "out",
                "key": "a:",
                "headers": [
                    {"name": "a b", "from": "a"},
                    {"name": "size", "from": "s"},
                    {"name": "size", "from": "t"},
                ],
                "onError": "DeadLetter",
            },
        },
        (
            'spec.stages[3].produce.key (stage scored): "a:" is not a field or a function\n'
            "    use the name of a field, with dots into fields of fields, for example order.customer; or module:name, "
            "for example flights:route",
            'spec.stages[3].produce.headers[0].name (stage scored): "a b" is not the name of a header\n'
            "    use letters, digits, '.', '_' and '-', at most 128 characters",
            'spec.stages[3].produce.headers[2].name (stage scored): "size" is the name of '
            "spec.stages[3].produce.headers[1] already\n    give each header a name of its own",
            "spec.stages[3].produce.onError (stage scored): DeadLetter needs a topic for dead letters, and "
            "spec.deadLetter is not there\n    add spec.deadLetter with a topic, or use onError: Stop",
        ),
    ),
    Bad(
        "a batch that nothing takes",
        {"spec/stages/3": {"name": "some", "batch": {}}},
        (
            "spec.stages[3] (stage some): a batch stage can't be the last one: nothing would take its lists\n"
            "    add a map stage, whose function gets a list and does with it what is wanted",
        ),
    ),
    Bad(
        "a reduce that nothing takes",
        {"spec/stages/3": {"name": "some", "reduce": {"initial": "a:b", "accumulate": "a:b"}}},
        (
            "spec.stages[3].reduce (stage some): nothing would take what the last stage accumulates\n"
            "    add flush, a function that does with it what is wanted, or another stage",
        ),
    ),
    Bad(
        "a reduce without its functions, by no field",
        {"spec/stages/0": {"name": "some", "reduce": {"flush": "total", "key": "a b"}}},
        (
            "spec.stages[0].reduce.initial (stage some): it is missing\n    add initial: The function, as module:name, "
            "that is called without arguments for the value to begin with, for example builtins:dict.",
            "spec.stages[0].reduce.accumulate (stage some): it is missing\n    add accumulate: The function, as "
            "module:name, that gets what was accumulated and a value, with a third parameter also the message, and returns "
            "what is accumulated then.",
            'spec.stages[0].reduce.flush (stage some): "total" is not a function reference\n'
            "    use module:name, for example flights:score",
            'spec.stages[0].reduce.key (stage some): "a b" is not a field or a function\n'
            "    use the name of a field, with dots into fields of fields, for example order.customer; or module:name, "
            "for example flights:route",
        ),
    ),
    Bad(
        "dead letters of a reduce without a topic for them",
        {
            "spec/deadLetter": ABSENT,
            "spec/stages/1/map/onError": "Stop",
            "spec/stages/0": {
                "name": "some",
                "reduce": {"initial": "a:b", "accumulate": "a:b", "onError": "DeadLetter"},
            },
        },
        (
            "spec.stages[0].reduce.onError (stage some): DeadLetter needs a topic for dead letters, and "
            "spec.deadLetter is not there\n    add spec.deadLetter with a topic, or use onError: Stop",
        ),
    ),
    # collect
    Bad(
        "a collect stage that says nothing",
        _collect({}, {}),
        (
            f"{_AT}.schema (stage by-carrier): it is missing\n    add schema: Columns of a row, as Spark's DDL: carrier "
            "string, scheduled timestamp, delay double.",
            f"{_AT}.window (stage by-carrier): it is missing\n    add window: The windows in event time.",
            f"{_AT}.aggregate (stage by-carrier): it is missing\n    add aggregate: Columns of the result; or function.",
            f"{_AT}.sink (stage by-carrier): it is missing\n    add sink: Where results go.",
        ),
    ),
    Bad(
        "a schema with a type of another dialect",
        _collect({"schema": "carrier varchar, scheduled timestamp"}),
        (
            f"{_AT}.schema (stage by-carrier): column carrier: varchar is not a type\n"
            "    use one of boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s), string, binary, date, "
            "timestamp, array<...>, struct<name: ..., ...>, map<string, ...>",
        ),
        only_python="the API server can't read DDL",
    ),
    Bad(
        "groups and times that are no columns",
        _collect({"groupBy": ["carier", "origin", "origin"], "window/time": "hour"}),
        (
            f'{_AT}.groupBy[0] (stage by-carrier): "carier" is not a column of the schema\n'
            "    use one of carrier, origin, scheduled, delay",
            f'{_AT}.groupBy[2] (stage by-carrier): "origin" is there twice\n    name each column once',
            f'{_AT}.window.time (stage by-carrier): "hour" is not a column of the schema\n'
            "    use one of carrier, origin, scheduled, delay",
        ),
        only_python="the API server can't read DDL",
    ),
    Bad(
        "a time that is none",
        _collect({"window/time": "delay"}),
        (
            f'{_AT}.window.time (stage by-carrier): "delay" is of type double\n    use a column of type timestamp',
        ),
        only_python="the API server can't read DDL",
    ),
    Bad(
        "a slide that does not divide the size",
        _collect({"window/slide": "25m"}),
        (
            f'{_AT}.window.slide (stage by-carrier): "25m" does not divide the size, 1h\n'
            "    use a slide of which the size is a multiple",
        ),
    ),
    Bad(
        "a slide beyond the size",
        _collect({"window/slide": "2h"}),
        (
            f'{_AT}.window.slide (stage by-carrier): "2h" does not divide the size, 1h\n'
            "    use a slide of which the size is a multiple",
        ),
    ),
    Bad(
        "durations out of range",
        _collect({"window/size": "0s", "window/lateness": "87600h1ns", "trigger/interval": "0s"}),
        (
            f'{_AT}.window.size (stage by-carrier): "0s" is out of range\n    use a duration from 1s to 87600h',
            f'{_AT}.window.lateness (stage by-carrier): "87600h1ns" is out of range\n'
            "    use a duration from 0s to 87600h",
            f'{_AT}.trigger.interval (stage by-carrier): "0s" is out of range\n'
            "    use a duration from 100ms to 24h",
        ),
    ),
    Bad(
        "both triggers",
        _collect({"trigger": {"interval": "10s", "onLag": {"messages": 1}}}),
        (
            f"{_AT}.trigger (stage by-carrier): a trigger is either interval or onLag, not both\n"
            "    leave one of them out",
        ),
    ),
    Bad(
        "a lag of nothing",
        _collect({"trigger": {"onLag": {}}}),
        (
            f"{_AT}.trigger.onLag (stage by-carrier): it says nothing about how much has to wait\n"
            "    give it messages, age, or both",
        ),
    ),
    Bad(
        "a lag out of range",
        _collect({"trigger": {"onLag": {"messages": 0, "age": "8d"}}}),
        (
            f"{_AT}.trigger.onLag.messages (stage by-carrier): 0 is out of range\n"
            "    use a whole number from 1 to 1000000000",
            f'{_AT}.trigger.onLag.age (stage by-carrier): "8d" is not a duration\n'
            "    use a number with a unit (ms, s, m, h), for example 500ms or 1.5s",
        ),
    ),
    Bad(
        "an age out of range",
        _collect({"trigger": {"onLag": {"age": "169h"}}}),
        (
            f'{_AT}.trigger.onLag.age (stage by-carrier): "169h" is out of range\n'
            "    use a duration from 1s to 168h",
        ),
    ),
    Bad(
        "late rows of another spelling",
        _collect({"window/late": "Deadletter"}),
        (
            f'{_AT}.window.late (stage by-carrier): "Deadletter" is not allowed\n'
            "    did you mean DeadLetter? (use one of Drop, DeadLetter)",
        ),
    ),
    Bad(
        "late rows as dead letters without a topic for them",
        {
            **_collect({"window/late": "DeadLetter"}),
            "spec/deadLetter": ABSENT,
            "spec/stages/1/map/onError": "Stop",
        },
        (
            f"{_AT}.window.late (stage by-carrier): DeadLetter needs a topic for dead letters, and "
            "spec.deadLetter is not there\n    add spec.deadLetter with a topic, or use late: Drop",
        ),
    ),
    Bad(
        "a lateness below none",
        _collect({"window/lateness": "-1h"}),
        (
            f'{_AT}.window.lateness (stage by-carrier): "-1h" is not a duration\n'
            "    use a number with a unit (ms, s, m, h), for example 500ms or 1.5s",
        ),
    ),
    Bad(
        "a result with two columns of one name",
        _collect({"aggregate": {"Carrier": "count(*)", "window": "count(*)"}}),
        (
            f'{_AT}.aggregate.Carrier (stage by-carrier): "Carrier" is taken: carrier is a column of groupBy\n'
            "    choose another name",
            f'{_AT}.aggregate.window (stage by-carrier): "window" is taken: window names the window\n'
            "    choose another name",
        ),
        only_python="names of a mapping's keys are more than CEL's cost budget allows",
    ),
    Bad(
        "a result whose name is none",
        _collect({"aggregate": {"mean delay": "avg(delay)"}}),
        (
            f'{_AT}.aggregate["mean delay"] (stage by-carrier): "mean delay" is not the name of a column\n'
            "    use letters, digits and '_', not beginning with a digit, at most 128 characters",
        ),
        only_python="a structural schema has no pattern for keys",
    ),
    Bad(
        "no result at all",
        _collect({"aggregate": {}}),
        (f"{_AT}.aggregate (stage by-carrier): it has 0 entries\n    use from 1 to 64",),
    ),
    Bad(
        "a sink of no kind",
        _collect({"sink": {}}),
        (
            f"{_AT}.sink (stage by-carrier): the sink says nothing about what it is\n"
            "    give it exactly one of parquet, kafka, console",
        ),
    ),
    Bad(
        "sinks of two kinds",
        _collect({"sink/console": {}}),
        (
            f"{_AT}.sink (stage by-carrier): the sink has 2 kinds, parquet and console\n"
            "    give it exactly one of parquet, kafka, console",
        ),
    ),
    Bad(
        "aggregates that Spark would refuse",
        _collect(
            {
                "aggregate": {
                    "delay": "avg(dely)",
                    "worst": "max(delay",
                    "named": "first(origin) filter (where carier = 'AA')",
                }
            }
        ),
        (
            f'{_AT}.aggregate.delay (stage by-carrier): "dely" is not a column of the schema\n'
            "    use one of carrier, origin, scheduled, delay",
            f'{_AT}.aggregate.worst (stage by-carrier): "max(delay": a ) is missing\n'
            "    write an aggregate of Spark's SQL",
            f'{_AT}.aggregate.named (stage by-carrier): "carier" is not a column of the schema\n'
            "    use one of carrier, origin, scheduled, delay",
        ),
        only_python="the API server can't read SQL",
    ),
    Bad(
        "a function beside what it stands for",
        _collect({"function": "flights:collect"}),
        tuple(
            f"{_AT}.{field} (stage by-carrier): {field.rpartition('.')[2]} can't stand beside function\n"
            "    take it out: the function groups by itself"
            for field in ("aggregate", "groupBy", "window.size")
        ),
    ),
    Bad(
        "a function with groups",
        _collect(
            {"function": "flights:collect", "window": {"time": "scheduled", "lateness": "1h"}},
            _UNGROUPED | {"groupBy": ["carrier"]},
        ),
        (
            f"{_AT}.groupBy (stage by-carrier): groupBy can't stand beside function\n"
            "    take it out: the function groups by itself",
        ),
    ),
    Bad(
        "a function with a slide",
        _collect(
            {"function": "flights:collect", "window": {"slide": "1h", "time": "scheduled", "lateness": "1h"}},
            _UNGROUPED,
        ),
        (
            f"{_AT}.window.slide (stage by-carrier): slide can't stand beside function\n"
            "    take it out: the function groups by itself",
        ),
    ),
    Bad(
        "a function that is none",
        _collect({"function": "collect"}, _UNGROUPED),
        (
            f'{_AT}.function (stage by-carrier): "collect" is not a function reference\n'
            "    use module:name, for example flights:score",
        ),
    ),
    Bad(
        "aggregates without a window's size",
        _collect({"window": {"time": "scheduled", "lateness": "1h"}}),
        (
            f"{_AT}.window.size (stage by-carrier): it is missing\n"
            "    add size: Length of a window, for example 1h.",
        ),
    ),
    Bad(
        "folders of what is no column",
        _collect(
            {
                "sink/parquet/partitionBy": [
                    "origin",
                    "month(begin)",
                    "date(carrier)",
                    "carrier",
                    "carrier",
                ]
            }
        ),
        (
            f'{_AT}.sink.parquet.partitionBy[0] (stage by-carrier): "origin" is not a column of the result\n'
            "    use one of carrier, window_start, window_end, flights, delay",
            f'{_AT}.sink.parquet.partitionBy[1] (stage by-carrier): "begin" is not a column of the result\n'
            "    use one of carrier, window_start, window_end, flights, delay",
            f'{_AT}.sink.parquet.partitionBy[2] (stage by-carrier): "carrier" is of type string\n'
            "    date(...) takes a column of type date or timestamp",
            f'{_AT}.sink.parquet.partitionBy[4] (stage by-carrier): "carrier" is the name of a column already\n'
            "    rename that column, or leave this out",
        ),
        only_python="the API server can't read DDL",
    ),
    Bad(
        "folders by what is no function",
        _collect({"sink/parquet/partitionBy": ["week(x)"]}),
        (
            f'{_AT}.sink.parquet.partitionBy[0] (stage by-carrier): "week(x)" is not a column to make folders by\n'
            "    use the name of a column, or year(...), month(...), date(...) or hour(...) of one, for example "
            "date(window_start)",
        ),
    ),
    Bad(
        "folders whose name is taken",
        _collect(
            {
                "aggregate": {"date": "count(*)", "batch": "count(*)"},
                "sink/parquet/partitionBy": ["date(window_start)"],
            }
        ),
        (
            f'{_AT}.aggregate.batch (stage by-carrier): "batch" is taken: batch names the folders of the Parquet sink\n'
            "    choose another name",
            f'{_AT}.sink.parquet.partitionBy[0] (stage by-carrier): "date" is the name of a column already\n'
            "    rename that column, or leave this out",
        ),
        only_python="names of a mapping's keys are more than CEL's cost budget allows",
    ),
    Bad(
        "a key of what is no column",
        _collect({"sink": {"kafka": {"topic": "flights.counted", "key": ["carrier", "origin", "carrier"]}}}),
        (
            f'{_AT}.sink.kafka.key[1] (stage by-carrier): "origin" is not a column of the result\n'
            "    use one of carrier, window_start, window_end, flights, delay",
            f'{_AT}.sink.kafka.key[2] (stage by-carrier): "carrier" is there twice\n    name each column once',
        ),
        only_python="the API server can't read DDL",
    ),
    Bad(
        "results into the source",
        _collect({"sink": {"kafka": {"topic": "flights"}}}),
        (
            f'{_AT}.sink.kafka.topic (stage by-carrier): "flights" is the topic of spec.source\n'
            "    use another topic",
        ),
    ),
    Bad(
        "results among the dead letters",
        _collect({"sink": {"kafka": {"topic": "flight-delays.dead"}}}),
        (
            f'{_AT}.sink.kafka.topic (stage by-carrier): "flight-delays.dead" is the topic of spec.deadLetter\n'
            "    use another topic",
        ),
    ),
    Bad(
        "results among the outputs",
        _collect({"sink": {"kafka": {"topic": "flights.scored"}}}),
        (
            f'{_AT}.sink.kafka.topic (stage by-carrier): "flights.scored" is the topic of spec.stages[3].produce\n'
            "    use another topic",
        ),
        only_python="to compare stages with each other is more than CEL's cost budget allows",
    ),
    Bad(
        "results into the channel",
        _collect({"sink": {"kafka": {"topic": "flight-delays.by-carrier.channel"}}}),
        (
            f'{_AT}.sink.kafka.topic (stage by-carrier): "flight-delays.by-carrier.channel" is the channel of stage '
            "by-carrier\n    use another topic",
        ),
        only_python="the API server's rules of spec don't know the pipeline's name",
    ),
    Bad(
        "more rows than anyone reads",
        _collect({"sink": {"console": {"rows": 1001}}}),
        (
            f"{_AT}.sink.console.rows (stage by-carrier): 1001 is out of range\n    use a whole number from 1 to 1000",
        ),
    ),
    *(
        Bad(
            f"Spark's {key}, which is ours",
            _collect({"spark": {"conf": {key: "a"}}}),
            (
                f"{_AT}.spark.conf[\"{key}\"] (stage by-carrier): {key} can't be set: it is Millrace's own\n"
                "    take it out; the sizes of pods are spark.driver and spark.executors",
            ),
        )
        for key in (
            "spark.master",
            "spark.jars.packages",
            "spark.submit.deployMode",
            "spark.kubernetes.namespace",
            "spark.kubernetes.container.image",
            "spark.kubernetes.driver.podTemplateFile",
            "spark.kubernetes.authenticate.executor.serviceAccountName",
            "spark.kubernetes.authenticate.oauthTokenFile",
            "spark.kubernetes.executor.secrets.kafka-user",
            "spark.kubernetes.executor.volumes.hostPath.root.options.path",
            "spark.dynamicAllocation.maxExecutors",
            "spark.executor.instances",
        )
    ),
    Bad(
        "executors of no number",
        _collect({"spark": {"executors": {"memory": "1Gi"}}}),
        (
            f"{_AT}.spark.executors (stage by-carrier): their number is either instances or max\n    give one of them",
        ),
    ),
    Bad(
        "executors of two numbers",
        _collect({"spark": {"executors": {"instances": 1, "min": 0, "max": 2}}}),
        (
            f"{_AT}.spark.executors (stage by-carrier): their number is either instances or max\n    give one of them",
            f"{_AT}.spark.executors.min (stage by-carrier): min can't stand beside instances\n    take it out",
        ),
    ),
    Bad(
        "more executors at least than at most",
        _collect({"spark": {"executors": {"min": 3, "max": 2}}}),
        (
            f"{_AT}.spark.executors.min (stage by-carrier): 3 is more than max, 2\n    give a min that is not above max",
        ),
    ),
    Bad(
        "a property that is not Spark's",
        _collect({"spark": {"conf": {"client.rack": "a"}}}),
        (
            f'{_AT}.spark.conf["client.rack"] (stage by-carrier): "client.rack" is not the name of a Spark property\n'
            "    use a name that begins with spark., at most 128 characters, for example spark.driver.memory",
        ),
        only_python="a structural schema has no pattern for keys",
    ),
    Bad(
        "a source that is the channel of a group by default",
        {
            **_collect({}),
            "spec/source/groupId": ABSENT,
            "spec/source/topic": "default.flight-delays.by-carrier.channel",
        },
        (
            'spec.source.topic: "default.flight-delays.by-carrier.channel" is the channel of stage by-carrier\n'
            "    use another topic",
        ),
        only_python="the API server's rules of spec don't know the pipeline's name",
    ),
    Bad(
        "produce to the channel",
        {**_collect({}), "spec/stages/3/produce/topic": "flight-delays.by-carrier.channel"},
        (
            'spec.stages[3].produce.topic (stage scored): "flight-delays.by-carrier.channel" is the channel of stage '
            "by-carrier\n    use another topic",
        ),
        only_python="the API server's rules of spec don't know the pipeline's name",
    ),
    Bad(
        "collect before produce",
        {
            "spec/stages/2": {"name": "by-carrier", "collect": COLLECT},
        },
        (
            "spec.stages[3] (stage scored): a produce stage can't come after a collect stage\n"
            "    collect ends the chain: move it to the end",
        ),
    ),
    Bad(
        "a map after collect",
        {"spec/stages/3": {"name": "by-carrier", "collect": COLLECT}, "spec/stages/4": _MAP},
        (
            "spec.stages[4] (stage more): a map stage can't come after a collect stage\n"
            "    collect ends the chain: move it to the end",
        ),
    ),
    # The workers' pods
    Bad(
        "a quantity without quotes",
        {"spec/worker/resources": {"requests": {"cpu": 2}}},
        (
            "spec.worker.resources.requests.cpu: 2 is not a string\n"
            '    use a number with a unit, in quotes where it has none, for example 500m, "2", 512Mi or 1Gi',
        ),
    ),
    Bad(
        "no quantity",
        {"spec/worker/resources": {"limits": {"memory": "lots"}}},
        (
            'spec.worker.resources.limits.memory: "lots" is not a quantity\n'
            '    use a number with a unit, in quotes where it has none, for example 500m, "2", 512Mi or 1Gi',
        ),
    ),
    Bad(
        "a node that is lost too soon",
        {"spec/nodeLost": {"after": "1s"}},
        ('spec.nodeLost.after: "1s" is out of range\n    use a duration from 30s to 24h',),
    ),
    Bad(
        "the workers' own variable",
        {"spec/worker/env": [{"name": "MILLRACE_INDEX", "value": "7"}]},
        (
            'spec.worker.env[0].name: "MILLRACE_INDEX" is how a worker gets its index\n'
            "    choose another name",
        ),
    ),
    Bad(
        "a host path smuggled in",
        {"spec/worker/volumes": [{"hostPath": {"path": "/"}}]},
        (
            'spec.worker.volumes: unknown key "volumes"\n    known here: image, imagePullSecrets, resources, nodeSelector, '
            "tolerations, priorityClassName, labels, annotations, affinity, topologySpread, code, env",
        ),
    ),
    Bad(
        "a pod that says that it is another's",
        {"spec/worker/labels": {"millrace.dev/pipeline": "payments", "team": "air"}},
        (
            "spec.worker.labels[\"millrace.dev/pipeline\"]: millrace.dev/pipeline is Kubernetes' or Millrace's own\n"
            "    choose a key of your own domain; of theirs you may set app.kubernetes.io/part-of, app.kubernetes.io/version, "
            "cluster-autoscaler.kubernetes.io/safe-to-evict",
        ),
    ),
    *(
        Bad(
            f"an annotation that confines the pod less, {key}",
            {"spec/worker/annotations": {key: "unconfined"}},
            (
                f"spec.worker.annotations[\"{key}\"]: {key} is Kubernetes' or Millrace's own\n"
                "    choose a key of your own domain; of theirs you may set app.kubernetes.io/part-of, app.kubernetes.io/version, "
                "cluster-autoscaler.kubernetes.io/safe-to-evict",
            ),
        )
        for key in (
            "container.apparmor.security.beta.kubernetes.io/worker",
            "kubernetes.io/egress-bandwidth",
            "io.kubernetes.cri-o.userns-mode",
        )
    ),
    Bad(
        "labels that are none",
        {"spec/worker/labels": {"a b": "x", "team": "over here!"}},
        (
            'spec.worker.labels["a b"]: "a b" is not the key of a label or annotation\n'
            "    use letters, digits, '-', '_' and '.', beginning and ending with a letter or digit; a domain and '/' may stand "
            "before",
            'spec.worker.labels.team: "over here!" is not the value of a label\n'
            "    use letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, at most 63 characters",
        ),
    ),
    Bad(
        "a node of no zone",
        {"spec/worker/affinity": {"required": [{"key": "zone", "operator": "In"}]}},
        ("spec.worker.affinity.required[0].values: operator In needs values\n    list one or more",),
    ),
    Bad(
        "a label that is there with a value",
        {"spec/worker/affinity": {"preferred": [{"key": "gpu", "operator": "Exists", "values": ["yes"]}]}},
        ("spec.worker.affinity.preferred[0].values: operator Exists has no values\n    leave values out",),
    ),
    Bad(
        "workers spread twice over the same",
        {"spec/worker/topologySpread": [{"topologyKey": "zone"}, {"topologyKey": "zone", "maxSkew": 2}]},
        (
            'spec.worker.topologySpread[1].topologyKey: "zone" is the topologyKey of spec.worker.topologySpread[0] already\n'
            "    give each spread a topologyKey of its own",
        ),
    ),
    Bad(
        "a whole affinity smuggled in",
        {"spec/worker/affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}},
        ('spec.worker.affinity.podAffinity: unknown key "podAffinity"\n    known here: required, preferred',),
    ),
    # Several at once
    Bad(
        "problems of single fields and of rules, all told at once",
        {
            "spec/replicas": -1,
            "spec/source/topc": "flights",
            "spec/stages/1/map/function": "score",
            "spec/stages/2/name": "score",
            "spec/deadLetter": ABSENT,
        },
        (
            "spec.replicas: -1 is out of range\n    use a whole number from 0 to 10000",
            'spec.source.topc: unknown key "topc"\n'
            "    did you mean topic? (known here: topic, groupId, startFrom, create, format)",
            'spec.stages[1].map.function (stage score): "score" is not a function reference\n'
            "    use module:name, for example flights:score",
            'spec.stages[2].name (stage score): "score" is the name of spec.stages[1] already\n'
            "    give each stage a name of its own",
            "spec.stages[1].map.onError (stage score): DeadLetter needs a topic for dead letters, and "
            "spec.deadLetter is not there\n    add spec.deadLetter with a topic, or use onError: Stop",
        ),
    ),
)
