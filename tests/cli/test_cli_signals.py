"""SIGTERM and SIGKILL at seeded moments of a command: the old store or the new one is there, and it can be read."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import zarr

import dlatent
from dlatent import open_data

pytestmark = pytest.mark.slow

# Imports once, and runs each command in a process of its own (a fork) that sends itself a signal at its n-th touch of
# the file system: the same moments at every run, on slow machines and on fast ones.
SERVER = """
import json, os, signal, sys
import dlatent.cli.main as cli
import dlatent.models.saved, dlatent.stores.ingest.run, dlatent.models.map_rows, dask.threaded, pandas

def embed(words):
    from dlatent import LocallyLinearEmbedding
    store, place, kept = words
    model = LocallyLinearEmbedding(n_neighbors=10).fit(store, checkpoint=kept, resume=True, client="serial")
    model.save(place, overwrite=True)
    from dlatent.stores.checkpoint import discard
    discard(kept)
    return 0

def carry_out(words, number, moment, errors):
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    seen, counting = 0, False
    def count(event, *_):
        nonlocal seen
        if counting and event.startswith(("open", "os.", "shutil.")) and event != "os.kill":
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), number)
    sys.addaudithook(count)
    guarded = cli._guarded
    def started(*arguments):
        nonlocal counting
        counting = True
        try:
            return guarded(*arguments)
        finally:
            counting = False
    cli._guarded = started
    status = cli.main(words) if words[0] != "embed" else cli._guarded(embed, words[1:])
    sys.stderr.flush()
    if not moment:
        with open(errors, "w") as said:
            said.write(str(seen))
    sys.exit(status)

