"""The parser of all commands, options that several share, how values are read, and options made of a signature."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from inspect import Parameter, signature
from types import UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from dlatent import __version__
from dlatent.cli import EXPLAINED
from dlatent.errors import masked
from dlatent.models.docstrings import entries, first_sentence, parsed

UNITS = {"GiB": 2**30, "MiB": 2**20}


class Parser(argparse.ArgumentParser):
    """A parser, those of the commands too, that says what is wrong without the credentials of URLs; `fill` adds its
    options when it parses, as those of a command need its module, and those of a model its class."""

    fill: Callable[[Parser], None] | None = None

    def complete(self, *, deep: bool = False) -> None:
        """Add the options, with `deep` those of all commands below, too."""
        fill, self.fill = self.fill, None
        if fill is not None:
            fill(self)
        below = [action.choices for action in self._actions if isinstance(action, argparse._SubParsersAction)]
        for parsers in below if deep else ():
            for command in parsers.values():
                command.complete(deep=True)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        super().error(masked(message))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, with all options."""
        self.complete()
        return super().parse_known_args(args, namespace)


COMMANDS = {
    "ingest": ("stores", "bring files into a Zarr store"),
    "ingest-graph": ("stores", "bring a graph between samples into a Zarr store"),
    "rechunk": ("stores", "write a store anew in chunks of another size"),
    "reorder": ("stores", "put samples in a graph near each other"),
    "verify": ("stores", "read all of a store, to see whether it is whole"),
    "plan": ("fit", "what a fit would do and cost, before a byte of the matrix is read"),
    "fit": ("fit", "fit a model to a store and save it"),
    "choose": ("fit", "how many components: by held-out cells or rows, or by a criterion"),
    "transform": ("rows", "scores of all rows of a store by a saved model"),
    "impute": ("rows", "fill the missing entries of a store by a saved model"),
    "reconstruct": ("rows", "another view of the rows of a store by a saved model of several views"),
    "predict": ("rows", "labels of all rows of a store by a saved model, as CSV"),
    "plot": ("plot", "a picture of a saved model, or of scores"),
    "inspect": ("inspect", "what a store holds"),
    "doctor": ("doctor", "whether a cluster and stores are fit for work"),
}
"""The module of each command, which is imported where it is asked for, as that takes a second, and what it does."""


