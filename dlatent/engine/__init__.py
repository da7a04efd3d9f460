"""Passes over the data, on one thread, many, or a cluster; the only room that imports Dask."""
