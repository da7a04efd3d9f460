"""Messages of a running fit: callbacks, and a progress bar."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from dlatent.engine.session import PassRecord, Session
from dlatent.errors import DataError
from dlatent.solvers.plan import Plan
from dlatent.solvers.solver import Iteration

if TYPE_CHECKING:
    from dlatent.solvers.lle.fit import LocalPlan


class Callback:
    """Called while a model is fitted.

    Give functions, or override the methods of the same names.  `fit(callbacks=[…])` uses it in one fit; as a context
    manager it is used in every fit of the block.

    Parameters
    ----------
    on_plan : callable, optional
        Called with what `plan` returns, before the first pass.
    on_task : callable, optional
        Called with the number of finished tasks of a pass and of all, perhaps from another thread.
    on_pass : callable, optional
        Called with a `PassRecord` after each pass.
    on_iteration : callable, optional
        Called with an `Iteration`, a line of the history.
    on_end : callable, optional
        Called without arguments when the fit is over, by an error or not.

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

    shows_progress: ClassVar[bool] = False
    """Whether no other bar is wanted beside it."""

    def __init__(
        self,
        *,
        on_plan: Callable[[Plan | LocalPlan], None] | None = None,
        on_task: Callable[[int, int], None] | None = None,
        on_pass: Callable[[PassRecord], None] | None = None,
        on_iteration: Callable[[Iteration], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        for name, function in zip(HEARD, (on_plan, on_task, on_pass, on_iteration, on_end), strict=True):
            if function is not None and not callable(function):
                raise DataError(f"{name} is {function!r}; give a function")
            if function is not None:
                setattr(self, name, function)

    def on_plan(self, plan: Plan | LocalPlan) -> None:
        """The fit has a plan.

        Parameters
        ----------
        plan : Plan or LocalPlan
            What `plan` returns.
        """

    def on_task(self, done: int, total: int) -> None:
        """A task of a pass has ended.

        Parameters
        ----------
        done : int
            Tasks that have ended.
        total : int
            All tasks of the pass.
        """

    def on_pass(self, record: PassRecord) -> None:
        """A pass has ended.

        Parameters
        ----------
        record : PassRecord
            What it cost.
        """

    def on_iteration(self, line: Iteration) -> None:
        """There is a new log-likelihood.

        Parameters
        ----------
        line : Iteration
            A line of the history.
        """

    def on_end(self) -> None:
        """The fit is over."""

    def __enter__(self) -> Self:
        _active.set((*_active.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _active.set(tuple(one for one in _active.get() if one is not self))


HEARD = ("on_plan", "on_task", "on_pass", "on_iteration", "on_end")
"""Methods of callbacks."""
_active: ContextVar[tuple[Callback, ...]] = ContextVar("active callbacks", default=())
_progress: ContextVar[bool | None] = ContextVar("whether progress is shown", default=None)

LOG = logging.getLogger("dlatent")
LONG_SECONDS = 1.0
"""A bar is shown by itself where the plan expects a longer fit."""
LONG_BYTES = 2**28
"""A bar is shown by itself where a pass goes through more."""


def show_progress(when: bool | Literal["auto"] = "auto") -> None:
    """Say when fits and other passes show a bar by themselves.

    Parameters
    ----------
    when : bool or "auto", default "auto"
        "auto" shows one for what takes long, on a terminal and, where ipywidgets is installed, in a notebook; True
        always, False never.  Bars of a `ProgressBar` are shown in any case.

    Raises
    ------
    DataError
        For anything else.

    Examples
    --------
    >>> import dlatent
    >>> dlatent.show_progress(False)
    >>> dlatent.show_progress("auto")
    """
    if when not in (True, False, "auto"):
        raise DataError(f"show_progress takes True, False or 'auto', not {when!r}")
    _progress.set(None if when == "auto" else bool(when))


def _default_bar(heard: Sequence[Callback], seconds: float, nbytes: int) -> ProgressBar | None:
    """The bar that is shown without being asked for, beside no other, nor one of scikit-learn."""
    wanted = _progress.get()
    if wanted is None:
        wanted = (seconds > LONG_SECONDS or nbytes > LONG_BYTES) and _interactive()
    return ProgressBar() if wanted and not any(one.shows_progress for one in heard) else None


def _interactive() -> bool:
    """Whether somebody looks on: a terminal, or a notebook that can show a bar."""
    return sys.stdout.isatty() or ("ipykernel" in sys.modules and find_spec("ipywidgets") is not None)


class ProgressBar(Callback):
    """Shows a bar for each pass of a fit, with the iteration and its log-likelihood, on a terminal or in a notebook.

    Examples
    --------
    >>> from dlatent import PPCA, ProgressBar
    >>> with ProgressBar():
    ...     model = PPCA(2).fit(rows)  # doctest: +SKIP
    """

    shows_progress = True

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None

    def on_plan(self, plan: Plan | LocalPlan) -> None:
        """Show the bar."""
        self.begin("pass", plan.passes)

    def begin(self, name: str, passes: int | None = None) -> None:
        """Show the bar of something that makes so many passes.

        Parameters
        ----------
        name : str
            What it is.
        passes : int, optional
            About how many; by default one, of what has no plan.
        """
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[note]}"))
        self._bar, self._passes, self._expected = Progress(*columns, transient=True), 0, passes
        self._name = name
        self._shown = self._bar.add_task(self._text(), total=None, note="")
        self._bar.start()

    def on_task(self, done: int, total: int) -> None:
        """Move the bar."""
        self._bar.update(self._shown, description=self._text(), completed=done, total=total)

    def _text(self) -> str:
        number = self._passes + 1
        return self._name if self._expected is None else f"{self._name} {number} of about {max(self._expected, number)}"

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


def require_callbacks(callbacks: Any) -> tuple[Callback, ...]:
    """Check `fit(callbacks=…)`. Errors: DataError for anything but a list of callbacks."""
    listed = tuple(callbacks) if isinstance(callbacks, Iterable) else (callbacks,)
    for number, one in enumerate(listed):
        if not isinstance(one, Callback):
            what = f"the class {one.__qualname__}" if isinstance(one, type) else repr(one)
            mend = f"{one.__qualname__}()" if isinstance(one, type) and issubclass(one, Callback) else None
            raise DataError(
                f"callbacks[{number}] is {what}; a callback is a dlatent.Callback, as in callbacks=["
                f"{mend or 'Callback(on_iteration=function)'}], which hears of {', '.join(HEARD)}"
            )
    if not isinstance(callbacks, Iterable):
        raise DataError("callbacks is a single callback; give a list of them, as in callbacks=[callback]")
    return listed


class Listeners:
    """The callbacks of one fit: those that it was given, and those of the `with` blocks around it."""

    def __init__(self, callbacks: Sequence[Callback], plan: Plan | LocalPlan) -> None:
        seconds, nbytes = (plan.seconds, 0) if isinstance(plan, Plan) else (0.0, plan.bytes_read)
        heard = (*_active.get(), *callbacks)
        bar = _default_bar(heard, seconds, nbytes)
        self._all, self._plan = heard if bar is None else (*heard, bar), plan

    def tell(self, name: str, *about: Any) -> None:
        """Call a method of all."""
        for one in self._all:
            getattr(one, name)(*about)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Tell of the plan now, and of the end when it comes."""
        LOG.info("plan of %d passes:\n%s", self._plan.passes, self._plan, extra={"plan": self._plan})
        self.tell("on_plan", self._plan)
        try:
            yield
        finally:
            self.tell("on_end")

    @property
    def on_task(self) -> Callable[[int, int], None] | None:
        """Tells of tasks, or None where nobody listens: on a cluster each costs the scheduler a message."""
        listen = any(getattr(one.on_task, "__func__", None) is not Callback.on_task for one in self._all)
        return partial(self.tell, "on_task") if listen else None

    def on_pass(self, record: PassRecord) -> None:
        """Tell of a pass."""
        log_pass(record)
        self.tell("on_pass", record)

    def on_iteration(self, line: Iteration) -> None:
        """Tell of an iteration."""
        LOG.debug("iteration %d: log-likelihood %.10g", line.iteration, line.log_likelihood, extra={"iteration": line})
        self.tell("on_iteration", line)


def log_pass(record: PassRecord) -> None:
    """Write what a pass cost into the log."""
    text = "pass %s: %.2f s, %d bytes read, %d of %d blocks from the cache"
    numbers = (record.name, record.seconds, record.bytes_read, record.cached, record.blocks)
    LOG.info(text, *numbers, extra={"pass_record": record})


@contextmanager
def shown(session: Session, name: str) -> Iterator[None]:
    """Show a bar for the passes of a session that are no fit, where one is wanted."""
    session.on_pass = log_pass
    asked = next((one for one in _active.get() if isinstance(one, ProgressBar)), None)
    bar = asked or _default_bar((), 0.0, session.source.nbytes)
    if bar is None:
        yield
        return
    bar.begin(name)
    session.on_progress = bar.on_task
    try:
        yield
    finally:
        bar.on_end()
