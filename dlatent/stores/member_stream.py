"""One array inside a zip archive, read from its beginning piece by piece, whether it is compressed or not."""

from __future__ import annotations

import math
import zipfile
import zlib
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.guard import guarded
from dlatent.stores.limits import DEFAULT, Limits


class MemberStream:
    """The array `key` of an npz archive: `shape`, `dtype`, `fortran_order`, and its elements in storage order."""

    def __init__(self, archive: zipfile.ZipFile, key: str, description: str, limits: Limits = DEFAULT) -> None:
        self._key = key
        self._description = description
        with guarded(f"{description}: {key!r}"):
            member = archive.getinfo(f"{key}.npy" if f"{key}.npy" in archive.namelist() else key)
            self._stream = archive.open(member)
            version = np.lib.format.read_magic(self._stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            self.shape, self.fortran_order, self.dtype = read(self._stream)
            announced = math.prod(self.shape) * self.dtype.itemsize
            nothing = not self.dtype.itemsize and math.prod(self.shape) > member.file_size
            if min(self.shape, default=0) < 0 or nothing or announced > member.file_size:
                raise DataError(
                    f"{description}: {key!r} announces the shape {self.shape} of {self.dtype}, more than it has bytes; "
                    "the file is damaged"
                )
            limits.check_size(member.file_size, member.compress_size, f"{description}: {key!r}")
        if self.dtype.hasobject:
            raise DataError(
                f"{description}: {key!r} holds pickled Python objects, which are never loaded; save it as numbers or "
                "as fixed-width text (array.astype(str))"
            )

    def read(self, count: int) -> npt.NDArray[Any]:
        """The next `count` elements."""
        wanted = count * self.dtype.itemsize
        parts: list[bytes] = []
        try:
            while wanted and (piece := self._stream.read(wanted)):
                parts.append(piece)
                wanted -= len(piece)
        except _DAMAGED as error:
            raise DataError(f"{self._description}: {self._key!r} is damaged ({error}); fetch the file again") from error
        if wanted:
            raise DataError(f"{self._description}: {self._key!r} ends early; the file is cut short")
        return np.frombuffer(b"".join(parts), dtype=self.dtype) if count else np.empty(0, dtype=self.dtype)

    def __enter__(self) -> MemberStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()


_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError)
