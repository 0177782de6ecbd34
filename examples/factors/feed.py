"""Numbers to factor: python feed.py BOOTSTRAP [COUNT]"""

from __future__ import annotations

import json
import random
import sys

from confluent_kafka import Producer

chance = random.Random(1)
producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 20, "enable.idempotence": True})
for key in range(int(sys.argv[2]) if len(sys.argv) > 2 else 2_000):
    n = chance.randrange(1, 10**10) if key % 500 else -key  # a few are none of ours
    producer.produce("numbers", json.dumps({"n": n}), key=str(key))
    producer.poll(0)
producer.flush()
