"""Times as Kubernetes writes them."""

from __future__ import annotations

from datetime import UTC, datetime


def unix(text: str) -> float | None:
    """Seconds since the Unix epoch of a metav1.Time or MicroTime; None if it is none."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def written(moment: float) -> str:
    """A metav1.Time: whole seconds, UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
