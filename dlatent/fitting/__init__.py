"""The loops on the driver: the plan, the routes, acceleration and outcomes; Dask and Zarr are not known here."""
