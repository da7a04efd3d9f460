"""Bytes from files: compressed or not, cut at line ends, with a count of what was read."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from dlatent.errors import MASK, DataError, cause, masked
from dlatent.stores.location import filesystem_at, is_special, local_path

COMPRESSIONS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

LONGEST_LINE = 1 << 28
"""Bytes after which a line of text is none: a file that was cut off by a crash may go on with zeros."""

DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)


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
        with cast(Any, open_raw(self.location)) as raw:
            self._raw = raw
            try:
                if opener is None:
                    raw.seek(start)
                    yield io.BufferedReader(raw)  # lines of remote files have no limit of their own
                else:
                    with opener(raw, "rb") as stream:
                        stream.seek(start)
                        yield stream
            except DAMAGED as error:
                raise DataError(f"{self.location} is damaged or cut short ({error}); fetch the file again") from error
            except OSError as error:
                if opener is None or error.errno is not None:
                    raise
                raise DataError(f"{self.location} cannot be decompressed ({error}); fetch it again") from error

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
    if path is not None and is_special(path):
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
    with open_raw(location) as raw:
        return int(raw.seek(0, os.SEEK_END))


def directory_size(location: str) -> int | None:
    """Bytes of all files below a local directory (None for a remote one)."""
    path = local_path(location)
    if path is None:
        return None
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())


def file_name(location: str) -> str:
    """Last part of a path or URL, without what follows a `?` there."""
    return masked(location).removesuffix(f"?{MASK}").rstrip("/").replace("\\", "/").rpartition("/")[2]


def plain_suffix(location: str) -> str:
    """The extension without a compression's: `.mtx` for `x.mtx.gz`."""
    name = file_name(location).lower()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return Path(name).suffix
