"""Files of many formats, streamed into Zarr stores (`ingest`)."""

from dlatent.stores.ingest.formats import FORMATS
from dlatent.stores.ingest.job import Progress
from dlatent.stores.ingest.run import BLOCK_BYTES, IngestReport, ingest

__all__ = ["BLOCK_BYTES", "FORMATS", "IngestReport", "Progress", "ingest"]
