"""What a fit tells while it runs: callbacks, and a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self

from dlatent.engine.records import PassRecord
from dlatent.fitting.local_linear import LocalPlan
from dlatent.fitting.outcome import Iteration
from dlatent.fitting.plan import Plan


class Callback:
    """Called while a model is fitted.

    Give functions, or override the methods of the same names.  `fit(callbacks=[…])` uses it in one fit; as a context
    manager it is used in every fit of the block.

    Parameters
    ----------
    on_plan : called with what `plan` returns before the first pass.
    on_task : called with the number of finished tasks of a pass and of all, perhaps from another thread.
    on_pass : called with a `PassRecord` after each pass.
    on_iteration : called with an `Iteration`, a line of the history.
    on_end : called without arguments when the fit is over, by an error or not.

    Examples
    --------
    >>> import numpy as np
    >>> from dlatent import PPCA, Callback
    >>> passes = []
    >>> rows = np.random.default_rng(0).normal(size=(50, 4))
    >>> model = PPCA(1).fit(rows, callbacks=[Callback(on_pass=passes.append)])
    >>> [record.name for record in passes]
    ['moments']
    """

    def __init__(
        self,
        *,
        on_plan: Callable[[Plan | LocalPlan], None] | None = None,
        on_task: Callable[[int, int], None] | None = None,
        on_pass: Callable[[PassRecord], None] | None = None,
        on_iteration: Callable[[Iteration], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        given = {
            "on_plan": on_plan, "on_task": on_task, "on_pass": on_pass, "on_iteration": on_iteration, "on_end": on_end,
        }  # fmt: skip
        for name, function in given.items():
            if function is not None:
                setattr(self, name, function)

    def on_plan(self, plan: Plan | LocalPlan) -> None:
        """The fit has a plan."""

    def on_task(self, done: int, total: int) -> None:
        """A task of a pass has ended."""

    def on_pass(self, record: PassRecord) -> None:
        """A pass has ended."""

    def on_iteration(self, line: Iteration) -> None:
        """There is a new log-likelihood."""

    def on_end(self) -> None:
        """The fit is over."""

    def __enter__(self) -> Self:
        _active.set((*_active.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _active.set(tuple(one for one in _active.get() if one is not self))


_active: ContextVar[tuple[Callback, ...]] = ContextVar("active callbacks", default=())


class ProgressBar(Callback):
    """Shows a bar for each pass of a fit, with the iteration and its log-likelihood, on a terminal or in a notebook.

    Examples
    --------
    >>> from dlatent import PPCA, ProgressBar
    >>> with ProgressBar():
    ...     model = PPCA(2).fit(rows)  # doctest: +SKIP
    """

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None

    def on_plan(self, plan: Plan | LocalPlan) -> None:
        """Show the bar."""
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[note]}"))
        self._bar, self._passes, self._expected = Progress(*columns, transient=True), 0, plan.passes
        self._shown = self._bar.add_task("pass 1", total=None, note="")
        self._bar.start()

    def on_task(self, done: int, total: int) -> None:
        """Move the bar."""
        text = f"pass {self._passes + 1} of about {max(self._expected, self._passes + 1)}"
        self._bar.update(self._shown, description=text, completed=done, total=total)

    def on_pass(self, record: PassRecord) -> None:
        """Begin the next bar."""
        self._passes += 1

    def on_iteration(self, line: Iteration) -> None:
        """Tell the log-likelihood."""
        note = f"iteration {line.iteration}, log-likelihood {line.log_likelihood:.10g}"
        self._bar.update(self._shown, note=note)

    def on_end(self) -> None:
        """Take the bar away."""
        self._bar.stop()


class Listeners:
    """The callbacks of one fit: those that it was given, and those of the `with` blocks around it."""

    def __init__(self, given: Sequence[Callback]) -> None:
        self._all = (*_active.get(), *given)

    @contextmanager
    def told(self, plan: Plan | LocalPlan) -> Iterator[None]:
        """Tell of the plan now, and of the end when it comes."""
        for one in self._all:
            one.on_plan(plan)
        try:
            yield
        finally:
            for one in self._all:
                one.on_end()

    @property
    def on_task(self) -> Callable[[int, int], None] | None:
        """Tells of tasks, or None where nobody listens: on a cluster each costs the scheduler a message."""
        hearing = [one for one in self._all if getattr(one.on_task, "__func__", None) is not Callback.on_task]

        def tell(done: int, total: int) -> None:
            for one in hearing:
                one.on_task(done, total)

        return tell if hearing else None

    def on_pass(self, record: PassRecord) -> None:
        """Tell of a pass."""
        for one in self._all:
            one.on_pass(record)

    def on_iteration(self, line: Iteration) -> None:
        """Tell of an iteration."""
        for one in self._all:
            one.on_iteration(line)
