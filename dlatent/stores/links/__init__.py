"""Graphs between instances: opened (`open_links`), ingested (`ingest_links`) and put into a near order (`reorder`)."""

from dlatent.stores.links.open import open_links

__all__ = ["open_links"]
