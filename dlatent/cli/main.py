"""The command line `dlatent`: parse, call the library, show what it says, end with a status that scripts can use."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from dlatent.cli import (
    BAD_DATA,
    DOES_NOT_FIT,
    ENGINE_LOST,
    INTERRUPTED,
    OK,
    TERMINATED,
    UNEXPECTED,
    USAGE,
    UsageError,
)
from dlatent.errors import DataError, EngineError, PlanError, masked_error

if TYPE_CHECKING:
    import argparse
    from types import FrameType


def parser(*, complete: bool = True) -> argparse.ArgumentParser:
    """The parser of all commands, with all their options, as completions of the shell need them, or with those that it
    meets."""
    from dlatent.cli.arguments import parser  # imported late, as this takes most of the first half second

    root = parser()
    if complete:
        root.complete(deep=True)
    return root


def main(argv: Sequence[str | os.PathLike[str]] | None = None) -> int:
    """Run one command and return its exit status; `argv` are the words after `dlatent` (None: those of the process)."""
    tokens = sys.argv[1:] if argv is None else [os.fspath(word) for word in argv]
    if argv is None:
        _set(dict.fromkeys((signal.SIGINT, *ENDING), _end_at_once))
    try:
        arguments = parser(complete=False).parse_args(tokens)
    except SystemExit as end:  # argparse ends the process after --help and after a mistake
        return end.code if isinstance(end.code, int) else OK
    with _ended_in_order():
        return _guarded(arguments.run, arguments)


ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a process to end: of batch systems, and of a terminal that is lost."""


class Terminated(KeyboardInterrupt):
    """Somebody asks the process to end; it ends as after Ctrl-C, with another status."""


def _end_at_once(number: int, _: object) -> NoReturn:
    """End a process that has not begun anything; what is half imported would complain of an exception."""
    word, status = ("interrupted", INTERRUPTED) if number == signal.SIGINT else ("terminated", TERMINATED)
    with contextlib.suppress(OSError):
        os.write(2, f"dlatent: {word}\n".encode())
    os._exit(status)


Handlers = Mapping[signal.Signals, Any]


def _set(handlers: Handlers) -> Handlers:
    """Handle signals, and give the handlers before; not those that the caller lets a process ignore (`nohup`)."""
    if threading.current_thread() is not threading.main_thread():  # only there can signals be set
        return {}
    heard = (number for number in handlers if signal.getsignal(number) != signal.SIG_IGN)
    return {number: signal.signal(number, handlers[number]) for number in heard}


@contextlib.contextmanager
def handled(handlers: Handlers) -> Iterator[None]:
    """Handle signals for a while, as `_set` does."""
    before = _set(handlers)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


_asked = list[KeyboardInterrupt]()
"""The signals that the command under way got: what they raise an import in C, as NumPy's, makes another error of."""


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let a command end by all of these signals as by Ctrl-C, so that what it has begun to write is removed."""

    def end(number: int, _: object) -> NoReturn:
        if number == signal.SIGINT:
            _asked.append(KeyboardInterrupt())
        else:
            # `timeout` and batch systems tell the process and then its group: the second must not stop the clearing.
            for ending in ENDING:
                signal.signal(ending, signal.SIG_IGN)
            _asked.append(Terminated())
        raise _asked[-1]

    def end_again(frame: FrameType, *_: object) -> None:
        if frame.f_code is not swallowed.__code__:
            sys.setprofile(None)
            raise _asked[-1]

    def swallowed(error: sys.UnraisableHookArgs) -> None:
        # Python drops what is raised in a finaliser or in the callback of a weak reference: the next call raises it.
        sys.setprofile(end_again) if error.exc_value in _asked else before(error)

    _asked.clear()
    before, sys.unraisablehook = sys.unraisablehook, swallowed
    try:
        with handled(dict.fromkeys((signal.SIGINT, *ENDING), end)):
            yield
    finally:
        if sys.unraisablehook is swallowed:
            sys.unraisablehook = before


def _guarded(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Carry a command out; an error becomes one message and a status."""
    try:
        status = run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # whoever read the output has seen enough
        # What is still buffered goes nowhere, so that the interpreter does not complain about it at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except SystemExit:  # the same, met while rich was writing
        return OK
    except KeyboardInterrupt as error:
        return _refuse(error, arguments)
    except Exception as error:
        return _refuse(_asked[-1] if _asked else error, arguments)


ENDS: dict[type[BaseException], tuple[int, str]] = {
    Terminated: (TERMINATED, "terminated"),
    KeyboardInterrupt: (INTERRUPTED, "interrupted"),
    UsageError: (USAGE, "the command line is wrong: "),
    DataError: (BAD_DATA, ""),
    PlanError: (DOES_NOT_FIT, ""),
    EngineError: (ENGINE_LOST, ""),
    Exception: (UNEXPECTED, "unexpected {} (--debug shows where): "),
}


def _refuse(error: BaseException, arguments: argparse.Namespace) -> int:
    import logging
    import traceback

    if isinstance(error, KeyboardInterrupt):
        # What Zarr was reading ends with the process; asyncio and Python would complain of each of these reads.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        sys.unraisablehook = lambda _: None
    status, before = next(end for kind, end in ENDS.items() if isinstance(error, kind))
    said = f"dlatent: {before.format(type(error).__name__)}{error}\n"
    if arguments.debug:
        said = "".join(traceback.format_exception(error)) + said
    with contextlib.suppress(OSError):  # of a terminal that is lost
        print(masked_error(said), end="", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
