"""Committed offsets of many groups, one request to each of their coordinators (KIP-709, KIP-699).

librdkafka asks for one group at a time, and with a client for each (`committed` says why). kafka-python, which
is Python all through, has the request for many. Only this is asked of it, with who we are taken over from librdkafka's
settings; where these say what it has no word for, or where it gets no connection, `Unusable` says so.
"""

from __future__ import annotations

import logging
import ssl
import tempfile
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError as Native

from millrace.clock import Clock, Deadline
from millrace.connectivity.confluent.bounded import NeverReturned, bounded
from millrace.connectivity.confluent.errors import translated
from millrace.connectivity.ports import KafkaError, OffsetAndMetadata
from millrace.connectivity.settings import Settings
from millrace.connectivity.survey import Progress

_TIMEOUT: Final = 5.0  # s, of one request
_ATTEMPTS: Final = 3  # to connect, one after the other, before it is given up
_ANEW: Final = 600.0  # s after that; meanwhile it is not tried
_CLOSING: Final = 2.0  # s
_PAUSE: Final = 0.2  # s between two attempts
_LATER: Final = frozenset(
    {
        Native.COORDINATOR_LOAD_IN_PROGRESS,
        Native.COORDINATOR_NOT_AVAILABLE,
        Native.NOT_COORDINATOR,
        Native.REQUEST_TIMED_OUT,
    }
)
_OF_ONE: Final = _LATER | {
    Native.GROUP_AUTHORIZATION_FAILED,
    Native.TOPIC_AUTHORIZATION_FAILED,
    Native.INVALID_GROUP_ID,
    Native.GROUP_ID_NOT_FOUND,
    Native.UNKNOWN_TOPIC_OR_PART,
    Native.UNSTABLE_OFFSET_COMMIT,
}
_OF_THE_WAY: Final = (
    "ssl.",
    "sasl.",
    "security.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "broker.address.",
)
_TAKEN_OVER: Final = frozenset(
    {
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.key.pem",
        "ssl.endpoint.identification.algorithm",
    }
)

_log = logging.getLogger("millrace.connectivity")
logging.getLogger("kafka").setLevel(logging.WARNING)  # below that it tells its settings, password and all


class Unusable(Exception):
    """Ask in another way."""


