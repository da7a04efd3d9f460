"""What a benchmark consists of: a case prepares data and names tasks, and each task runs in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Row = dict[str, Any]
"""One result, as one JSON line holds it."""

TaskFunction = Callable[..., Row]
"""Called as `function(folder, scale, **arguments)` in the process of the task; returns what it measured."""


@dataclass(frozen=True)
class Task:
    """One function with its arguments.

    `function` is "module:name", so that this process imports none of the libraries that are measured; `requires` names
    modules that the task cannot do without; `once` is for tasks whose time is not the point; `cap_bytes` is a hard
    limit on the memory of the whole process tree; `cold` drops the page cache of the data first, so that they are
    read from the disk and count, as page cache, within the cap.
    """

    name: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    once: bool = False
    cap_bytes: int | None = None
    cold: bool = False
    timeout: float = 3600.0


@dataclass(frozen=True)
class Check:
    """A requirement, and whether the measured rows meet it."""

    text: str
    passed: bool


@dataclass(frozen=True)
class Summary:
    """What a report says about the rows of a case: Markdown, and the requirements."""

    markdown: str
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class Case:
    """A benchmark.

    `prepare` ("module:name", called as `prepare(folder, scale)` in its own process) writes the data once and returns
    their description; `judge` (the same, with the file of the components) measures the quality of a task's components;
    `reference` is the task whose time the others are divided by; `summarise` turns rows into words.
    """

    name: str
    title: str
    prepare: str
    tasks: Callable[[float], tuple[Task, ...]]
    summarise: Callable[[list[Row]], Summary]
    judge: str | None = None
    reference: str | None = None
    draw: Callable[[list[Row], Path], list[Path]] | None = None
    large: bool = False


def finished(rows: list[Row]) -> list[Row]:
    """The rows of tasks that ran to their end."""
    return [row for row in rows if row["status"] == "ok"]
