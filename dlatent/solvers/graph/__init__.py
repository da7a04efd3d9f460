"""Samples in a graph: their sums over neighbours."""
