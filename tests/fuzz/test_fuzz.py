"""The readers under damage: 800 inputs here, 20,000 with `make fuzz`; and that the harness sees what it must see."""

from __future__ import annotations

import time
from pathlib import Path

import fuzz_run
import fuzz_targets
import numpy as np
import pytest
from fuzz_run import fuzz
from fuzz_seeds import write_seeds

from dlatent.errors import DataError

pytestmark = pytest.mark.slow

COUNT = 800


@pytest.mark.filterwarnings("ignore")
def test_damaged_inputs_bring_out_only_our_own_errors():
    summary = fuzz(COUNT, seed=0)
    print(summary.table())
    assert not summary.failures
    assert sum(summary.outcomes.values()) == COUNT
    accepted = {name for name, kind in summary.outcomes if kind == "accepted"}
    assert len(accepted) >= 14
    assert summary.compared >= 50


def _raise(error):
    raise error


OUTCOMES = {
    "accepted": lambda: None,
    "refused": lambda: _raise(DataError("no")),
    "foreign": lambda: _raise(KeyError("no")),
    "differs": lambda: np.zeros((1, 1)),
    "slow": lambda: _burn(0.3),
    "memory": lambda: np.ones(6 << 20).sum() and None,
}


def _burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("seeds")
    return write_seeds(folder)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_the_harness_sees(outcome, seeds, tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_run, "SECONDS", 0.2)
    monkeypatch.setattr(fuzz_run, "BYTES", 40 << 20)
    monkeypatch.setattr(fuzz_targets, "run", lambda *_: OUTCOMES[outcome]())
    monkeypatch.setattr(fuzz_targets, "expected", lambda *_: np.ones((1, 1)))
    plan = {"seed": 0, "formats": ["npy"], "seeds": {"npy": [str(path) for path in seeds["npy"]]}}
    assert fuzz_run._case(5, plan, tmp_path)["outcome"] == outcome


def test_the_same_number_makes_the_same_input(seeds, tmp_path):
    from fuzz_mutations import mutate

    for name in ("svmlight", "npz sparse", "parquet"):
        for number in range(20):
            made = []
            for turn in range(2):
                rng = np.random.default_rng([0, number])
                target: Path = tmp_path / f"{name}{number}{turn}{seeds[name][0].suffix}"
                made.append(mutate(seeds[name][0], target, rng).read_bytes())
            assert made[0] == made[1]
