"""Fits on a simulated cluster: whatever happens there, they have the bits of one task after the other."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from dlatent import PPCA, DataError, open_data
from dlatent.engine.connect import connect
from dlatent.errors import EngineError
from dlatent.passes import Pass
from dlatent.testing import DriverDied, SimulatedCluster
from tests.engine.simulated import cut, expected, runs_of, trials
from tests.fits import FITS, bits

pytestmark = pytest.mark.filterwarnings("ignore")
ROUGH: dict[str, Any] = {"deaths": 2.0, "repeats": 0.2, "forgotten": 0.1}


@pytest.mark.parametrize("name", FITS)
def test_fits_have_the_bits_of_one_task_after_the_other_or_one_error(name: str) -> None:
    outcomes = trials(name, range(runs_of(name, 0.01)))
    assert outcomes.total() == runs_of(name, 0.01)


def test_all_that_may_happen_is_tried() -> None:
    lost = {f"same bits, {what} lost" for what in ("workers", "cache", "driver", "scheduler", "nothing else")}
    assert set(trials("covariance", range(100))) == {*lost, "one error, chunk damaged"}


@pytest.mark.parametrize("end", ["driver_tasks", "scheduler_tasks"])
def test_a_fit_goes_on_whenever_it_has_ended(end: str, tmp_path: Path) -> None:
    fit = partial(FITS["krylov"], partial(cut, blocks=4), resume=True)
    for tasks in count():
        place = tmp_path / str(tasks)
        try:
            fit(client=SimulatedCluster(tasks, **{end: tasks}), checkpoint=place)
        except (DriverDied, EngineError):
            assert bits(fit(client=SimulatedCluster(1000 + tasks), checkpoint=place)) == expected("krylov", 4)
        else:
            break
    assert tasks > 20


def order_of(seed: int) -> list[int]:
    """The order in which blocks are mapped, with the blocks that are mapped again."""
    seen = list[int]()

    def mapped(block: Any, _: Any) -> float:
        seen.append(block.index)
        return 0.0

    source = open_data(np.arange(400.0).reshape(100, 4), block_bytes=128)
    with connect(source, client=SimulatedCluster(seed, **ROUGH)) as session:
        for _ in range(3):
            session.run(Pass(mapped, None))
    return seen


def test_a_seed_does_the_same_again() -> None:
    orders = [order_of(seed) for seed in (1, 1, 2, 3)]
    assert orders[0] == orders[1]
    assert orders[1] != orders[2] != orders[3]
    assert any(len(order) > 3 * 25 for order in orders)  # some are lost, or run twice


def test_what_depends_on_the_order_of_tasks_is_found() -> None:
    """A map that counts its calls is none."""
    source = open_data(np.arange(400.0).reshape(100, 4), block_bytes=128)

    def total(client: Any) -> float:
        calls = iter(range(10**6))
        with connect(source, client=client) as session:
            return float(session.run(Pass(lambda block, _: float(next(calls) * block.features.sum()), None)))

    assert len({total(SimulatedCluster(seed, **ROUGH)) for seed in range(5)}) > 1


def test_rows_come_whole_to_the_store_that_gets_them(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(300, 5))
    zarr.create_array(tmp_path / "x.zarr", data=rows, chunks=(20, 5))
    model = PPCA(2).fit(rows)
    for seed in range(5):
        with pytest.raises(DriverDied):
            model.transform(
                str(tmp_path / "x.zarr"),
                out=tmp_path / "z.zarr",
                client=SimulatedCluster(seed, driver_tasks=0, **ROUGH),
            )
        assert not (tmp_path / "z.zarr").exists()
    model.transform(str(tmp_path / "x.zarr"), out=tmp_path / "z.zarr", client=SimulatedCluster(1, **ROUGH))
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "z.zarr")["scores"][:], model.transform(rows))


def test_errors_reach_the_caller_with_their_seed() -> None:
    rows = np.random.default_rng(0).normal(size=(300, 5))
    rows[211, 3] = np.nan
    with pytest.raises(DataError, match="row 211, column 3") as raised:
        PPCA(2).fit(cut(rows, 12), client=SimulatedCluster(4, **ROUGH))
    assert raised.value.__notes__ == ["simulated with seed 4"]


def test_progress_ends_where_all_is_done() -> None:
    told = list[tuple[int, int]]()
    source = open_data(np.ones((100, 4)), block_bytes=128)
    with connect(source, client=SimulatedCluster(3, **ROUGH)) as session:
        session.on_progress = lambda done, total: told.append((done, total))
        session.run(Pass(lambda block, _: 1.0, None))
    assert told == [(at, told[0][1]) for at in range(1, told[0][1] + 1)]
