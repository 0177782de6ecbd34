"""Orders into a table of SQLite, a hundred rows in a transaction.

A message may come again after a crash. Its place in the source, partition and offset, is the row's key: so inserting it again
changes nothing, and the table is exact.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import millrace

Row = tuple[int, int, str, int]

_connections: list[sqlite3.Connection] = []


def database() -> Path:
    return Path(os.environ.get("ORDERS_DB") or Path(__file__).with_name("orders.db"))


def setup() -> None:
    connection = sqlite3.connect(database(), timeout=60, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")  # readers, and the other worker, go on meanwhile
    connection.execute(
        "CREATE TABLE IF NOT EXISTS orders (partition INTEGER, position INTEGER, customer TEXT, cents INTEGER, "
        "PRIMARY KEY (partition, position)) WITHOUT ROWID"
    )
    _connections.append(connection)


def row(order: dict[str, object], message: millrace.Message) -> Row:
    customer, cents = order["customer"], order["cents"]
    if not isinstance(customer, str) or not isinstance(cents, int):
        raise millrace.Invalid("an order has a customer (text) and cents (a whole number)")
    return message.partition, message.offset, customer, cents


def insert(rows: Sequence[Row]) -> None:
    connection = _connections[-1]
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
