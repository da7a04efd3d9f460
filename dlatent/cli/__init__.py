"""The command line: parse, call the library, show what it says; no logic.  How commands end, scripts may rely on."""

from __future__ import annotations

OK = 0
UNEXPECTED = 1
USAGE = 2
BAD_DATA = 3
DOES_NOT_FIT = 4
ENGINE_LOST = 5
NOT_CONVERGED = 6
UNFIT = 7
INTERRUPTED = 130
TERMINATED = 143

EXPLAINED = """exit status:
    0  done
    1  an unexpected error; run again with --debug and report it
    2  the command line is wrong
    3  the data, the labels or a store cannot be used
    4  the fit does not fit in memory
    5  the cluster was lost or cannot be reached
    6  fitted and saved, but the tolerance was not reached
    7  dlatent doctor has found something that is wrong
  130  interrupted
  143  terminated (SIGTERM)
       or its terminal was lost (SIGHUP)

A command that fails leaves nothing written. Results go to standard output, progress and messages to standard error.
"""


class UsageError(Exception):
    """Options that contradict each other, found after parsing."""
