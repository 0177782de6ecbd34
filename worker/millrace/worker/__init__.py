"""The worker process: one replica of a pipeline, from its manifest, the epoch file and its index.

`process` composes what the rooms below offer (manifest, functions, cluster, replica) and steps it until told to stop;
the other modules are how the world sees it meanwhile: `status` (the snapshot), `http` (health, metrics), `logs`,
`files` (the status file). Nothing here decides about ownership or offsets: that is the engine's.
"""
