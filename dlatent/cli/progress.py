"""Progress of long commands on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
from collections import deque
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from dlatent.cli.show import console
from dlatent.errors import number_of

if TYPE_CHECKING:
    from dlatent.engine.records import PassRecord
    from dlatent.models.callbacks import Callback
    from dlatent.solvers.plan import Plan
    from dlatent.solvers.solution import Iteration

ALL_LINES = 20
"""Passes of which every one gets a line; of later ones at most one in `LINE_SECONDS`."""
LINE_SECONDS = 2.0
MOST_PASSES = 999


class Screen:
    """Lines on standard error, and below them a bar where it is a terminal; silent where `quiet`."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = console(errors=True)
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[note]}"))
            self._bar = Progress(*columns, console=self._console, transient=True)
            self._task = self._bar.add_task("", total=None, note="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def has_bar(self) -> bool:
        """Whether there is a bar."""
        return self._bar is not None

    def line(self, text: str) -> None:
        """Write a line that stays."""
        if not self._quiet:
            self._console.print(text, soft_wrap=True)

    def bar(self, text: str, done: float, total: float | None, note: str = "") -> None:
        """Show where the work is, on a terminal only."""
        if self._bar is not None:
            self._bar.update(self._task, description=text, completed=done, total=total, note=note)


class IngestProgress:
    """What `ingest` calls after every batch: bytes, rows, MB/s and the time left; plain lines at every tenth part."""

    def __init__(self, screen: Screen) -> None:
        self._screen, self._started, self._shown = screen, perf_counter(), 0

    def __call__(self, done: int, total: int | None, rows: int) -> None:
        """Bytes done, bytes in all (None: unknown), and rows done."""
        seconds = perf_counter() - self._started
        rate = done / max(seconds, 1e-9)
        left = None if not total or not done else (total - done) / rate
        of_all = "" if not total else f" of {total / 1e6:,.1f}"
        note = f"{done / 1e6:,.1f}{of_all} MB  {number_of(rows, 'row')}  {rate / 1e6:,.1f} MB/s{_left(left)}"
        self._screen.bar("reading", done, total, note)
        part = int(10 * done / total) if total else int(seconds / LINE_SECONDS)
        if not self._screen.has_bar and part > self._shown:
            self._shown = part
            self._screen.line(f"read {note}")


class FitProgress:
    """Turns what a fit reports (see `dlatent.Callback`) into one line per pass over the data.

    A line has the number of the pass, the log-likelihood in nats that it led to, the change since the line before, the
    bytes of data per second that the pass went through, and an estimate of the time left.
    """

    def __init__(self, screen: Screen, plan: Plan, tolerance: float) -> None:
        self._screen, self._plan, self._tolerance = screen, plan, tolerance
        self._passes = 0
        self._waiting: PassRecord | None = None
        self._last: Iteration | None = None
        self._before: Iteration | None = None
        self._ends: deque[float] = deque([perf_counter()], maxlen=5)
        self._line_at = -math.inf

    @property
    def callback(self) -> Callback:
        """What `fit(callbacks=[…])` takes."""
        from dlatent.models.callbacks import Callback

        # On a cluster, hearing of every task costs the scheduler a message each; without a bar nobody would see them.
        on_task = self.on_task if self._screen.has_bar else None
        return Callback(on_pass=self.on_pass, on_task=on_task, on_iteration=self.on_iteration)

    def on_pass(self, record: PassRecord) -> None:
        """A pass has ended; its line waits for the log-likelihood that follows from it."""
        self._flush(None)
        self._passes += 1
        self._waiting = record
        self._ends.append(perf_counter())

    def on_task(self, done: int, total: int) -> None:
        """Part of a pass has ended."""
        self._screen.bar(f"pass {self._passes + 1}", done, total, self._outlook())

    def on_iteration(self, line: Iteration) -> None:
        """The driver has a new log-likelihood; many may follow from one pass."""
        self._before, self._last = self._last, line
        self._flush(line)
        self._screen.bar(f"after pass {self._passes}, iteration {line.iteration}", 0, None, self._outlook())

    def finish(self) -> None:
        """Write what still waits: a pass that led to no further iteration."""
        self._flush(None)

    def _flush(self, line: Iteration | None) -> None:
        record, self._waiting = self._waiting, None
        now = perf_counter()
        if record is None or (self._passes > ALL_LINES and now - self._line_at < LINE_SECONDS):
            return
        self._line_at = now
        self._screen.line("  ".join(filter(None, [f"pass {self._passes:>3}", *self._words(record, line)])))

    def _words(self, record: PassRecord, line: Iteration | None) -> list[str]:
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
        return _left(passes * each).strip()

    def passes_left(self) -> float | None:
        """Passes still to come: from the pace at which the distance to the maximum shrinks, before that from the plan.

        None where the estimated distance does not shrink.
        """
        last, before = self._last, self._before
        known = [line.remaining for line in (before, last) if line is not None and line.remaining > 0]
        if len(known) < 2:
            return max(self._plan.passes - self._passes, 0)
        pace = math.log(known[0] / known[1])
        if pace <= 0:
            return None
        return min(max(math.ceil(math.log(known[1] / self._tolerance) / pace), 0), MOST_PASSES) + 1


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = math.ceil(seconds)
    hours, minutes = divmod(whole // 60, 60)
    clock = f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
    return f"  about {clock} left"
