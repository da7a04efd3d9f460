"""A checksum at the end of each metadata document that dlatent writes, so that a flipped bit in it is found.

It follows the JSON text as white space (a space is 0, a tab is 1), which every reader of JSON passes over.  A program
that changes the metadata on purpose writes the document anew, without it, so that what others change or copy is not
refused.  A checksum among the attributes would be copied along (xarray does) and then be wrong.
"""

from __future__ import annotations

import hashlib
import json
import re

MARK_BYTES = 8
"""Bytes of the mark of a store, and of the checksum."""

_CHECKSUM = re.compile(rb"\n([ \t]{%d})\Z" % (2 * MARK_BYTES * 8))


def with_checksum(document: bytes, mark: bytes) -> bytes:
    """The document with its checksum.

    `mark` (`MARK_BYTES` bytes) is the store's own, so that another store with equal metadata is told from it.
    """
    text = _CHECKSUM.sub(b"", document)
    bits = int.from_bytes(mark + _digest(text, mark), "big")
    return text + b"\n" + f"{bits:0{2 * MARK_BYTES * 8}b}".encode().translate(bytes.maketrans(b"01", b" \t"))


def intact(document: bytes) -> bool:
    """Whether a document fits its checksum; of one without, whether it is JSON."""
    match = _CHECKSUM.search(document)
    if match is None:
        try:
            json.loads(document)
        except ValueError:
            return False
        return True
    bits = int(match[1].translate(bytes.maketrans(b" \t", b"01")), 2).to_bytes(2 * MARK_BYTES, "big")
    return bits[MARK_BYTES:] == _digest(document[: match.start()], bits[:MARK_BYTES])


def _digest(text: bytes, mark: bytes) -> bytes:
    return hashlib.sha256(mark + text).digest()[:MARK_BYTES]
