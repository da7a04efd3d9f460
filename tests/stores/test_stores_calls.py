"""A call of the file system fails once: the same bits, or an error that names the place, and stores that are whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import settings

from dlatent import load, open_data
from dlatent.stores.temporary import put_back
from tests.stores.failing_calls import COMMANDS, DEATH, ERRORS, SHORT, Server, prepare

MODELS = ("fit", "partial_fit")
"""Commands that write a model; the others write data."""
TEXT = (".csv", ".mtx")
"""Endings of files that have no checksum and say no length: what is cut off of them, nobody can miss."""
SAMPLE = 4
"""Calls of each command that fail in the quick test."""


def bits(place: Path, command: str) -> dict[str, Any]:
    """All of a store that opens."""
    put_back(place)
    if command in MODELS:
        load(place)
    elif "transform" not in command:
        for block in open_data(place).blocks:
            block.load()
    members = zarr.open_group(place, mode="r", use_consolidated=False).members(max_depth=None)
    arrays = {name: one[...] for name, one in members if isinstance(one, zarr.Array)}
    return {name: (repr(values.dtype), values.shape, repr(values.tolist())) for name, values in arrays.items()}


class Trials:
    """A command whose calls fail, one at a time."""

    def __init__(self, tmp_path: Path, command: str, server: Server) -> None:
        self.command, self.server = command, server
        self.inputs, self.out = tmp_path / "work" / "in", tmp_path / "work" / "out" / "o.zarr"
        prepare(self.inputs)
        self.out.parent.mkdir()
        self.untouched = self.files()
        self.server(command, self.inputs, self.out)
        self.expected = bits(self.out, command)
        self.outcomes = dict[str, int]()

    def files(self) -> dict[str, bytes]:
        """The inputs."""
        return {str(path): path.read_bytes() for path in sorted(self.inputs.rglob("*")) if path.is_file()}

    def calls(self, old: bool) -> list[tuple[str, str]]:
        """Kind and name of all calls, where there is an old store and where there is none."""
        self.begin(old)
        said = self.server(self.command, self.inputs, self.out)
        assert said is not None
        assert said["error"] is None, said
        return [(kind, name) for kind, name in said["calls"]]

    def begin(self, old: bool) -> None:
        """Have no old store."""
        if not old:
            shutil.rmtree(self.out, ignore_errors=True)

    def fail(self, number: int, call: tuple[str, str], how: str, old: bool) -> None:
        """One call fails, and the command is run again."""
        kind, name = call
        told = f"{self.command}, old={old}: call {number} ({kind} {name}) fails by {how}"
        self.begin(old)
        said = self.server(self.command, self.inputs, self.out, number, how)
        assert self.files() == self.untouched, f"{told}: the inputs are others"
        there = os.listdir(self.out.parent)
        if said is None:
            outcome = "death"
        elif said["error"] is None:
            outcome = "same"
            assert bits(self.out, self.command) == self.expected, f"{told}: other bits"
        else:
            outcome = "error"
            assert said["named"], f"{told}: {said['error']}"
            assert str(self.inputs.parent) in said["error"], f"{told}: {said['error']}"
            assert not old or self.out.exists(), f"{told}: the old store is gone"
        if said is not None and kind not in ("remove", "list", "open"):  # what removes may itself have failed
            kept = self.out.name, f"{self.out.name}.checkpoint"
            strays = [one for one in there if one not in kept and "resumed" not in self.command]  # it leaves its rows
            assert not strays, f"{told}: {there} are left ({said['error']})"
        if old or self.out.exists():
            assert bits(self.out, self.command) == self.expected, f"{told}: the store is not whole"
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        try:
            COMMANDS[self.command](self.inputs, self.out)
        except Exception as error:
            raise AssertionError(f"{told}, and again: {error}") from error
        assert bits(self.out, self.command) == self.expected, f"{told}, and again: other bits"
        assert os.listdir(self.out.parent) == [self.out.name], f"{told}, and again: {os.listdir(self.out.parent)}"


def ways(call: tuple[str, str], number: int) -> str:
    """How a call fails: in turn by each error, by death, and short where it reads what can be told to be short."""
    several = (*ERRORS, DEATH, *((SHORT,) if call[0] == "read" and not call[1].endswith(TEXT) else ()))
    return several[number % len(several)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("said"))
    yield made
    made.end()


@pytest.fixture
def trials(tmp_path: Path, server: Server, request: pytest.FixtureRequest) -> Trials:
    return Trials(tmp_path, request.param, server)


@pytest.mark.parametrize("trials", COMMANDS, indirect=True)
def test_a_call_that_fails_leaves_whole_stores(trials: Trials) -> None:
    rng = np.random.default_rng(len(trials.command))
    for old in (True, False):
        calls = trials.calls(old)
        for number in rng.integers(1, len(calls) + 1, SAMPLE // 2).tolist():
            trials.fail(number, calls[number - 1], ways(calls[number - 1], number), old)


@pytest.mark.slow
@pytest.mark.parametrize("trials", COMMANDS, indirect=True)
def test_calls_all_along_that_fail_leave_whole_stores(trials: Trials) -> None:
    """Of eleven calls one; in the profile "nightly" all, which takes nine minutes on two processes."""
    calls, faults = trials.calls(True), list[str]()
    for number, call in [*enumerate(calls, 1)][:: max(1, 1100 // settings().max_examples)]:
        try:
            trials.fail(number, call, ways(call, number), old=True)
        except AssertionError as fault:
            faults.append(str(fault).partition("\nassert ")[0])
            shutil.rmtree(trials.out.parent)
            trials.out.parent.mkdir()
            trials.calls(False)
    print(trials.command, len(calls), trials.outcomes)
    assert not faults, "\n".join(faults)
