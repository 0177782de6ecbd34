"""`millrace dlq`: a pipeline's dead letters, looked at, sent again, and deleted.

`letters` reads them and knows their headers, `chosen` which of them are meant, `replayed` is the account of those that were
sent again (pure), `replay` sends them; `access` finds the broker that they are in; `listing`, `showing`, `replaying` and
`purging` are the commands.
"""