for line in sys.stdin:
    words, number, moment, errors = json.loads(line)
    child = os.fork()
    if not child:
        carry_out(words, number, moment, errors)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Commands:
    """Commands in processes that end themselves by a signal."""

    def __init__(self, folder: Path) -> None:
        self._errors = folder / "stderr"
        self._server = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, words: list[object], number: int = 0, moment: int = 0) -> tuple[int, str]:
        """Exit status and what the command said on standard error (without a signal, how many moments it has)."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        line = [[os.fspath(word) for word in words], int(number), moment, str(self._errors)]  # type: ignore[arg-type]
        self._server.stdin.write(json.dumps(line) + "\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline()), self._errors.read_text()

    def end(self) -> None:
        """No more commands."""
        self._server.communicate(timeout=60)


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    made = Commands(tmp_path_factory.mktemp("said"))
    yield made
    made.end()


def whole(place: Path) -> None:
    """Read everything of a store; it is complete, or this fails."""
    if place.name == "model.zarr":
        assert np.isfinite(dlatent.load(place).components_).all()
    else:
        for block in open_data(place).blocks:
            assert np.isfinite(block.load()).all()


def words_of(command: str, store: Path, model: Path, folder: Path) -> tuple[list[object], Path]:
    if command == "ingest":
        rows = np.random.default_rng(0).standard_normal((300, 7))
        np.savetxt(folder.parent / "rows.csv", rows, delimiter=",", header=",".join("abcdefg"), comments="")
        place = folder / "rows.zarr"
        return ["ingest", folder.parent / "rows.csv", place, "--block-size", "2kB", "--quiet", "--overwrite"], place
    if command == "fit":
        place = folder / "model.zarr"
        return ["fit", "ppca", store, "-k", "2", "-o", place, "--quiet", "--overwrite"], place
    place = folder / "scores.zarr"
    return ["transform", model, store, "-o", place, "--overwrite"], place


@pytest.mark.parametrize("command", ["ingest", "fit", "transform"])
def test_a_signal_at_any_moment_leaves_a_whole_store_and_nothing_else(
    commands: Commands, store: Path, model: Path, tmp_path: Path, command: str
) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    words, place = words_of(command, store, model, folder)
    status, counted = commands(words)
    assert status == 0
    assert int(counted) > 50
    whole(place)
    rng = np.random.default_rng([signal.SIGTERM, len(command)])
    for moment in sorted({1, *rng.integers(1, int(counted), 4).tolist()}):
        status, said = commands(words, signal.SIGTERM, moment)
        assert status == 143, said
        assert said == "dlatent: terminated\n"
        assert os.listdir(folder) == [place.name]
        whole(place)
    assert commands(words)[0] == 0
    whole(place)
    assert os.listdir(folder) == [place.name]


def variables(place: Path) -> dict[str, bytes]:
    """All that a store holds but what passes cost."""
    root = zarr.open_group(place, mode="r", use_consolidated=False)
    arrays = {name: one[...].tolist() for name, one in root.members(max_depth=None) if isinstance(one, zarr.Array)}
    if "result" in root.attrs:
        report = root.attrs["result"]["attributes"]["report"]
        arrays |= {"history": report["history"], "passes": report["passes"]["name"]}
    return {name: repr(value).encode() for name, value in arrays.items()}


MOMENTS = int(os.environ.get("DLATENT_TEST_MOMENTS", "2"))
"""Seeded moments at which each kind of fit is killed; 50 take about half an hour for all of them."""
RESUMED = {
    "ppca": ["ppca", "--solver", "krylov"],
    "missing": ["ppca", "--missing", "nan"],
    "correspondence": ["correspondence", "--solver", "krylov"],
    "embedding": [],
}
"""What `fit` gets beside data and number of components; the last is no fit of the command line.  Of `transform` and
`ingest` the machine of stores asks the same."""


def resumed(kind: str, store: Path, inputs: Path, place: Path, kept: Path) -> list[object]:
    """A command that goes on where it was killed."""
    if kind == "embedding":
        return ["embed", store, place, kept]
    command, *options = RESUMED[kind]
    rows = np.arange(120)
    pairs = np.column_stack([rows, (rows + 1) % 120])
    np.savetxt(inputs / "pairs.csv", pairs, "%d", delimiter=",", header="a,b", comments="")
    data: list[object] = [f"a={store}", f"b={store}"] if kind == "correspondence" else [store]
    more: list[object] = ["--correspondence", inputs / "pairs.csv"] if kind == "correspondence" else []
    end = ["-o", place, "--quiet", "--checkpoint", kept, "--resume", "--overwrite"]
    return ["fit", command, *data, *more, "-k", "2", *options, *end]


@pytest.mark.parametrize("kind", RESUMED)
def test_what_is_killed_at_any_moment_goes_on_to_the_same_bits(
    commands: Commands, store: Path, model: Path, tmp_path: Path, kind: str
) -> None:
    inputs, folder = tmp_path / "inputs", tmp_path / "out"
    inputs.mkdir()
    folder.mkdir()
    place, kept = folder / "model.zarr", folder / "model.zarr.checkpoint"
    words = resumed(kind, store, inputs, place, kept)
    status, said = commands(words)
    assert status in (0, 6), said
    expected = variables(place)
    status, counted = commands(words)
    assert status in (0, 6)
    assert variables(place) == expected
    assert not kept.exists()
    rng, missed = np.random.default_rng(len(kind)), 0
    for moment in sorted(rng.integers(1, int(counted), MOMENTS).tolist()):
        for number in (signal.SIGKILL, signal.SIGTERM):
            status, said = commands(words, number, moment)
            if status in (0, 6):  # threads touch files in another order, and this run had not so many moments
                missed += 1
                assert variables(place) == expected
                continue
            assert status in (-signal.SIGKILL, -signal.SIGTERM if kind == "embedding" else 143), said
            if status == 143:
                assert said in (
                    "dlatent: terminated\n",  # before it began, or when it was over
                    f"dlatent: terminated; {kept} has the passes so far: go on by the same command with --resume\n",
                )
            assert variables(place) == expected
        assert commands(words)[0] in (0, 6)
        assert variables(place) == expected
        assert os.listdir(folder) == ["model.zarr"]
    assert missed <= max(1, MOMENTS // 10)


def test_a_terminated_command_ends_its_workers(tmp_path: Path) -> None:
    """Sent when the second pass is told of, so that the workers have blocks and tasks."""
    rows, folder = np.random.default_rng(0).standard_normal((4000, 60)), tmp_path / "out"
    zarr.create_array(tmp_path / "x.zarr", data=rows, chunks=(500, 60))
    folder.mkdir()
    words = ["fit", "ppca", tmp_path / "x.zarr", "-k", "5", "--solver", "krylov", "-o", folder / "model.zarr"]
    command = [
        sys.executable,
        "-c",
        "import sys; from dlatent.cli.main import main; sys.exit(main())",
        *words,
        "--workers",
        "2",
        "--tol",
        "1e-15",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        assert running.stdout is not None
        said = ""
        while "pass   2" not in said:
            line = running.stdout.readline()
            assert line, said
            said += line
        workers = psutil.Process(running.pid).children(recursive=True)
        assert len(workers) >= 2
        running.send_signal(signal.SIGTERM)
        said += running.communicate(timeout=60)[0]
    assert running.returncode == 143, said
    assert "dlatent: terminated\n" in said
    assert os.listdir(folder) == []
    assert not psutil.wait_procs(workers, timeout=30)[1], "workers are left"


def test_the_help_names_the_status() -> None:
    from dlatent.cli import EXPLAINED, TERMINATED

    assert f"  {TERMINATED}  terminated (SIGTERM)\n       or its terminal was lost (SIGHUP)\n" in EXPLAINED


SIGNALLED = """
import os, sys
number, moment, finaliser = int(sys.argv.pop(1)), sys.argv.pop(1), sys.argv.pop(1)

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), number)

