"""Graphs between samples: opened (`open_graph`), ingested (`ingest_graph`) and put into a near order (`reorder`); and
precisions (`open_precision`)."""

from dlatent.stores.graph.ingest import GraphReport, ingest_graph
from dlatent.stores.graph.open import open_graph, open_precision
from dlatent.stores.graph.reorder import ReorderReport, reorder

__all__ = ["GraphReport", "ReorderReport", "ingest_graph", "open_graph", "open_precision", "reorder"]
