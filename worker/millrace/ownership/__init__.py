"""Ownership: who may process which partition, and how that passes from one to another (docs/protocol.md).

`plan` (partitions to replicas), `epoch` (the plan's published version), `claim` (the right to a partition, kept beside
its committed offset), `control_rules` (R4-R6 as decisions), `provenance` (what a record says of where it comes from) and
`sweep` (R8 as decisions) are pure. `control_plane` carries the control plane's decisions out over connectivity's ports, for
the operator and the parent of a local run alike: `acting` as a holder, `seeding`, looking for what the `abandoned` have left,
with `reports` of it all. `leftovers` finds what a broker has left open, `pending` and `sweeper` bring it to its end; workers use these
too. `epoch_store` is where epochs are published; `errors` are what only a human can decide. The worker's part (R1-R3) lives in the engine. Nothing
here knows of stages or manifests.
"""
