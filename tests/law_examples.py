"""On how many examples a law is tried."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """So many; in the profile "quick", which `make test` takes, a quarter of them, as of laws that name no number."""
    return max(count * settings().max_examples // 100, 3)
