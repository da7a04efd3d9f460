"""Fits in processes that are forked: the threads of their parents are not there, nor is the connection to a cluster.
And the end of a process whose threads were starting when a signal came."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FORK = """
import os, sys, threading, warnings
import numpy as np, scipy.sparse as sp, zarr
from dlatent import GraphPPCA, KernelPPCA, PPCA, load

warnings.simplefilter("ignore")
rows = np.random.default_rng(0).normal(size=(400, 12))
place = sys.argv[1] + "/x.zarr"
zarr.create_array(place, data=rows, chunks=(50, 12))

def fits(kind, name):
    X = {"sparse": sp.csr_array(rows * (rows > 0)), "store": place, "serial": place}.get(kind, rows)
    client = "serial" if kind == "serial" else None
    ring = np.column_stack([np.arange(400), np.roll(np.arange(400), 1)])
    graph = sp.csr_array((np.ones(400), ring.T), shape=(400, 400))
    models = [PPCA(2, solver="krylov"), GraphPPCA(2), KernelPPCA(2, kernel="linear")]
    graphs = [{}, {"graph": graph + graph.T}, {}]
    fitted = [model.fit(X, client=client, **more) for model, more in zip(models, graphs)]
    saved = f"{sys.argv[1]}/{kind}-{name}.zarr"
    fitted[0].save(saved)
    scores = load(saved).transform(X)
    return [model.components_.tobytes() for model in fitted[:2]] + [np.asarray(scores).tobytes()]

for kind in ("array", "sparse", "store", "serial", "beside"):
    expected = fits(kind, "parent")
    if kind == "beside":  # a fork in the middle of a fit of another thread
        middle, forked = threading.Event(), threading.Event()
        def pause(_):
            middle.set()
            forked.wait()
        from dlatent import Callback
        model = PPCA(2, solver="krylov")
        fitting = threading.Thread(target=lambda: model.fit(rows, callbacks=[Callback(on_pass=pause)]))
        fitting.start()
        middle.wait()
    child = os.fork()
    if not child:
        status = 1
        try:
            status = 0 if fits(kind, "child") == expected else 3
        finally:
            os._exit(status)
    if kind == "beside":
        forked.set()
        fitting.join()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert not status, f"{kind}: status {status}"
"""


def run(script: str, *words: object) -> str:
    """What a script says that ends in time, with status 0."""
    command = [sys.executable, "-c", script, *map(str, words)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_forked_process_fits_to_the_same_bits(tmp_path: Path) -> None:
    run(FORK, tmp_path)


CLIENT = """
import os, sys
import numpy as np
from distributed import Client, LocalCluster

rows = np.random.default_rng(0).normal(size=(400, 12))
with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster, Client(cluster) as client:
    child = os.fork()
    if not child:
        from dlatent import PPCA
        try:
            for given in (client, None):
                try:
                    PPCA(2).fit(rows, client=given)
                except Exception as error:
                    print(type(error).__name__, error, flush=True)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    from dlatent import PPCA
    print(PPCA(2).fit(rows).converged_)
"""


@pytest.mark.slow
def test_a_client_of_the_parent_is_refused() -> None:
    *refused, well = run(CLIENT).splitlines()
    assert [line.split()[0] for line in refused] == ["EngineError"] * 2
    assert all('Start processes by "spawn"' in line for line in refused)
    assert well == "True"


INTERRUPTED = """
import signal, sys, threading
import numpy as np
from dlatent import PPCA

model, rows = PPCA(2, solver="krylov"), np.random.default_rng(0).normal(size=(4000, 12))

def interrupt(frame, event, _):  # as Ctrl-C does when a thread of the pass has begun and its pool does not know of it
    started = event == "return" and frame.f_code is threading.Thread.start.__code__
    if started and "Pool" in frame.f_locals["self"].name:
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)

sys.setprofile(interrupt)
try:
    model.fit(rows)
except KeyboardInterrupt:
    print("interrupted")
model.fit(rows)
"""


def test_a_process_ends_that_is_interrupted_while_a_thread_starts() -> None:
    assert run(INTERRUPTED) == "interrupted\n"
