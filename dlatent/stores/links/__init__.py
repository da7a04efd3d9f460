"""Graphs between instances: opened (`open_links`), ingested (`ingest_links`) and put into a near order (`reorder`)."""

from dlatent.stores.links.ingest import LinksReport, ingest_links
from dlatent.stores.links.open import open_links
from dlatent.stores.links.reorder import ReorderReport, reorder

__all__ = ["LinksReport", "ReorderReport", "ingest_links", "open_links", "reorder"]