def parser() -> Parser:
    """The parser of all commands, which sets `run`, the function which carries a command out."""
    root = Parser(
        prog="dlatent",
        description="Probabilistic latent-variable models for data larger than memory.",
        epilog=EXPLAINED,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version = f"dlatent {__version__}"
    root.add_argument("--version", action="version", version=version, help="show the version and stop")
    root.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = root.add_subparsers(metavar="COMMAND", required=True)
    for name, (module, description) in COMMANDS.items():
        add_command(commands, name, description, partial(_fill, module, name))
    return root


def _fill(module: str, command: str, parser: Parser) -> None:
    import_module(f"{__package__}.{module}").fill(parser, command)


def add_command(commands: Any, name: str, description: str, fill: Callable[[Parser], None]) -> None:
    """Add a command, or a kind of one, which does what the description says, and whose options `fill` adds."""
    commands.add_parser(name, help=description, description=f"{description[0].upper()}{description[1:]}.").fill = fill


def byte_count(text: str) -> int:
    """Bytes from text such as 32MiB, 500 kB or 1048576."""
    from dask.utils import parse_bytes

    try:
        size = int(parse_bytes(text)) if text.strip()[:1].isdigit() else 0
    except ValueError:
        size = 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes; write for example 32MiB")
    return size


def integer(text: str, least: int = 0) -> int:
    """A whole number, by default from 0."""
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least {least}")
    return int(text)


positive = partial(integer, least=1)
"""A whole number of at least 1."""


def pair(text: str) -> tuple[int, int]:
    """Two whole numbers with a comma between."""
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no pair of whole numbers such as 0,1")
    return int(parts[0]), int(parts[1])


def flag(help: str) -> dict[str, Any]:
    """An option without a value."""
    return {"action": "store_true", "help": help}


Options = Mapping[str, Mapping[str, Any]]
"""Options by their names, as `add_argument` takes both; several names have spaces between."""
OPTIONS: Options = {
    "json": flag("write the result as JSON, and nothing else, to stdout"),
    "quiet": flag("show no progress"),
    "overwrite": flag("replace the store at the destination"),
    "missing-chunks": {
        "choices": ("raise", "fill"),
        "default": "raise",
        "help": "fill: of the stores that are read, chunks that are not there hold the fill value, because their "
        "writer leaves those out (default raise)",
    },
    "max-model-size": {
        "type": byte_count,
        "metavar": "SIZE",
        "help": "most memory for a model that is read (default 1GiB; more where a thousandth of it is stored)",
    },
    "unlabelled": {"metavar": "VALUE", "help": "label that stands for no label, beside NaN, nothing and -1"},
    "direction": {
        "choices": ("symmetrise", "common_neighbours", "undirected"),
        "help": "of edges with a direction: an edge either way joins both (symmetrise), those with a common neighbour "
        "are joined (common_neighbours); undirected: each edge is listed in one order or in both (default: in both)",
    },
}
"""Options with one meaning in all commands that have them."""


def add(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add some of `OPTIONS`."""
    add_options(parser, {f"--{name}": OPTIONS[name] for name in names})


def add_options(parser: argparse._ActionsContainer, options: Options) -> None:
    """Add options, or arguments, to a parser or a group of one."""
    for names, about in options.items():
        parser.add_argument(*names.split(), **about)


def add_parameters(
    parser: argparse.ArgumentParser,
    function: Callable[..., Any],
    *,
    named: Mapping[str, str] = {},
    texts: Mapping[str, str] = {},
    without: Sequence[str] = (),
    exclusive: Sequence[str] = (),
) -> None:
    """Arguments for the parameters of a function that have no default, and options for the others, by their types and
    by its docstring.

    What is not given on the command line is not in the namespace, so that the function's own default holds.

    Parameters
    ----------
    named : names of options that are not those of their parameters; the name of a choice makes a flag that chooses it.
    texts : help in the place of the docstring's.
    without : parameters that no command line can give.
    exclusive : parameters of which one at most is given.
    """
    hints = get_type_hints(function, localns={"Axes": Any})  # of matplotlib, which may lack
    about = entries(parsed(function.__doc__ or "").get("Parameters", ""))
    either = parser.add_mutually_exclusive_group() if exclusive else parser
    for name, parameter in signature(function).parameters.items():
        option = named.get(name, name.replace("_", "-"))
        if name == "progress":
            add(parser, "quiet")
        elif option in OPTIONS:
            add(parser, option)
        elif name not in without:
            described = first_sentence(" ".join(about[name].split("\n", 1)[1].split())).replace("%", "%%")
            help, value = texts.get(name, described), _value(hints[name], name, option, parameter.default)
            if parameter.default is Parameter.empty:
                several: Any = {"nargs": "+"} if value.pop("action", "") == "append" else {}
                parser.add_argument(name, metavar=option.upper().replace("-", "_"), help=help, **several)
                continue
            if value.get("action") == "append":
                help += "; again for more"
            if parameter.default is not None and "action" not in value and "by default" not in help:
                help += f" (default {_shown(parameter.default, name)})"
            group = either if name in exclusive else parser
            group.add_argument(f"--{option}", dest=name, default=argparse.SUPPRESS, help=help, **value)


def parameters_from(arguments: argparse.Namespace, function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function that the command line gives."""
    values = vars(arguments)
    return {name: values[name] for name in signature(function).parameters if name in values}


def _value(hint: Any, name: str, option: str, default: Any) -> dict[str, Any]:
    """How the values of a parameter are written and read."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    choices = {str(word): word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)}
    if option in choices:
        return {"action": "store_const", "const": option}
    if choices:
        return {"choices": list(choices.values()), "type": lambda text: choices.get(text, text)}
    if bool in kinds:
        return {"action": "store_true"}
    if any(get_origin(kind) is tuple for kind in kinds):
        return {"type": pair, "metavar": "A,B"}
    if any(get_origin(kind) is Sequence for kind in kinds):
        return {"action": "append", "metavar": "NAME"}
    if int in kinds and "bytes" in name:
        return {"type": byte_count, "metavar": "SIZE"}
    if int in kinds:
        return {"type": integer if default == 0 else positive, "metavar": "N"}
    return {"metavar": "NAME" if str in kinds else name.upper()}


def _shown(value: Any, name: str) -> str:
    """A default as people write it."""
    for unit, size in UNITS.items():
        if "bytes" in name and value % size == 0:
            return f"{value // size}{unit}"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
