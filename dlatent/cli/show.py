"""How results look on the terminal, and as JSON; and the progress of long commands on standard error: a bar on a
terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import math
import sys
from collections import deque
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Self

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from dlatent.engine.session import PassRecord
from dlatent.errors import masked, number_of
from dlatent.models.callbacks import Callback
from dlatent.solvers.plan import Plan
from dlatent.solvers.solver import Iteration

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""
ALL_LINES = 20
"""Passes of which every one gets a line; of later ones at most one in `LINE_SECONDS`."""
LINE_SECONDS = 2.0
MOST_PASSES = 999
MOST_COMPONENTS = 10
"""Lines of a table of components, of which a model may have many; JSON has all."""


def console(*, errors: bool = False) -> Console:
    """Standard output, or standard error for progress and messages."""
    printer = Console(stderr=errors, highlight=False, markup=False, emoji=False)
    if not printer.is_terminal:
        printer.width = PIPE_WIDTH
    return printer


def result(title: str, report: Mapping[str, Any], lines: Mapping[str, Any] | None = None, *, json: bool) -> None:
    """Print the report of a command as JSON, or as lines with a table for each list; and its warnings."""
    if json:
        as_json(report)
    else:
        tables = {name: rows for name, rows in report.items() if _is_table(rows)}
        pairs(title, lines or {name: value for name, value in report.items() if name not in tables})
        for what, rows in tables.items():
            others = _smallest(rows) if what == "components" else []
            shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for name, value in rows[0].items():
                justify: Any = "left" if isinstance(value, str | list) else "right"
                shown.add_column(name.replace("_", " "), justify=justify, overflow="fold")
            for row in (row for at, row in enumerate(rows) if at not in others):
                shown.add_row(*(masked(_said(name, value)) for name, value in row.items()))
            console().print(shown)
            if others:
                share = _said("share", sum(rows[at]["share"] for at in others))
                console().print(f"{number_of(len(others), 'more component')} with {share} in all; --json tells of each")
    for text in report.get("warnings", ()):
        say(f"warning: {text}")


def _smallest(components: list[Any]) -> list[int]:
    """Numbers of those beyond the ones with the largest shares of the variance."""
    return sorted(range(len(components)), key=lambda at: -components[at]["share"])[MOST_COMPONENTS:]


def _is_table(value: Any) -> bool:
    """Whether a value is a list of rows with the same keys."""
    rows = isinstance(value, list) and bool(value)
    return rows and all(isinstance(row, Mapping) and row.keys() == value[0].keys() for row in value)


def pairs(title: str, values: Mapping[str, Any]) -> None:
    """Print names and values, one pair a line; what is None or an empty list is left out."""
    some = {name: value for name, value in values.items() if value is not None and str(value) not in ("()", "[]")}
    shown = {name.replace("_", " "): _said(name, value) for name, value in some.items()}
    width = max(map(len, shown), default=0)
    out = console()
    out.print(masked(title), style="bold")
    for name, value in shown.items():
        out.print(masked(f"  {name:<{width}}  {value}"), soft_wrap=True)


IN_BYTES = ("bytes", "nbytes", "bytes_read", "bytes_written", "largest_block")
SIZES = ("shape", "chunks", "chunks_before", "shards", "dims")


def _said(name: str, value: Any) -> str:
    """A value of this name as people read it."""
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        return _said(name, value.tolist())
    if name in IN_BYTES:
        return f"{value / 1e6:,.1f} MB"
    if name == "share":
        return f"{value:.2%}"
    if name == "largest" and isinstance(value, list):
        return ", ".join(f"{'−' if one['loading'] < 0 else '+'}{one['feature']}" for one in value)
    if isinstance(value, list | tuple):
        between = " × " if name in SIZES else " → " if name.endswith("_distance") else "; "
        return between.join(_said("", one) for one in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_said(key, one)}" for key, one in value.items() if one is not None)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}" if name == "seconds" else f"{value:.{10 if name == 'log_likelihood' else 6}g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def as_json(value: Any) -> None:
    """Write a value to standard output as JSON; NaN and infinities, which JSON does not know, become null."""
    json.dump(_plain(value), sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # a number or an array of NumPy, which is not imported for the sake of this line
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return masked(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def say(text: str) -> None:
    """One line to standard error."""
    print(masked(f"dlatent: {text}"), file=sys.stderr)


class Screen:
    """Lines on standard error, and below them a bar where it is a terminal; silent where `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet, self._console = quiet, console(errors=True)
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[note]}"))
        self.has_bar = self._console.is_terminal and not quiet
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("", total=None, note="")

    def __enter__(self) -> Self:
        if self.has_bar:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.has_bar:
            self._bar.stop()

    def line(self, text: str) -> None:
        """Write a line that stays."""
        if not self._quiet:
            self._console.print(text, soft_wrap=True)

    def bar(self, text: str, done: float, total: float | None, note: str = "") -> None:
        """Show where the work is, on a terminal only."""
        self._bar.update(self._task, description=text, completed=done, total=total, note=note)


class IngestProgress:
    """Progress of `ingest` after every batch: bytes, rows, MB/s and the time left; plain lines at every tenth part."""

    def __init__(self, screen: Screen) -> None:
        self._screen, self._started, self._shown = screen, perf_counter(), 0

    def __call__(self, done: int, total: int | None, rows: int) -> None:
        """Bytes done, bytes in all (None: unknown), and rows done."""
        seconds = perf_counter() - self._started
        rate = done / max(seconds, 1e-9)
        left = "" if not total or not done else f"  {_left((total - done) / rate)}"
        of_all = "" if not total else f" of {total / 1e6:,.1f}"
        note = f"{done / 1e6:,.1f}{of_all} MB  {number_of(rows, 'row')}  {rate / 1e6:,.1f} MB/s{left}"
        self._screen.bar("reading", done, total, note)
        part = int(10 * done / total) if total else int(seconds / LINE_SECONDS)
        if not self._screen.has_bar and part > self._shown:
            self._shown = part
            self._screen.line(f"read {note}")


class FitProgress(Callback):
    """Turns what a fit reports into one line per pass over the data.

    A line has the number of the pass, the log-likelihood in nats that it led to, the change since the line before, the
    bytes of data per second that the pass went through, and an estimate of the time left.
    """

    def __init__(self, screen: Screen, tolerance: float) -> None:
        # On a cluster, hearing of every task costs the scheduler a message each; without a bar nobody would see them.
        super().__init__(on_task=self._on_task if screen.has_bar else None)
        self._screen, self._tolerance = screen, tolerance
        self._passes = 0
        self._waiting: PassRecord | None = None
        self._distances: deque[float] = deque(maxlen=2)
        self._ends: deque[float] = deque([perf_counter()], maxlen=5)
        self._line_at = -math.inf

    def on_plan(self, plan: Any) -> None:
        """Say what will be done."""
        self._plan: Plan = plan
        passes = number_of(plan.passes, "pass", "passes")
        self._screen.line(f"solver {plan.solver} ({plan.reason}), about {passes} on {plan.machine}")

    def on_pass(self, record: PassRecord) -> None:
        """A pass has ended; its line waits for the log-likelihood that follows from it."""
        self._flush(None)
        self._passes += 1
        self._waiting = record
        self._ends.append(perf_counter())

    def _on_task(self, done: int, total: int) -> None:
        """Part of a pass has ended."""
        self._screen.bar(f"pass {self._passes + 1}", done, total, self._outlook())

    def on_iteration(self, line: Iteration) -> None:
        """The driver has a new log-likelihood; many may follow from one pass."""
        self._distances.append(line.remaining)
        self._flush(line)
        self._screen.bar(f"after pass {self._passes}, iteration {line.iteration}", 0, None, self._outlook())

    def on_end(self) -> None:
        """Write what still waits: a pass that led to no further iteration."""
        self._flush(None)

    def _flush(self, line: Iteration | None) -> None:
        record, self._waiting = self._waiting, None
        now = perf_counter()
        if record is None or (self._passes > ALL_LINES and now - self._line_at < LINE_SECONDS):
            return
        self._line_at = now
        self._screen.line("  ".join(filter(None, [f"pass {self._passes:>3}", *self._texts(record, line)])))

    def _texts(self, record: PassRecord, line: Iteration | None) -> list[str]:
        rate = self._plan.bytes_per_pass / max(record.seconds, 1e-9) / 1e6
        source = " from memory" if record.blocks and not record.bytes_read else ""
        speed = f"{rate:,.1f} MB/s{source}"
        if line is None:
            return [f"{record.name}", speed]
        change = f"change {line.gain:.3e}" if math.isfinite(line.gain) else ""
        return [f"log-likelihood {line.log_likelihood:.10g}", change, speed, self._outlook()]

    def _outlook(self) -> str:
        passes = self.passes_left()
        if passes is None or len(self._ends) < 2:
            return ""
        each = (self._ends[-1] - self._ends[0]) / (len(self._ends) - 1)
        return _left(passes * each)

    def passes_left(self) -> float | None:
        """Passes still to come: from the pace at which the distance to the maximum shrinks, before that from the plan.

        None where the estimated distance does not shrink.
        """
        known = [distance for distance in self._distances if distance > 0]
        if len(known) < 2:
            return max(self._plan.passes - self._passes, 0)
        pace = math.log(known[0] / known[1])
        if pace <= 0:
            return None
        return min(max(math.ceil(math.log(known[1] / self._tolerance) / pace), 0), MOST_PASSES) + 1


def _left(seconds: float) -> str:
    rounded = math.ceil(seconds)
    hours, minutes = divmod(rounded // 60, 60)
    clock = f"{hours}:{minutes:02}:{rounded % 60:02}" if hours else f"{minutes}:{rounded % 60:02}"
    return f"about {clock} left"
