"""Choosing the number of components by cells that were held out."""

from __future__ import annotations

import json

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from scipy.stats import norm

from dlatent import PPCA, DataError, FactorAnalysis, SupervisedPPCA, select_n_components
from dlatent.cli.main import main
from dlatent.linear_gaussian.held_out import Hiding, chosen, hidden
from dlatent.testing import oracles
from dlatent.testing.simulators import simulate

DATA = simulate(300, (10, 2), 3, noise=(0.2, 0.2), random_state=2)
X = np.where(np.random.default_rng(0).random(DATA.features.shape) < 0.1, np.nan, DATA.features)


def stored(x):
    lines, columns = np.nonzero(~np.isnan(x))
    return sp.csr_array((x[lines, columns], (lines, columns)), shape=x.shape)


def test_the_true_number_is_chosen_though_the_likelihood_of_the_fit_grows():
    found = select_n_components(PPCA(tol=1e-7), X, [1, 2, 3, 4, 5])
    assert found.attrs["best"] == 3
    assert (np.diff(found["log_likelihood"]) > 0).all()
    assert found["held_out_rmse"].sel(n_components=3) < found["held_out_rmse"].sel(n_components=1)


@pytest.mark.parametrize("make", [PPCA, pytest.param(FactorAnalysis, marks=pytest.mark.slow)])
def test_scores_are_those_of_a_dense_gaussian(make):
    """Each held-out cell given the other cells of its row, and the fit is that of the data with NaN there."""
    hiding = Hiding(0.2, 7)
    rest = hidden(X, 0, hiding)
    model = make(2, missing="nan").fit(rest)
    dense = oracles.DenseModel(model.components_.T, model.mean_, np.broadcast_to(model.noise_variance_, 10))
    scores, errors = [], []
    for row, whole in zip(rest, X, strict=True):
        gone = np.isnan(row)
        if gone.any():
            ahead = oracles.missing_given(dense, row)
            known = ~np.isnan(whole[gone])
            away = (whole[gone] - ahead.mean)[known]
            scores += norm.logpdf(away, scale=np.sqrt(np.diag(ahead.covariance)[known])).tolist()
            errors += (away**2).tolist()
    found = select_n_components(make(), X, [2], held_out=0.2, random_state=7)
    assert found["log_likelihood"].item() == model.log_likelihood_
    assert found["held_out_log_likelihood"].item() == pytest.approx(np.mean(scores), rel=1e-9)
    assert found["held_out_rmse"].item() == pytest.approx(np.sqrt(np.mean(errors)), rel=1e-9)


def test_the_same_cells_are_held_out_whatever_the_input_and_its_blocks(tmp_path):
    one = select_n_components(PPCA(tol=1e-15), X, [2])
    lazy = select_n_components(PPCA(tol=1e-15), da.from_array(X, chunks=(70, 4)), [2])
    sparse = select_n_components(PPCA(tol=1e-15, missing="unstored"), stored(X), [2])
    for other in (lazy, sparse):
        for name in ("held_out_log_likelihood", "log_likelihood"):
            assert other[name].item() == pytest.approx(one[name].item(), rel=1e-9)


def test_the_part_that_is_held_out_is_the_one_asked_for_and_depends_on_the_seed():
    rows, columns = np.arange(1000, dtype=np.uint64)[:, None], np.arange(200, dtype=np.uint64)
    one, other = (chosen(rows, columns, Hiding(0.3, seed)) for seed in (0, 1))
    for places in (one, other):
        assert places.mean() == pytest.approx(0.3, abs=0.005)
        assert abs(places.mean(axis=0) - 0.3).max() < 0.08
        assert abs(np.corrcoef(places[:, :20].T) - np.eye(20)).max() < 0.15
    assert (one & other).mean() == pytest.approx(0.09, abs=0.005)


def test_targets_are_known_and_features_held_out():
    found = select_n_components(SupervisedPPCA(), X, [1, 3], DATA.targets)
    assert found.attrs["best"] == 3
    assert found["held_out_rmse"][1] < select_n_components(PPCA(), X, [3])["held_out_rmse"][0]


def test_the_command_prints_the_choice(tmp_path, capsys):
    array = zarr.create_array(tmp_path / "x.zarr", shape=X.shape, chunks=(60, 10), dtype=X.dtype)
    array[:] = X
    place = str(tmp_path / "x.zarr")
    assert main(["choose", "ppca", place, "-k", "1,3,5", "--missing", "nan"]) == 0
    assert "3 ←" in capsys.readouterr().out
    assert main(["choose", "fa", place, "-k", "1,3", "--held-out", "0.2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["best"] == 3
    assert main(["choose", "ppca", place, "-k", "1,no"]) != 0


def test_refusals():
    with pytest.raises(DataError, match="above 0 and below 1"):
        select_n_components(PPCA(), X, [1], held_out=1.0)
    with pytest.raises(DataError, match="no numbers of components"):
        select_n_components(PPCA(), X, [])
    with pytest.raises(DataError, match="missing='unstored'"):
        select_n_components(PPCA(), stored(X), [1])
