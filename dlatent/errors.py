"""The exceptions and warnings of the library, whose texts say where and what to do; and what an interrupt ends."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import currentframe

MASK = "***"
# The second way is that of a password with a / or a quote in it, which should have been encoded; it is no port.
_USER = re.compile(r"(?<=://)(?:[^/\s'\"]*|[^/\s:]*:(?!\d+(?:/|\s|$))\S*)@")
_BARE_USER = re.compile(r"(?<![^\s/'\"(\[])[^\s/:@'\"]+:[^\s/@'\"]+@")
_BARE_QUERY = re.compile(r"(?<=[^\s?])\?[\w.%~-]+=[^\s'\"]*?(?=[:;,.)\]}>'\"]*(?:\s|$))")
_QUERY = re.compile(r"(://[^\s?]*)\?\S*?(?=[:;,.)\]}>'\"]*(?:\s|$))")
_ends: list[Callable[[], None]] = []


def masked(text: str) -> str:
    """A text without the credentials of the URLs in it: users with their passwords, and all that follows a `?`."""
    return _QUERY.sub(rf"\1?{MASK}", _USER.sub(f"{MASK}@", text)) if "://" in text else text


def masked_error(text: str) -> str:
    """The text of an error without credentials, those of URLs whose scheme a file system has cut off, too."""
    return _BARE_QUERY.sub(f"?{MASK}", _BARE_USER.sub(f"{MASK}@", masked(text)))


def cause(error: BaseException) -> BaseException | None:
    """An exception as the cause of another; None where its text, or that of what led to it, holds credentials of a URL,
    because Python shows causes as they are."""
    current: BaseException | None = error
    while current is not None:
        text = str(current)
        if masked_error(text) != text:
            return None
        current = current.__cause__ or current.__context__
    return error


class DlatentError(Exception):
    """Base class of everything that dlatent raises on purpose; credentials of URLs are masked in its text."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(masked_error(arg) if isinstance(arg, str) else arg for arg in args))


class DataError(DlatentError, ValueError):
    """The data, labels or a store cannot be used as given; the text names the place and how to fix it.

    `column` is the number of the feature that the text names, where it names one, and `view` the name of the view of
    several to which it belongs.
    """

    def __init__(self, *args: object, column: int | None = None, view: str | None = None) -> None:
        super().__init__(*args)
        self.column, self.view = column, view


class DataTypeError(DataError, TypeError):
    """Data hold what is no number, nor text of one."""


class PlanError(DlatentError, ValueError):
    """A fit cannot run in the memory at hand; raised before data moves, the text says how to fix it."""


class StoreError(DataError):
    """A path is no store, an unfinished store, or a store of a newer version."""


class EngineError(DlatentError, RuntimeError):
    """The cluster lost the computation in a way that no retry inside a pass can mend."""


class ConvergenceWarning(UserWarning):
    """The iterations stopped before the tolerance was met; the text says how far they came."""


class NoiseFloorWarning(UserWarning):
    """A noise variance ended at its floor: rounding, where the likelihood has no bound, or what was asked for."""


class DataWarning(UserWarning):
    """Parts of the data say nothing, as rows or features without an observed entry; the text says how many."""


class MisfitWarning(UserWarning):
    """The fitted model contradicts the data in something that its results depend on; the text says in what."""


class PrecisionWarning(UserWarning):
    """A result has lost digits to cancellation; the text says how many and what to do."""


def number_of(count: int, one: str, many: str = "") -> str:
    """A number of things in words, such as "1 entry is" and "3 entries are"; `many` is `one` and an s by default."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def outside() -> int:
    """The stack level, seen from the caller of this function, of the user's line that led into the library."""
    frame, level = currentframe(), 0
    while frame and frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("dlatent", "sklearn"):
        frame, level = frame.f_back, level + 1
    return level


def on_interrupt(end: Callable[[], None]) -> None:
    """Call a function whenever work is interrupted."""
    _ends.append(end)


def interrupt() -> None:
    """End what waits in other threads."""
    for end in _ends:
        end()
