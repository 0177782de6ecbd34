"""`millrace dlq`: a pipeline's dead letters, looked at, sent again, and deleted.

`letters` reads them and knows their headers, `chosen` which of them are meant, `replayed` is the account of those that were
sent again (pure), `replay` sends them; `access` finds the broker that they are in; `listing`, `replaying` and `purging` are the
commands: each finds or does it, then prints that. For a pipeline on a cluster `in_pod` is what a pod there does.
"""
