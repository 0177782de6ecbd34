"""A pipeline on one machine: `millrace run`.

The parent process plays the operator of the protocol. It keeps the state directory and its lock (`state`), creates
topics (`topics`), keeps the worker processes alive (`supervisor`, `backoff`), publishes epochs and looks after claims
(`stewardship`). `run` composes these, `session` makes them from a manifest. No message of the user's ever passes
through the parent.

Three rooms of their own: the embedded Kafka broker (`broker`), the collector's process (`collector`), and what is shown
meanwhile (`view`).

Nothing here runs in a cluster, and nothing below this room knows that it exists.
"""
