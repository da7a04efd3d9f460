"""The room of data at rest: opening matrices, writing stores, and saving results; the only room that knows Zarr."""
