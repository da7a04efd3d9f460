"""Graphs between instances: opened (`open_links`), ingested (`ingest_links`) and put into a near order (`reorder`)."""

from dlatent.stores.links.ingest import LinksReport, ingest_links
from dlatent.stores.links.open import open_links

__all__ = ["LinksReport", "ingest_links", "open_links"]
