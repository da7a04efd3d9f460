"""Files: their bytes, compressed or not, cut at line ends; what their headers may announce; and those of NumPy.

Arrays (.npy) are mapped; those of archives (.npz) are read from their beginning, piece by piece or whole, whether they
are compressed or not.  Nothing is unpickled.  What a header announces is compared with the size of the file: a damaged
number must not fill the memory or the disk.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import math
import os
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt

from dlatent.errors import MASK, DataError, cause, masked
from dlatent.stores.location import filesystem_at, guarded, local_path

COMPRESSIONS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

LONGEST_LINE = 1 << 28
"""Bytes after which a line of text is none: a file that was cut off by a crash may go on with zeros."""

FREE_BYTES = 256 << 20
"""Bytes that are believed without a look at the size of the file that they come from."""


@dataclass(frozen=True)
class Limits:
    """The largest number of features, and of announced bytes for each byte of the file."""

    features: int = 10_000_000
    expansion: int = 200

    def __post_init__(self) -> None:
        for name, value in (("max_features", self.features), ("max_expansion", self.expansion)):
            if not value >= 1:
                raise DataError(f"{name} is {value}; expected at least 1")

    def check_features(self, features: int, place: str) -> None:
        """Refuse a matrix that is wider than the limit."""
        if features > self.features:
            raise DataError(
                f"{place} has a feature number {features:,}, but at most {self.features:,} features are expected, "
                f"because each costs memory and a name; raise the limit with max_features={features} (--max-features), "
                "or number them by those that occur"
            )

    def check_size(self, unpacked: int, size: int | None, place: str) -> None:
        """Refuse what is larger than a file of `size` bytes (None: unknown) may unpack to."""
        if size is None or unpacked <= max(FREE_BYTES, self.expansion * size):
            return
        least = math.ceil(unpacked / max(size, 1))
        raise DataError(
            f"{place} unpacks to {unpacked:,} bytes or more, over {self.expansion} times the {size:,} bytes of the "
            f"file; if it is no damage, raise the limit to {least} or more with max_expansion (--max-expansion)"
        )


DEFAULT = Limits()
"""The limits where the caller says nothing."""


class ByteSource:
    """One file, read as a stream; `position` is the number of bytes of the (compressed) file read so far."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.name = file_name(location)
        self.position = 0
        self.size = file_size(location)
        if self.size == 0:
            raise DataError(f"{location} is empty: there are no rows to ingest")

    @contextlib.contextmanager
    def open(self, start: int = 0) -> Iterator[IO[bytes]]:
        """The decompressed bytes from `start` on; damage to a compressed file is a DataError."""
        opener = COMPRESSIONS.get(Path(self.name).suffix.lower())
        with guarded(self.location), cast(Any, open_raw(self.location)) as raw:
            self._raw = raw
            # Lines of remote files have no limit of their own.
            with io.BufferedReader(raw) if opener is None else opener(raw, "rb") as stream:
                stream.seek(start)
                yield stream

    def line_chunks(self, chunk_bytes: int, start: int = 0, line: int = 1) -> Iterator[tuple[int, bytes]]:
        """Whole lines, about `chunk_bytes` bytes at a time, and the number of the first of them.

        Parameters: `start`, where in the decompressed bytes the first line begins, and `line`, its number.
        The last line gets its line end where the file has none.
        """
        rest = list[bytes]()
        with self.open(start) as stream:
            while piece := stream.read(chunk_bytes):
                self.mark()
                cut = piece.rfind(b"\n") + 1
                if cut:
                    text = b"".join([*rest, piece[:cut]])
                    yield line, text
                    line, rest = line + text.count(b"\n"), []
                rest += [piece[cut:]] if cut < len(piece) else []
                if sum(map(len, rest)) > LONGEST_LINE:
                    raise DataError(f"{self.location} line {line} does not end; the file is damaged or no text")
            if rest:
                yield line, b"".join(rest) + b"\n"

    def mark(self) -> None:
        """Take note of how far the file was read."""
        with contextlib.suppress(OSError, ValueError):
            self.position = int(self._raw.tell())


def text_lines(location: str) -> list[str]:
    """The lines of a small text file; they end at line ends only, not at the other breaks that `splitlines` knows."""
    with io.TextIOWrapper(open_raw(location), encoding="utf-8") as stream:
        lines = stream.read().split("\n")
    return lines if lines[-1] else lines[:-1]


