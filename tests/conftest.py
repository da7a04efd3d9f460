"""All clusters of the tests, in this process and in those that it starts, cannot hang by a fault of CPython 3.11, and
keep their workers: Dask closes one for good that is away 15 seconds after it was killed, even if it is away again. None
pauses, as a worker in this process takes the memory of all tests together for its own."""

from __future__ import annotations

import os

import dask
from hypothesis import Phase, settings

from dlatent.engine.machine import NO_HANGS

# A law that holds is no less true on a machine that is busy.
settings.register_profile("any machine", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=25)
settings.register_profile("nightly", deadline=None, max_examples=1000)
# A mutant is found or not, whichever example finds it.
phases = (Phase.explicit, Phase.generate)
settings.register_profile("mutants", deadline=None, max_examples=25, derandomize=True, phases=phases)
settings.load_profile("any machine")

NO_PAUSES = {f"distributed.worker.memory.{kind}": False for kind in ("target", "spill", "pause")}
dask.config.set(NO_HANGS | NO_PAUSES | {"distributed.deploy.lost-worker-timeout": "1h"})
os.environ.update({f"DASK_{name.upper().replace('.', '__')}": str(value) for name, value in NO_HANGS.items()})
