"""The sheets that embeddings are measured on, and the measure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from benchmarks.cases import lle_sheets
from benchmarks.sheets import Array, flat, s_curve, sheet_error, swiss_roll, whitened, write_bent_sheet

SHEET = flat(500, 0)


@pytest.mark.parametrize(("bend", "sides"), [(s_curve, (3 * np.pi, 5.0)), (swiss_roll, (None, 21.0 / 8.0))])
def test_bending_does_not_stretch(bend, sides) -> None:
    """Small steps anywhere on the flat sheet are steps of the same length on the bent one."""
    step = 1e-5
    for axis, side in enumerate(sides):
        moved = SHEET.copy()
        moved[:, axis] += step
        inside = (abs(SHEET[:, 0] - 0.5) > 0.01) & (moved[:, 0] < 1)  # the S has its seam in the middle
        lengths = np.linalg.norm(bend(moved) - bend(SHEET), axis=1)[inside] / step
        expected = np.median(lengths) if side is None else side
        np.testing.assert_allclose(lengths, expected, rtol=1e-2)


def test_the_error_is_zero_for_the_sheet_itself_and_large_for_another() -> None:
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(2, 2)))[0]
    stretched: Array = SHEET * [3.0, 1.0]
    assert sheet_error(whitened(stretched) @ turn * 7.0 + 2.0, SHEET) < 1e-12
    assert sheet_error(flat(500, 9), SHEET) > 0.9
    parabola = np.column_stack([SHEET[:, 0], (SHEET[:, 0] - 0.5) ** 2])
    assert sheet_error(whitened(parabola), SHEET) > 0.4


def test_a_bent_sheet_is_stored_with_its_coordinates(tmp_path: Path) -> None:
    sheet = write_bent_sheet(tmp_path / "data.zarr", 300, 6, 2)
    rows = np.asarray(zarr.open_array(tmp_path / "data.zarr", mode="r")[...])
    near = np.linalg.norm(rows[:, None] - rows[None], axis=2).argsort(axis=1)[:, 1]
    assert np.linalg.norm(sheet - sheet[near], axis=1).mean() < 0.1


def test_the_cases_measure_and_draw(tmp_path: Path) -> None:
    arguments = {"neighbours": 8, "noise": 0.0}
    row = lle_sheets.two_views(tmp_path, 0.1, **arguments)
    assert all(len(errors) == 2 and 0 <= min(errors) <= max(errors) <= 1 for errors in row["errors"].values())
    row |= {"task": "views/k = 8, noise 0", "status": "ok", "arguments": arguments}
    assert "joint is better" in lle_sheets.summarise([row]).markdown
    (picture,) = lle_sheets.draw([row], tmp_path)
    assert picture.stat().st_size > 10_000
