"""A digest at the end of each metadata document that dlatent writes, so that a flipped bit in it is found.

The digest follows the JSON text as white space (a space is 0, a tab is 1), which every reader of JSON passes over.  A
program that changes the metadata on purpose writes the document anew, without the digest, so that what others change or
copy is not refused.  A digest among the attributes would be copied along (xarray does) and then be wrong.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

import zarr

from dlatent.stores.location import filesystem_at

DOCUMENT = "zarr.json"

MARK_BYTES = 8
"""Bytes of the mark of a store, and of the digest."""
_SEAL = re.compile(rb"\n([ \t]{%d})\Z" % (2 * MARK_BYTES * 8))


def seal(node: zarr.Array[Any] | zarr.Group, location: str, mark: bytes) -> None:
    """Write the digest behind the metadata of a node; `location` is that of the root of its store.

    `mark` (`MARK_BYTES` bytes) is the store's own, so that another store with equal metadata is told from it.
    """
    filesystem, inside = filesystem_at("/".join(filter(None, (location, node.path, DOCUMENT))))
    filesystem.pipe_file(inside, sealed(filesystem.cat_file(inside), mark))


def sealed(document: bytes, mark: bytes) -> bytes:
    """The document with its digest."""
    text = _SEAL.sub(b"", document)
    bits = int.from_bytes(mark + _digest(text, mark), "big")
    return text + b"\n" + f"{bits:0{2 * MARK_BYTES * 8}b}".encode().translate(bytes.maketrans(b"01", b" \t"))


def intact(document: bytes) -> bool:
    """Whether a document is as it was sealed; of one without a digest, whether it is JSON."""
    found = _SEAL.search(document)
    if found is None:
        try:
            json.loads(document)
        except ValueError:
            return False
        return True
    bits = int(found[1].translate(bytes.maketrans(b" \t", b"01")), 2).to_bytes(2 * MARK_BYTES, "big")
    return bits[MARK_BYTES:] == _digest(document[: found.start()], bits[:MARK_BYTES])


def _digest(text: bytes, mark: bytes) -> bytes:
    return hashlib.sha256(mark + text).digest()[:MARK_BYTES]
