"""What is killed when its store is whole, and its checkpoint not yet gone, ends well when it is run again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

import dlatent
from dlatent.stores.checkpoint import discard
from tests.cli.conftest import Run, low_rank
from tests.cli.test_cli_places import digest

# Ends the process, as with kill -9, when it removes or renames something for the n-th time after the store is whole.
SCRIPT = """
import os, sys
from dlatent.cli.main import main

left, place = int(sys.argv[1]), sys.argv[2]

def count(event, *of):
    global left
    if event in ("os.remove", "os.rename", "os.rmdir", "shutil.rmtree") and os.path.exists(place):
        left -= 1
        if not left:
            os.kill(os.getpid(), 9)

words = sys.argv[3:]
import dlatent.models, dlatent.stores.ingest.run
sys.addaudithook(count)
sys.exit(main(words))
"""
COMMANDS = {
    "fit": "fit ppca data.zarr -k 2 -o out.zarr --checkpoint kept --resume --quiet",
    "transform": "transform model.zarr data.zarr -o out.zarr --resume --quiet",
    "ingest": "ingest data.csv out.zarr --resume --quiet",
}


def values(place: Path) -> dict[str, bytes]:
    """All that a store holds, but the time that it took."""
    members = zarr.open_group(place, mode="r", use_consolidated=False).members(max_depth=None)
    arrays = {name: one for name, one in members if isinstance(one, zarr.Array)}
    return {name: repr(one[...].tolist()).encode() for name, one in arrays.items() if "seconds" not in name}


MORE = [pytest.param(*case, marks=pytest.mark.slow) for case in (("fit", 2), ("transform", 1), ("ingest", 1))]


@pytest.mark.parametrize(("command", "moment"), [("fit", 1), *MORE])
def test_what_is_killed_when_it_was_done_ends_well(
    run: Run, store: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, moment: int
) -> None:
    shutil.copytree(store, tmp_path / "data.zarr")
    shutil.copytree(model, tmp_path / "model.zarr")
    np.savetxt(tmp_path / "data.csv", low_rank()[0], delimiter=",", header="a,b,c,d,e,f,g,h,i", comments="")
    monkeypatch.chdir(tmp_path)
    inputs, words = set(os.listdir(tmp_path)), COMMANDS[command].split()
    killed = subprocess.run([sys.executable, "-c", SCRIPT, str(moment), "out.zarr", *words], capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    before = values(tmp_path / "out.zarr")
    assert set(os.listdir(tmp_path)) - inputs == {"out.zarr", "kept" if command == "fit" else "out.zarr.checkpoint"}
    said = run(*words)
    assert said.status == 0, said.err
    assert values(tmp_path / "out.zarr") == before
    assert set(os.listdir(tmp_path)) - inputs == {"out.zarr"}
    assert "already exists" in run(*words).err


def test_a_store_of_other_work_is_not_replaced(run: Run, store: Path, model: Path, tmp_path: Path) -> None:
    out, kept = tmp_path / "out.zarr", tmp_path / "kept"
    shutil.copytree(model, out)
    before = digest(out)
    dlatent.PPCA(2).fit(store, checkpoint=kept)
    said = run("fit", "ppca", store, "-k", "2", "-o", out, "--checkpoint", kept, "--resume")
    assert (said.status, "already exists" in said.err, digest(out)) == (3, True, before)


def test_python_saves_the_same_fit_again(store: Path, tmp_path: Path) -> None:
    out, kept = tmp_path / "out.zarr", tmp_path / "kept"
    for _ in range(2):  # the second is the script that is run again, as its checkpoint was still there
        model = dlatent.PPCA(2).fit(store, checkpoint=kept, resume=True)
        model.save(out)
    discard(kept)
    assert np.array_equal(dlatent.load(out).components_, model.components_)
    with pytest.raises(dlatent.errors.StoreError, match="already exists"):
        dlatent.PPCA(2).fit(store, checkpoint=kept).save(out)


def test_a_checkpoint_is_no_folder_of_other_archives(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    np.savez(tmp_path / "kept" / "x.npz", X=np.eye(4))
    np.savez(tmp_path / "kept" / "zero.npz", X=np.eye(4))
    before = digest(tmp_path)
    with pytest.raises(dlatent.errors.StoreError, match="is no checkpoint"):
        dlatent.PPCA(1).fit(np.random.default_rng(0).normal(size=(9, 3)), checkpoint=tmp_path / "kept", resume=True)
    assert digest(tmp_path) == before
