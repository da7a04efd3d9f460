"""How results look on the terminal, and as JSON."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dlatent.errors import masked

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe."""


def console(*, errors: bool = False) -> Console:
    """Standard output, or standard error for progress and messages."""
    from rich.console import Console

    made = Console(stderr=errors, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = PIPE_WIDTH
    return made


def facts(title: str, values: Mapping[str, object]) -> None:
    """Print names and values, one pair a line; what is None is left out."""
    shown = {name: value for name, value in values.items() if value is not None}
    width = max(map(len, shown), default=0)
    out = console()
    out.print(masked(title), style="bold")
    for name, value in shown.items():
        out.print(masked(f"  {name:<{width}}  {value}"), soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[str] = ()) -> None:
    """Print a table; columns are numbers, to the right, except those in `left`."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        made.add_column(name, justify="left" if name in left else "right", overflow="fold")
    for row in rows:
        made.add_row(*map(masked, row))
    console().print(made)


def model(title: str, found: Mapping[str, Any], words: Mapping[str, str], *, json: bool) -> None:
    """A fitted model: its facts as JSON, or in words, with a table for each list of them."""
    if json:
        as_json(found)
    else:
        facts(title, words)
        for rows in found.values():
            if isinstance(rows, list) and rows and isinstance(rows[0], Mapping):
                left = [name for name, value in rows[0].items() if isinstance(value, str | list)]
                table(list(rows[0]), [[_cell(name, value) for name, value in row.items()] for row in rows], left=left)
    for text in found.get("warnings", ()):
        say(f"warning: {text}")


def _cell(name: str, value: Any) -> str:
    """A value of a table."""
    if name == "share":
        return f"{value:.2%}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return ", ".join(f"{'−' if one['loading'] < 0 else '+'}{one['feature']}" for one in value)
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
