"""Topics of documents in a file of their own: lines "TOPIC DOCUMENT 1", as RCV1-v2 (LYRL2004) comes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dlatent.errors import DataError
from dlatent.stores.byte_source import ByteSource, file_name
from dlatent.stores.guard import guarded
from dlatent.stores.ingest.batches import Batch, LabelSets, Values
from dlatent.stores.numbers import shown

ENDINGS = (".qrels", ".qrels.gz", ".qrels.bz2", ".qrels.xz")


class Topics:
    """The topics of each document; `names` are the topics in alphabetic order."""

    def __init__(self, location: str) -> None:
        source = ByteSource(location)
        found: dict[str, list[str]] = {}
        for first, text in source.line_chunks(1 << 20):
            for line, row in enumerate(text.removesuffix(b"\n").split(b"\n"), first):
                with guarded(f"{source.name} line {line}"):
                    words = row.decode().split()
                if len(words) not in (0, 3):
                    shape = shown(" ".join(words))
                    raise DataError(f"{source.name} line {line}: {shape} is not of the form 'TOPIC DOCUMENT 1'")
                if words and words[2] != "0":
                    found.setdefault(words[1], []).append(words[0])
        self._name = file_name(location)
        self.names: Values = np.unique([topic for topics in found.values() for topic in topics])
        number = {str(topic): code for code, topic in enumerate(self.names)}
        self._codes: dict[str, npt.NDArray[np.int64]] = {
            document: np.array([number[topic] for topic in dict.fromkeys(topics)]) for document, topics in found.items()
        }

    def label(self, batch: Batch) -> Batch:
        """The batch with the topics of its documents, found by their identifiers."""
        assert batch.ids is not None
        missing = [row for row, document in enumerate(batch.ids) if document not in self._codes]
        if missing:
            raise DataError(
                f"{batch.place(missing[0])}: document {batch.ids[missing[0]]} has no topic in {self._name}; give "
                "the file of topics that belongs to these documents"
            )
        codes = [self._codes[document] for document in batch.ids]
        counts = np.array([len(own) for own in codes], dtype=np.int64)
        return replace(batch, label_sets=LabelSets(np.concatenate(codes), counts))
