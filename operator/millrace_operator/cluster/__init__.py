"""The way to the API server: a small port, the real one, and one in memory that is held to the same contract suite."""

from millrace_operator.cluster.port import (
    Change,
    Cluster,
    ClusterError,
    Conflict,
    Expired,
    Listing,
    Refused,
)

__all__ = ["Change", "Cluster", "ClusterError", "Conflict", "Expired", "Listing", "Refused"]
