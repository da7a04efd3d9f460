"""The command line `dlatent`: parse, call the library, show what it says, end with a status that scripts can use."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TextIO

from dlatent.cli import (
    choose,
    demo,
    doctor,
    fit,
    ingest,
    ingest_graph,
    inspect,
    plan,
    plot,
    predict,
    rechunk,
    reorder,
    rows,
    verify,
)
from dlatent.cli.arguments import UsageError
from dlatent.cli.status import (
    BAD_DATA,
    DOES_NOT_FIT,
    ENGINE_LOST,
    EXPLAINED,
    INTERRUPTED,
    OK,
    TERMINATED,
    UNEXPECTED,
    USAGE,
)
from dlatent.errors import DataError, EngineError, PlanError, masked


def parser() -> argparse.ArgumentParser:
    """The parser of all commands; each sets `run`, the function that carries it out."""
    made = _Parser(
        prog="dlatent",
        description="Probabilistic latent-variable models for data larger than memory.",
        epilog=EXPLAINED,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action=_Version, help="show the version and stop")
    made.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = made.add_subparsers(metavar="COMMAND", required=True)
    working = (ingest, ingest_graph, rechunk, reorder, plan, fit, choose, rows, predict, plot)
    for command in (*working, inspect, verify, doctor, demo):
        command.register(commands)
    return made


def main(argv: Sequence[str | os.PathLike[str]] | None = None) -> int:
    """Run one command and return its exit status; `argv` are the words after `dlatent` (None: those of the process)."""
    words = None if argv is None else [os.fspath(word) for word in argv]
    try:
        arguments = parser().parse_args(words)
    except SystemExit as end:  # argparse ends the process after --help and after a mistake
        return end.code if isinstance(end.code, int) else OK
    with _ended_in_order():
        return _guarded(arguments.run, arguments)


class Terminated(KeyboardInterrupt):
    """Somebody asks the process to end (SIGTERM); it ends as after Ctrl-C, with another status."""


@contextlib.contextmanager
def _ended_in_order() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, so that what it has begun to write is removed."""
    if threading.current_thread() is not threading.main_thread():  # only there can signals be set
        yield
        return

    def end(*_: object) -> NoReturn:
        # `timeout` and batch systems tell the process and then its group: the second time must not stop the clearing.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


def _guarded(run: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """Carry a command out; an error becomes one message and a status."""
    try:
        status = run(arguments)
        sys.stdout.flush()
        return status
    except UsageError as error:
        return _refuse(error, USAGE, arguments, "the command line is wrong: ")
    except DataError as error:
        return _refuse(error, BAD_DATA, arguments)
    except PlanError as error:
        return _refuse(error, DOES_NOT_FIT, arguments)
    except EngineError as error:
        return _refuse(error, ENGINE_LOST, arguments)
    except KeyboardInterrupt as error:
        # What Zarr was reading ends with the process; asyncio and Python would complain of each of these reads.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        sys.unraisablehook = lambda _: None
        if isinstance(error, Terminated):
            return _refuse(error, TERMINATED, arguments, "terminated")
        return _refuse(error, INTERRUPTED, arguments, "interrupted")
    except BrokenPipeError:  # whoever read the output has seen enough
        _close_quietly(sys.stdout)
        return OK
    except SystemExit:  # the same, met while rich was writing
        return OK
    except Exception as error:
        return _refuse(error, UNEXPECTED, arguments, f"unexpected {type(error).__name__} (--debug shows where): ")


def _refuse(error: BaseException, status: int, arguments: argparse.Namespace, before: str = "") -> int:
    if arguments.debug:
        print(masked("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    print(masked(f"dlatent: {before}{error}"), file=sys.stderr)
    return status


def _close_quietly(stream: TextIO) -> None:
    """Send what is still buffered nowhere, so that the interpreter does not complain about it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class _Parser(argparse.ArgumentParser):
    """A parser, those of the commands too, that says what is wrong without the credentials of URLs."""

    def error(self, message: str) -> NoReturn:
        super().error(masked(message))


class _Version(argparse.Action):
    """Shows the version, which is looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from dlatent import __version__

        print(f"dlatent {__version__}")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
