"""Orders: python feed.py BOOTSTRAP [COUNT]"""

from __future__ import annotations

import json
import sys

from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": sys.argv[1], "linger.ms": 20, "enable.idempotence": True})
for n in range(int(sys.argv[2]) if len(sys.argv) > 2 else 5_000):
    order = {"order": n, "article": n * 7 % 1000 + 1, "count": n % 5 + 1}
    producer.produce("orders", json.dumps(order), key=str(n))
    producer.poll(0)
producer.flush()
