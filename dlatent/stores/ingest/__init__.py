"""Files of many formats, streamed into Zarr stores (`dlatent.ingest`)."""
