"""`kubectl millrace offsets`: the claims of a pipeline on a cluster shown, set elsewhere, and written anew.

What needs Kafka is an errand. `course` has the workers stopped before and started again after; `app` declares the commands.
"""
