"""Numbers in text, strictly: plain ASCII decimals, and none that would be stored as another number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError

EXACT = 2**53
"""Every integer up to here is a float64."""

_REAL = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NON_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.ASCII | re.IGNORECASE)


def real(text: str) -> float:
    """A number as float64: decimals, nan and inf.  Decimal fractions are rounded to the nearest float64, integers not.

    Errors: ValueError for what Python alone reads as a number (1_0, digits of other scripts), for numbers beyond
    float64, and for integers that float64 cannot hold exactly.
    """
    if not _REAL.fullmatch(text):
        if _NON_FINITE.fullmatch(text):
            return float(text)
        raise ValueError(f"{shown(text)} is no number")
    number = float(text)
    if not np.isfinite(number):
        raise ValueError(f"{shown(text)} is beyond float64")
    if abs(number) >= EXACT and _INTEGER.fullmatch(text) and not int(text) == number:
        raise ValueError(
            f"{shown(text)} is an integer that float64 cannot hold exactly; write it with a decimal point to have it "
            "rounded"
        )
    return number


def is_real(text: str) -> bool:
    """Whether a text is a number; of any size."""
    return bool(_REAL.fullmatch(text) or _NON_FINITE.fullmatch(text))


def shown(text: str) -> str:
    """A token as it is shown in messages."""
    return repr(text if len(text) <= 60 else f"{text[:60]}…")


def numbers_of(texts: Iterable[str]) -> npt.NDArray[Any] | None:
    """Texts as int64 where all are whole numbers, as float64 where all are numbers, else None; empty ones are NaN.

    Also None where a number would change, so that it stays text.
    """
    tokens = list(texts)
    if all(_INTEGER.fullmatch(text) for text in tokens):
        integers = [int(text) if len(text) < 20 else EXACT**2 for text in tokens]
        return np.array(integers, dtype=np.int64) if all(-(2**63) <= number < 2**63 for number in integers) else None
    try:
        numbers = np.array([real(text) if text else np.nan for text in tokens])
    except ValueError:
        return None
    fits = (np.abs(numbers) <= EXACT) & (numbers == np.floor(numbers))
    return numbers.astype(np.int64) if fits.all() else numbers


def inexact(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which integers float64 cannot hold exactly; none of other numbers."""
    if values.dtype.kind not in "iu":
        return np.zeros(values.shape, dtype=bool)
    limit = 2.0**63 if values.dtype.kind == "i" else 2.0**64
    rounded = values.astype(np.float64)
    inside = rounded < limit  # the largest integers are rounded up to the limit, which would not come back
    return np.asarray(~inside | (np.where(inside, rounded, 0).astype(values.dtype) != values))


INEXACT = "the integer {value} is beyond 2⁵³, where float64 is not exact; store it as a real number to have it rounded"
"""Message for an integer that would change."""


def as_float64(values: npt.NDArray[Any], place: Callable[[int], str], refusal: str) -> npt.NDArray[np.float64]:
    """Numbers and texts of numbers (m,) as float64; what is missing becomes NaN.

    Errors: DataError naming the `place` of the first that would change, or that is no number: of it `refusal` is said,
    in which `{value!r}` is filled in.
    """
    if values.dtype.kind in "biuf":
        wrong = np.flatnonzero(inexact(values))
        if len(wrong):
            raise DataError(f"{place(int(wrong[0]))}: {INEXACT.format(value=values[wrong[0]])}")
        return values.astype(np.float64)
    numbers = np.full(len(values), np.nan)
    for at, value in enumerate((values.astype(str) if values.dtype.kind in "mM" else values).tolist()):
        text = str(value).strip()
        try:
            if value is not None:
                numbers[at] = real(text) if isinstance(value, str) or type(value) is int else float(value)
        except (TypeError, ValueError, OverflowError) as error:
            why = f": {error}" if is_real(text) else refusal.format(value=str(value))
            raise DataError(f"{place(at)}{why}") from None
    return numbers