def text_chunk_bytes(batch_bytes: int) -> int:
    """Bytes of text to parse at once: the parsed form takes several times the room of the text."""
    return min(max(batch_bytes // 8, 1 << 16), 1 << 22)


def open_raw(location: str) -> IO[bytes]:
    """The file's bytes as they are; a missing file is a DataError."""
    path = local_path(location)
    try:
        if path is not None:
            return path.open("rb")
        filesystem, inside = filesystem_at(location)
        return cast(IO[bytes], filesystem.open(inside, "rb"))
    except FileNotFoundError:
        raise DataError(f"{location} does not exist; check the path") from None
    except (IsADirectoryError, PermissionError) as error:
        raise DataError(f"{location} cannot be read: {error}") from cause(error)


def path_or_stream(location: str) -> str | IO[bytes]:
    """A local path as text, or the open stream of a URL, for libraries that take either."""
    path = local_path(location)
    require_file(path, location)
    return str(path) if path is not None else open_raw(location)


def require_file(path: Path | None, location: str) -> None:
    """Refuse what is there and can be read once only, or without an end. Errors: DataError."""
    if path is not None and path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(
            f"{location} is a pipe, a socket or a device; write what comes from it to a file, and give that"
        )


def copied(location: str, path: Path) -> Path:
    """Copy a file to a local path, for libraries that read no stream."""
    with open_raw(location) as source, path.open("wb") as copy:
        shutil.copyfileobj(source, copy)
    return path


def file_size(location: str) -> int:
    """Size in bytes; a missing file is a DataError."""
    path = local_path(location)
    if path is not None and path.is_dir():
        raise DataError(f"{location} is a directory; name the file in it, or give format= for a directory store")
    require_file(path, location)
    with guarded(location), open_raw(location) as raw:
        return int(raw.seek(0, os.SEEK_END))


def directory_size(location: str) -> int | None:
    """Bytes of all files below a local directory; None for a remote one, and where it cannot be listed."""
    path = local_path(location)
    with contextlib.suppress(OSError):  # the store is whole, whatever it weighs
        return None if path is None else sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    return None


def file_name(location: str) -> str:
    """Last part of a path or URL, without what follows a `?` there."""
    return masked(location).removesuffix(f"?{MASK}").rstrip("/").replace("\\", "/").rpartition("/")[2]


def plain_suffix(location: str) -> str:
    """The extension without a compression's: `.mtx` for `x.mtx.gz`."""
    name = file_name(location).lower()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return Path(name).suffix


def mapped_array(path: Path) -> npt.NDArray[Any]:
    """The array of an npy file, mapped, so that a header which announces more than there is takes no memory."""
    try:
        array: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise DataError(
            f"{path} is no readable npy file of numbers or fixed-width text ({error}); save it with "
            "numpy.save(path, array)"
        ) from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path} is an npz archive; rename it so that it ends in .npz")
    if not array.dtype.itemsize:  # so many as the header likes take no byte of the file, but of the memory
        raise DataError(f"{path} holds {array.shape} values of no length; it is damaged, save it again")
    return array


class Archive(zipfile.ZipFile):
    """An npz archive; `keys` are the names of its arrays, `name` is its own in messages."""

    def __init__(self, location: str) -> None:
        self.name = file_name(location)
        try:
            super().__init__(path_or_stream(location))
        except zipfile.BadZipFile:
            raise DataError(
                f"{location} is no npz archive, or is cut short; fetch it again, or rename it if it is of another kind"
            ) from None
        self.keys = [member.removesuffix(".npy") for member in self.namelist()]

    def first(self, *keys: str) -> str | None:
        """The first of the keys that the archive has."""
        return next((key for key in keys if key in self.keys), None)

    def stream(self, key: str) -> MemberStream:
        """The array of a key, to be read piece by piece. Errors: DataError where there is none."""
        if key not in self.keys:
            raise DataError(f"{self.name} has no key {key!r}; it has {', '.join(self.keys)}")
        return MemberStream(self, key)

    def array(self, key: str) -> npt.NDArray[Any]:
        """The array of a key. Errors: DataError where there is none."""
        with self.stream(key) as member:
            values = member.read(math.prod(member.shape))
            return values.reshape(member.shape, order="F" if member.fortran_order else "C")


class MemberStream(contextlib.AbstractContextManager["MemberStream"]):
    """The array `key` of an archive: `shape`, `dtype`, `fortran_order`, and its elements in storage order."""

    def __init__(self, archive: Archive, key: str) -> None:
        self._place = f"{archive.name}: {key!r}"
        with guarded(self._place):
            member = archive.getinfo(f"{key}.npy" if f"{key}.npy" in archive.namelist() else key)
            self._stream = archive.open(member)
            version = np.lib.format.read_magic(self._stream)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            self.shape, self.fortran_order, self.dtype = read(self._stream)
            announced = math.prod(self.shape) * max(self.dtype.itemsize, 1)
            if min(self.shape, default=0) < 0 or announced > member.file_size:
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
        with guarded(self._place):
            content = self._stream.read(wanted)
        if len(content) < wanted:
            raise DataError(f"{self._place} ends early; the file is cut short")
        return np.frombuffer(content, dtype=self.dtype) if count else np.empty(0, dtype=self.dtype)

    def __exit__(self, *_: object) -> None:
        self._stream.close()
