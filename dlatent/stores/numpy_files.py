"""NumPy's files: arrays (.npy), which are mapped, and archives of them (.npz), whose arrays are read from their
beginning, piece by piece or whole, whether they are compressed or not.  Nothing is unpickled."""

from __future__ import annotations

import contextlib
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.byte_source import file_name, path_or_stream
from dlatent.stores.guard import guarded


def mapped_array(path: Path) -> npt.NDArray[Any]:
    """The array of an npy file, mapped, so that a header which announces more than there is takes no memory."""
    try:
        found: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(
            f"{path} is no readable npy file of numbers or fixed-width text ({error}); save it with "
            "numpy.save(path, array)"
        ) from error
    if not isinstance(found, np.ndarray):
        raise DataError(f"{path} is an npz archive; rename it so that it ends in .npz")
    if not found.dtype.itemsize:  # so many as the header likes take no byte of the file, but of the memory
        raise DataError(f"{path} holds {found.shape} values of no length; it is damaged, save it again")
    return found


class Archive(contextlib.AbstractContextManager["Archive"]):
    """An npz archive; `keys` are the names of its arrays, `name` is its own in messages."""

    def __init__(self, location: str) -> None:
        self.name = file_name(location)
        try:
            self._zip = zipfile.ZipFile(path_or_stream(location))
        except zipfile.BadZipFile:
            raise DataError(
                f"{location} is no npz archive, or is cut short; fetch it again, or rename it if it is of another kind"
            ) from None
        self.keys = [member.removesuffix(".npy") for member in self._zip.namelist()]

    def first(self, *keys: str) -> str | None:
        """The first of the keys that the archive has."""
        return next((key for key in keys if key in self.keys), None)

    def stream(self, key: str) -> MemberStream:
        """The array of a key, to be read piece by piece. Errors: DataError where there is none."""
        if key not in self.keys:
            raise DataError(f"{self.name} has no key {key!r}; it has {', '.join(self.keys)}")
        return MemberStream(self._zip, key, self.name)

    def whole(self, key: str) -> npt.NDArray[Any]:
        """The array of a key. Errors: DataError where there is none."""
        with self.stream(key) as member:
            values = member.read(math.prod(member.shape))
            return values.reshape(member.shape, order="F" if member.fortran_order else "C")

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class MemberStream(contextlib.AbstractContextManager["MemberStream"]):
    """The array `key` of an archive: `shape`, `dtype`, `fortran_order`, and its elements in storage order."""

    def __init__(self, archive: zipfile.ZipFile, key: str, description: str) -> None:
        self._place = f"{description}: {key!r}"
        with guarded(self._place):
            member = archive.getinfo(f"{key}.npy" if f"{key}.npy" in archive.namelist() else key)
            self._stream = archive.open(member)
            version = np.lib.format.read_magic(self._stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            self.shape, self.fortran_order, self.dtype = read(self._stream)
            announced = math.prod(self.shape) * self.dtype.itemsize
            nothing = not self.dtype.itemsize and math.prod(self.shape) > member.file_size
            if min(self.shape, default=0) < 0 or nothing or announced > member.file_size:
                raise DataError(
                    f"{self._place} announces the shape {self.shape} of {self.dtype}, more than it has bytes; the file "
                    "is damaged"
                )
        if self.dtype.hasobject:
            raise DataError(
                f"{self._place} holds pickled Python objects, which are never loaded; save it as numbers or as "
                "fixed-width text (array.astype(str))"
            )

    def read(self, count: int) -> npt.NDArray[Any]:
        """The next `count` elements."""
        wanted = count * self.dtype.itemsize
        parts: list[bytes] = []
        try:
            while wanted and (piece := self._stream.read(wanted)):
                parts.append(piece)
                wanted -= len(piece)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DataError(f"{self._place} is damaged ({error}); fetch the file again") from error
        if wanted:
            raise DataError(f"{self._place} ends early; the file is cut short")
        return np.frombuffer(b"".join(parts), dtype=self.dtype) if count else np.empty(0, dtype=self.dtype)

    def __exit__(self, *_: object) -> None:
        self._stream.close()
