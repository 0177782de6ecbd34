"""Ownership: who may process which partition, and how that passes from one to another (docs/protocol.md).

`plan` (partitions to replicas), `epoch` (the plan's published version), `claim` (the right to a partition, kept beside
its committed offset) and `control_rules` (R4-R6 as decisions) are pure. `control_plane` carries the control plane's
decisions out over connectivity's ports, for the operator and the parent of a local run alike; `epoch_store` is where
epochs are published; `errors` are what only a human can decide. The worker's part (R1-R3) lives in the engine. Nothing
here knows of stages or manifests.
"""
