"""xeofs: EOF of an xarray DataArray on a dask array that reads the store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.methods.from_zarr import measured
from benchmarks.task import Row


def eof(folder: Path, scale: float, n_components: int) -> Row:
    """EOF with its defaults: centred, a randomized SVD by dask.array."""
    import numpy as np
    import xarray as xr
    from xeofs.single import EOF

    def fit(x: Any, k: int) -> Any:
        # It wants coordinates, and names of axes other than its own "sample" and "feature".
        coordinates = {"time": np.arange(x.shape[0]), "place": np.arange(x.shape[1])}
        model = EOF(n_modes=k, random_state=0)
        model.fit(xr.DataArray(x, coordinates, ("time", "place"), "x"), dim="time")
        return model.components().transpose("mode", "place").values

    return measured(folder, n_components, fit)