class Finder:
    def find_spec(name, path=None, target=None):
        if name == moment:
            Finalised() if finaliser else os.kill(os.getpid(), number)

sys.meta_path.insert(0, Finder)
from dlatent.cli.main import main
sys.exit(main())
"""
"""A command that sends itself a signal when it imports a module, in a finaliser or not."""


def signalled(
    number: int, moment: str, *words: object, finaliser: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-c", SIGNALLED, str(int(number)), moment, "yes" * finaliser, *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, **options)


IMPORTS = ("argparse", "dlatent.cli.fit", "numpy", "datetime", "zarr", "dask.threaded")
BEGUN = [
    *((signal.SIGINT, 130, "interrupted", moment) for moment in IMPORTS),
    *((number, 143, "terminated", moment) for number in (signal.SIGTERM, signal.SIGHUP) for moment in IMPORTS[::3]),
]
"""One function hears all three signals, so that two are sent at the first import and in the one in C alone."""


@pytest.mark.parametrize(("number", "status", "word", "moment"), BEGUN)
def test_a_command_that_has_just_begun_ends_with_one_line(
    store: Path, tmp_path: Path, number: int, status: int, word: str, moment: str
) -> None:
    """Its imports are what takes the first second; those in C, as of datetime by NumPy, report another error."""
    place = tmp_path / "out" / "model.zarr"
    place.parent.mkdir()
    ended = signalled(number, moment, "fit", "ppca", store, "-k", "2", "-o", place)
    assert (ended.returncode, ended.stderr) == (status, f"dlatent: {word}\n")
    assert os.listdir(place.parent) == []


@pytest.mark.parametrize("moment", ["fsspec.implementations.local", "dlatent.stores.results"])
@pytest.mark.parametrize(
    ("number", "status", "word"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_that_a_finaliser_swallows_ends_the_command(
    store: Path, tmp_path: Path, number: int, status: int, word: str, moment: str
) -> None:
    """Python drops what is raised while it clears an object away; the command must not go on for that."""
    place = tmp_path / "out" / "model.zarr"
    place.parent.mkdir()
    ended = signalled(number, moment, "fit", "ppca", store, "-k", "2", "-o", place, "--quiet", finaliser=True)
    assert (ended.returncode, ended.stderr) == (status, f"dlatent: {word}\n")
    assert os.listdir(place.parent) == []


def test_a_command_under_nohup_does_not_end_with_its_terminal(store: Path, tmp_path: Path) -> None:
    words = ["fit", "ppca", store, "-k", "2", "-o", tmp_path / "model.zarr", "--quiet"]
    deaf: dict[str, Any] = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    assert signalled(signal.SIGHUP, "zarr", *words, **deaf).returncode == 0


@pytest.mark.parametrize("workers", [[], ["--workers", "1"]], ids=["threads", "workers"])
def test_a_command_whose_terminal_is_lost_ends_in_order(tmp_path: Path, workers: list[str]) -> None:
    """Nobody sees then what it says; the first of hundreds of passes is told of before."""
    rows, folder = np.random.default_rng(0).standard_normal((4000, 60)), tmp_path / "out"
    zarr.create_array(tmp_path / "x.zarr", data=rows, chunks=(500, 60))
    folder.mkdir()
    words = ["fit", "mixture", tmp_path / "x.zarr", "-k", "5", "-o", folder / "model.zarr", "--tol", "1e-15", *workers]
    command = [sys.executable, "-m", "dlatent.cli.main", *map(str, words)]
    child, terminal = pty.fork()
    if not child:
        os.execv(command[0], command)
    said = b""
    while b"pass" not in said:
        said += os.read(terminal, 1000)
    begun = psutil.Process(child).children(recursive=True)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143
    assert os.listdir(folder) == []
    assert not psutil.wait_procs(begun, timeout=30)[1], "workers are left"
