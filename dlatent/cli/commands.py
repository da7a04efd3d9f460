"""All commands in one parser."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from dlatent.cli import choose, doctor, fit, inspect, plan, plot, rows, stores
from dlatent.cli.arguments import Parser, WholeParser
from dlatent.cli.status import EXPLAINED


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of all commands; each sets `run`, the function that carries it out.

    Options that are made of a function of the library, which takes a second to import, are those of the commands among
    the words; of all commands without words.
    """
    made = (WholeParser if words is None else Parser)(
        prog="dlatent",
        description="Probabilistic latent-variable models for data larger than memory.",
        epilog=EXPLAINED,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--version", action=_Version, help="show the version and stop")
    made.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = made.add_subparsers(metavar="COMMAND", required=True)
    for command in stores.COMMANDS:
        own = commands.add_parser(command.name, help=command.help)
        if words is None or command.name in words:
            command.fill(own)
    for module in (plan, fit, choose, rows, plot, inspect, doctor):
        module.register(commands)
    return made


class _Version(argparse.Action):
    """Shows the version, which is looked up only then."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, dest, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from dlatent import __version__

        print(f"dlatent {__version__}")
        parser.exit()
