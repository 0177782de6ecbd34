"""`kubectl millrace dlq`: the dead letters of a pipeline on a cluster, looked at, sent again, and deleted.

What needs Kafka is an errand; workers go on meanwhile. `course` sends it, asks before something is deleted, and prints what
comes back as `millrace dlq` does; `app` declares the commands.
"""
