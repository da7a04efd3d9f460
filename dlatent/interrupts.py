"""Waits that an interrupt (Ctrl-C) ends in all threads: it comes to the main one only, and others would go on."""

from __future__ import annotations

from collections.abc import Callable

_ends: list[Callable[[], None]] = []


def on_interrupt(end: Callable[[], None]) -> None:
    """Call a function whenever work is interrupted."""
    _ends.append(end)


def interrupt() -> None:
    """End what waits in other threads."""
    for end in _ends:
        end()
