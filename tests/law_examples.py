"""On how many examples a law is tried."""

from __future__ import annotations

from hypothesis import HealthCheck, settings


def examples(count: int) -> int:
    """So many; in the profile "quick", which `make test` takes, a quarter of them, as of laws that name no number,
    and in the profile "nightly" ten times as many."""
    return max(count * settings().max_examples // 100, 3)


def runs(count: int) -> settings:
    """For a state machine so many runs of 25 steps, always the same but in the profile "nightly"."""
    alike = settings().max_examples <= 100
    return settings(
        max_examples=examples(count), stateful_step_count=25, derandomize=alike, suppress_health_check=[*HealthCheck]
    )
