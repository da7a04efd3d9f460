"""One guard for each door: whatever a library raises over an input leaves as an error of dlatent that names it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TypeVar

from dlatent.errors import DataError, DlatentError, cause

Item = TypeVar("Item")


@contextlib.contextmanager
def guarded(place: str, kind: type[DataError] = DataError) -> Iterator[None]:
    """A context whose exceptions are DlatentErrors: others become `kind`, with the exception as the cause.

    Damaged inputs make the libraries that read them raise nearly anything, so that no list of types is complete.
    """
    try:
        yield
    except (DlatentError, Warning):
        raise
    except MemoryError as error:
        raise kind(f"{place} asks for more memory than there is ({error}); it is damaged, or cut it up") from cause(
            error
        )
    except OSError as error:
        if error.errno is not None:
            raise kind(f"{place}: {error}") from cause(error)
        raise kind(
            f"{place} cannot be read: {error}; it is damaged or cut short, fetch it or write it again"
        ) from cause(error)
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        raise kind(
            f"{place} cannot be read ({type(error).__name__}: {text}); it is damaged or of an unknown form, fetch "
            "it or write it again"
        ) from cause(error)


def guarded_each(items: Iterable[Item], place: str, kind: type[DataError] = DataError) -> Iterator[Item]:
    """The items, where only getting the next one is guarded and not what is done with it."""
    iterator = iter(items)
    while True:
        with guarded(place, kind):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item
