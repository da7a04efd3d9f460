"""All clusters of the tests, in this process and in those that it starts, cannot hang by a fault of CPython 3.11, and
keep their workers: Dask closes one for good that is away 15 seconds after it was killed, even if it is away again."""

from __future__ import annotations

import os

import dask

from dlatent.engine.local import NO_HANGS

dask.config.set(NO_HANGS | {"distributed.deploy.lost-worker-timeout": "1h"})
os.environ.update({f"DASK_{name.upper().replace('.', '__')}": str(value) for name, value in NO_HANGS.items()})
