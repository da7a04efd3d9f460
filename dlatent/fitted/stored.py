"""Values that are kept: a dataclass says of each field what it is, and `save`, `load` and `result_` follow from that.

A field is an array over named dimensions (`stored`), a JSON value (`attribute`), a table with a line for each of
several small values (`table`), which is kept as one JSON value and is arrays in Datasets, or another such dataclass
(`part`).  Fields without a description are not kept.  A part
may have a codec of its own: `variables`, `json_values` and the class method `from_saved`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from dlatent.errors import StoreError
from dlatent.stores.schema import Variable

T = TypeVar("T")
Values = dict[str, Any]
"""Variables of a store that are not yet taken, or JSON values."""


@dataclass(frozen=True)
class About:
    """Description of a field.

    Parameters
    ----------
    dims : the dimensions of an array; of a table the one that its lines lie along.
    name : in a store; by default that of the field.
    row : the dataclass of a line, of a table.
    saved_only : whether a saved model has it, and a Dataset of results has not.
    """

    dims: tuple[str, ...] = ()
    name: str = ""
    row: Any = None
    saved_only: bool = False


def _described(about: About, default: Any) -> Any:
    return field(metadata={"about": about}, default=default)


def stored(*dims: str, name: str = "", default: Any = MISSING) -> Any:
    """An array over these dimensions."""
    return _described(About(dims, name), default)


def attribute(default: Any = MISSING) -> Any:
    """A value that JSON holds."""
    return _described(About(), default)


def part(default: Any = MISSING, *, saved_only: bool = False) -> Any:
    """A value of several fields; with `saved_only` one that a Dataset of results has not."""
    return _described(About(saved_only=saved_only), default)


def table(row: type, dim: str, default: Any = MISSING) -> Any:
    """Lines, each a value of the dataclass `row`, whose columns are variables over `dim` of a Dataset of results."""
    return _described(About((dim,), row=row), default)


def kept(value: Any) -> Iterator[tuple[str, About, Any]]:
    """The fields of a value, or of a class, that are kept: their names, what they are, and what they hold."""
    for one in fields(value):
        if "about" in one.metadata:
            yield one.name, one.metadata["about"], getattr(value, one.name, None)


def columns(about: About) -> list[str]:
    """The columns of a table that are kept; a column of the name of the dimension numbers the lines."""
    return [one.name for one in fields(about.row) if one.name != about.dims[0]]


def variables(value: Any, *, saved: bool = True) -> dict[str, Variable]:
    """Arrays of a value by their names in a store: those of a saved model, or else of a Dataset of results."""
    arrays: dict[str, Variable] = {}
    for name, about, content in kept(value):
        if about.saved_only and not saved:
            continue
        if hasattr(content, "variables"):
            arrays |= content.variables()
        elif is_dataclass(content):
            arrays |= variables(content, saved=saved)
        elif about.row is not None:
            for column in columns(about) if content and not saved else ():
                cells = np.array([getattr(line, column) for line in content])
                arrays[f"{about.dims[0]}_{column}"] = Variable(about.dims, cells)
        elif about.dims and content is not None:
            values = np.asarray(content)
            # Labels of several kinds are kept as texts.
            arrays[about.name or name] = Variable(about.dims, values.astype(str) if values.dtype == object else values)
    return arrays


def json_values(value: Any) -> dict[str, Any]:
    """All JSON values of a value by the names of their fields, and those of its parts."""
    values: dict[str, Any] = {"type": type(value).__name__}
    for name, about, content in kept(value):
        if hasattr(content, "json_values"):
            values[name] = {"type": type(content).__name__} | content.json_values()
        elif is_dataclass(content):
            values[name] = json_values(content)
        elif about.row is not None:
            values[name] = {column: [getattr(line, column) for line in content] for column in columns(about)}
        elif not about.dims:
            values[name] = content
    return values


def from_saved(cls: type[T], values: Values, saved: Values) -> T:
    """The value of a class that was kept as these variables, which it takes out, and JSON values.

    Errors: StoreError that names what is missing or cannot be.
    """
    hints, arguments = get_type_hints(cls), dict[str, Any]()
    for name, about, _ in kept(cls):
        kinds = _alternatives(hints[name])
        parts = {each.__name__: each for kind in kinds if is_dataclass(kind) for each in (kind, *_subclasses(kind))}
        if about.row is not None:
            arguments[name] = _lines(saved[name], about)
        elif about.dims:
            variable = about.name or name
            if variable not in values and NoneType not in kinds:
                raise StoreError(f"{variable!r} is missing")
            arguments[name] = values.pop(variable, None)
        elif parts and saved[name] is not None:
            kind: Any = parts[saved[name]["type"]]
            codec = getattr(kind, "from_saved", None)
            arguments[name] = codec(values, saved[name]) if codec else from_saved(kind, values, saved[name])
        else:
            arguments[name] = _attribute(name, saved[name], kinds)
    return cls(**arguments)


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _subclasses(kind: Any) -> Iterator[Any]:
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def _lines(saved: Values, about: About) -> tuple[Any, ...]:
    names, hints = columns(about), get_type_hints(about.row)
    numbered = len(names) < len(fields(about.row))
    lines = zip(*([_attribute(name, cell, (hints[name],)) for cell in saved[name]] for name in names), strict=True)
    return tuple(about.row(*((at,) if numbered else ()), *line) for at, line in enumerate(lines, 1))


def _attribute(name: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    """A JSON value of a type that the field may have, lists as tuples."""
    plain = tuple(get_origin(kind) or kind for kind in kinds)
    if Any not in plain:
        number = isinstance(value, int) and not isinstance(value, bool) and float in plain
        wanted = tuple(list if kind is tuple else kind for kind in plain)
        if not number and (type(value) not in wanted or (int in plain and type(value) is int and value < 0)):
            raise StoreError(f"the attribute {name!r} is {value!r}, which no fit leaves")
    return _tuples(value)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
