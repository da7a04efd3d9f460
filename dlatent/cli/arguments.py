"""Options that several commands share, how their values are read, and options made of the signature of a function."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, cleandoc, signature
from types import UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from dlatent.errors import masked

UNITS = {"": 1, "B": 1} | {
    name: size
    for power, letter in enumerate("KMGT", 1)
    for name, size in ((f"{letter}B", 1000**power), (f"{letter}IB", 1024**power))
}


class Parser(argparse.ArgumentParser):
    """A parser, those of the commands too, that says what is wrong without the credentials of URLs.

    With `lazy` options that are added `later` come when it parses: those of a model need its class, which needs NumPy.
    """

    lazy = True
    _later: Callable[[], None] | None = None

    def later(self, add: Callable[[], None]) -> None:
        """Add options when they are needed."""
        if self.lazy:
            self._later = add
        else:
            add()

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end."""
        super().error(masked(message))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, with all options."""
        if self._later is not None:
            self._later()
            self._later = None
        return super().parse_known_args(args, namespace)


class WholeParser(Parser):
    """A parser that has all options at once, as completions of the shell need them."""

    lazy = False


def byte_count(text: str) -> int:
    """Bytes from text such as 32MiB, 500 kB or 1048576."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or float(found[1]) * unit < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of bytes; write for example 32MiB")
    return int(float(found[1]) * unit)


def positive(text: str) -> int:
    """An integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def _flag(help: str) -> dict[str, Any]:
    return {"action": "store_true", "help": help}


OPTIONS: dict[str, dict[str, Any]] = {
    "json": _flag("write the result as JSON, and nothing else, to stdout"),
    "quiet": _flag("show no progress"),
    "overwrite": _flag("replace the store at the destination"),
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
    for name in names:
        parser.add_argument(f"--{name}", **OPTIONS[name])


def add_parameters(
    parser: argparse.ArgumentParser,
    function: Callable[..., Any],
    *,
    named: Mapping[str, str],
    words: Mapping[str, str],
    without: Sequence[str],
    exclusive: Sequence[str],
) -> None:
    """Arguments and options for the parameters of a function, by their types and by its docstring.

    What is not given on the command line is not in the namespace, so that the function's own default holds.

    Parameters
    ----------
    named : names of options that are not those of their parameters; the name of a choice makes a flag that chooses it.
    words : help in the place of the docstring's.
    without : parameters that no command line can give.
    exclusive : parameters of which one at most is given.
    """
    hints, about = get_type_hints(function), described(function)
    either = parser.add_mutually_exclusive_group() if exclusive else parser
    for name, parameter in signature(function).parameters.items():
        option = named.get(name, name.replace("_", "-"))
        if name == "progress":
            add(parser, "quiet")
        elif option in OPTIONS:
            add(parser, option)
        elif name not in without:
            help, value = words.get(name, about[name]), _value(hints[name], name, option)
            if parameter.kind is Parameter.POSITIONAL_OR_KEYWORD:
                several: Any = {"nargs": "+"} if value.pop("action", "") == "append" else {}
                parser.add_argument(name, metavar=name.upper(), help=help, **several)
                continue
            if value.get("action") == "append":
                help += "; again for more"
            if parameter.default and "const" not in value and "by default" not in help:
                help += f" (default {_shown(parameter.default, name)})"
            group = either if name in exclusive else parser
            group.add_argument(f"--{option}", dest=name, default=argparse.SUPPRESS, help=help, **value)


def _value(hint: Any, name: str, option: str) -> dict[str, Any]:
    """How the values of a parameter are written and read."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    words = {str(word): word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)}
    if option in words:
        return {"action": "store_const", "const": option}
    if words:
        return {"choices": list(words.values()), "type": lambda text: words.get(text, text)}
    if bool in kinds:
        return {"action": "store_true"}
    if any(get_origin(kind) is Sequence for kind in kinds):
        return {"action": "append", "metavar": "NAME"}
    if int in kinds:
        return {"type": byte_count, "metavar": "SIZE"} if "bytes" in name else {"type": positive, "metavar": "N"}
    return {"metavar": "NAME" if str in kinds else name.upper()}


def _shown(value: Any, name: str) -> str:
    """A default as people write it."""
    for unit in ("GiB", "MiB"):
        if "bytes" in name and value % UNITS[unit.upper()] == 0:
            return f"{value // UNITS[unit.upper()]}{unit}"
    return str(value)


def described(function: Callable[..., Any]) -> dict[str, str]:
    """The first sentence about each parameter in a docstring of numpydoc, as help."""
    text = cleandoc(function.__doc__ or "").partition("Parameters\n----------\n")[2].partition("\n\n")[0]
    found = re.findall(r"^(\w+) : .*\n((?: {4}.*\n?)+)", text, flags=re.MULTILINE)
    return {name: _help(" ".join(said.split())) for name, said in found}


def _help(text: str) -> str:
    sentence = re.split(r"\. +(?=[A-Z])", text)[0].rstrip(".").replace("`", "").replace("%", "%%")
    return sentence if sentence[1:2].isupper() or sentence[1:2] in (",", "-") else sentence[0].lower() + sentence[1:]
