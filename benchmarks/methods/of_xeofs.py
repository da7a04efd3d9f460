"""xeofs: EOF of an xarray DataArray on a dask array that reads the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.methods.from_zarr import measured
from benchmarks.task import Row


def eof(folder: Path, scale: float, n_components: int) -> Row:
    """EOF with its defaults: centred, a randomized SVD by dask.array."""
    import xarray as xr
    from xeofs.single import EOF

    def fit(x: Any, k: int) -> Any:
        model = EOF(n_modes=k, random_state=0)
        model.fit(xr.DataArray(x, dims=("sample", "feature"), name="x"), dim="sample")
        return model.components().transpose("mode", "feature").values

    return measured(folder, n_components, fit)