class ManyGroups:
    """Args:
    settings: of a client of librdkafka's.
    tried: who we say we are, without secrets.
    """

    def __init__(self, settings: Settings, tried: str, clock: Clock) -> None:
        self._settings, self._tried, self._clock = settings, tried, clock
        self._admin: Any = None
        self._failures = 0
        self._not_before: float | None = None

    def read(
        self, asked: Collection[Progress], deadline: Deadline
    ) -> Mapping[Progress, Mapping[int, OffsetAndMetadata] | KafkaError]:
        """Raises Unusable, and KafkaError where it is the same for all groups."""
        groups: dict[str, list[Progress]] = {}
        for one in asked:
            groups.setdefault(one.group, []).append(one)
        found: dict[Progress, Mapping[int, OffsetAndMetadata] | KafkaError] = {}
        patient = Deadline(self._clock, self._clock.monotonic() + deadline.remaining() / 2)
        waiting: list[Sequence[str]] = [sorted(groups)]
        while waiting:
            some = waiting.pop()
            try:
                answers = self._ask({group: groups[group] for group in some}, deadline)
            except _Refused as refused:
                if refused.code not in _OF_ONE:
                    raise translated(
                        Native(refused.code), "read offsets of groups", "", self._tried
                    ) from None
                # that of one group is all the answer there is
                if refused.code in _LATER and not patient.expired():
                    self.close()  # and with it, where it takes the coordinators to be
                    self._clock.sleep(min(_PAUSE, patient.remaining()))
                    waiting.append(some)
                elif len(some) > 1 and not deadline.expired():
                    waiting += [some[: len(some) // 2], some[len(some) // 2 :]]
                else:
                    found.update({one: self._error(refused, one) for group in some for one in groups[group]})
            else:
                found.update(answers)
        return found

    def close(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            with suppress(NeverReturned):
                bounded(admin.close, _CLOSING)

    def _ask(
        self, groups: Mapping[str, Sequence[Progress]], deadline: Deadline
    ) -> Mapping[Progress, Mapping[int, OffsetAndMetadata]]:
        admin = self._open()
        from kafka import TopicPartition
        from kafka.errors import KafkaError as Theirs

        wanted = {
            group: [TopicPartition(one.topic, p) for one in several for p in range(one.partitions)]
            for group, several in groups.items()
        }
        answer: dict[str, Mapping[Any, Any]] = {}
        try:
            bounded(lambda: answer.update(admin.list_group_offsets(wanted)), deadline.remaining())
        except (Theirs, NeverReturned) as error:
            code = int(getattr(error, "errno", Native.REQUEST_TIMED_OUT))
            if code < 0 or code == Native.REQUEST_TIMED_OUT:
                code = int(Native.REQUEST_TIMED_OUT)  # of its own: the connection is gone, or slow
                self.close()
            raise _Refused(code) from error
        except Exception as error:  # a fault of its own
            raise self._given_up(error) from error
        return {
            one: {
                p: OffsetAndMetadata(slot.offset, (slot.metadata or "").rstrip("\0") or None)
                for p in range(one.partitions)
                if (slot := answer[group].get(TopicPartition(one.topic, p))) is not None and slot.offset >= 0
            }
            for group, several in groups.items()
            for one in several
        }

    def _error(self, refused: _Refused, of: Progress) -> KafkaError:
        where = f"group {of.group}"
        return translated(Native(refused.code), f"read the offsets of {where}", where, self._tried)

    def _open(self) -> Any:
        if self._admin is not None:
            return self._admin
        if self._not_before is not None and self._clock.monotonic() < self._not_before:
            raise Unusable
        chosen = in_its_words(self._settings)
        if chosen is None:
            raise Unusable
        try:
            self._admin = _opened(chosen)
        except ImportError as error:
            raise self._given_up(error) from error
        except Exception as error:  # whatever it is: librdkafka has a connection, or nobody would ask here
            self._failures += 1
            if self._failures < _ATTEMPTS:
                raise _Refused(int(Native.REQUEST_TIMED_OUT)) from error
            raise self._given_up(error) from error
        self._failures = 0
        return self._admin

    def _given_up(self, error: Exception) -> Unusable:
        self.close()
        self._not_before = self._clock.monotonic() + _ANEW
        _log.warning("groups are read one by one, as %s: %r", self._tried, error)
        return Unusable(str(error))


class _Refused(Exception):
    """Of one group at least. `code`: Kafka's, which is librdkafka's too."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def in_its_words(settings: Settings) -> dict[str, Any] | None:
    """librdkafka's settings as kafka-python's. None: they say something of how, or as whom, to connect that it has no
    word for; what only tunes librdkafka is left out.
    """
    if any(key.startswith(_OF_THE_WAY) and key not in _TAKEN_OVER for key in settings):
        return None
    protocol = str(settings.get("security.protocol", "plaintext")).upper()
    found: dict[str, Any] = {
        "bootstrap_servers": [one.strip() for one in str(settings["bootstrap.servers"]).split(",")],
        "client_id": str(settings["client.id"]),
        "security_protocol": protocol,
        "request_timeout_ms": int(_TIMEOUT * 1000),
        "bootstrap_timeout_ms": int(_TIMEOUT * 1000),
        "reconnect_backoff_max_ms": 1_000,
    }
    if "SASL" in protocol:
        found["sasl_mechanism"] = str(settings.get("sasl.mechanism", ""))
        found["sasl_plain_username"] = str(settings.get("sasl.username", ""))
        found["sasl_plain_password"] = str(settings.get("sasl.password", ""))
    if "SSL" in protocol:
        found["ssl_context"] = _tls(settings)
    return found


def _tls(settings: Settings) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=str(settings.get("ssl.ca.pem", "")) or None)
    context.check_hostname = settings.get("ssl.endpoint.identification.algorithm", "https") != "none"
    if "ssl.certificate.pem" in settings:  # from a file only: one that only we can read, for this moment
        with tempfile.TemporaryDirectory(prefix="millrace-") as directory:
            certificate, key = Path(directory, "user.crt"), Path(directory, "user.key")
            certificate.write_text(str(settings["ssl.certificate.pem"]))
            key.write_text(str(settings.get("ssl.key.pem", "")))
            context.load_cert_chain(certificate, key)
    return context


def _opened(chosen: dict[str, Any]) -> Any:
    from kafka import KafkaAdminClient
    from kafka.net.compat import KafkaNetClient

    made: list[Any] = []

    def net(**options: Any) -> Any:
        made.append(KafkaNetClient(**options))
        return made[0]

    try:
        return KafkaAdminClient(**chosen, kafka_client=net)
    except BaseException:
        for client in made:  # it leaves its thread behind
            client.close()
            client._net.stop(1_000)
        raise
