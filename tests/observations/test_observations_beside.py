"""Error bars, offsets and covariates beside the entries, through public names, against densities of SciPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.linalg as la
import scipy.sparse as sp
import xarray as xr
import zarr
from distributed import Client
from scipy.stats import multivariate_normal

import dlatent
from dlatent import PPCA, DataError, FactorAnalysis, NoiseFloorWarning, SupervisedPPCA, Workers, select_n_components
from dlatent.cli.main import main
from tests.observations.cases import drawn

KINDS = [PPCA, FactorAnalysis]


class Case(NamedTuple):
    """Rows, what stands beside them, and the loadings."""

    x: Any
    beside: dict[str, Any]
    loadings: Any


def case(seed: int = 0, rows: int = 200, features: int = 9) -> Case:
    """Normal entries with error bars, some 0 and some infinite, offsets of rows and two covariates."""
    rng = np.random.default_rng(seed)
    loadings, effects = rng.normal(size=(features, 2)), rng.normal(size=(2, features))
    bars = 0.5 * np.exp(rng.normal(size=(rows, features)))
    bars[rng.random(bars.shape) < 0.05] = 0.0
    noise = 0.4 * rng.normal(size=bars.shape) + bars * rng.normal(size=bars.shape)
    bars[rng.random(bars.shape) < 0.05] = np.inf
    covariates = np.column_stack([20.0 + 5.0 * rng.normal(size=rows), rng.random(rows) < 0.4])
    offset = rng.normal(size=(rows, 1))
    x = rng.normal(size=(rows, 2)) @ loadings.T + covariates @ effects + offset + rng.normal(size=features) + noise
    x[rng.random(x.shape) < 0.05] = np.nan
    return Case(x, {"uncertainty": bars, "offset": offset, "covariates": covariates}, loadings)


def densities(data: Case, loadings: Any, mean: Any, effects: Any, noise: Any) -> Any:
    """log p of the observed entries of each row, from the covariance of its features."""
    each = []
    for x, s, o, c in zip(data.x, *data.beside.values(), strict=True):
        seen = np.isfinite(x) & np.isfinite(s)
        covariance = loadings @ loadings.T + np.diag(noise + np.where(np.isfinite(s), s, 0.0) ** 2)
        centre = mean + c @ effects + o
        each.append(multivariate_normal.logpdf(x[seen], centre[seen], covariance[np.ix_(seen, seen)]))
    return np.array(each)


def parts(model: Any, data: Case) -> tuple[Any, ...]:
    noise = np.broadcast_to(model.noise_variance_, data.x.shape[1])
    return model.components_.T, model.mean_, model.effects_, noise


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_is_that_of_a_dense_computation_and_a_maximum(kind: Any) -> None:
    data, rng = case(), np.random.default_rng(1)
    model = kind(2, missing="nan", tol=1e-11).fit(data.x, **data.beside)
    dense, found = densities(data, *parts(model, data)), parts(model, data)
    assert model.converged_
    np.testing.assert_allclose(model.score_samples(data.x, **data.beside), dense, rtol=1e-9)
    assert model.log_likelihood_ == pytest.approx(dense.sum(), rel=1e-11)
    for _ in range(20):
        step = [1e-4 * rng.normal(size=each.shape) * np.abs(each) for each in found]
        if kind is PPCA:
            step[3] = np.full(len(step[3]), step[3][0])
        around = [densities(data, *(p + sign * s for p, s in zip(found, step, strict=True))).sum() for sign in (-1, 1)]
        assert max(around) < dense.sum()
        assert abs(around[1] - around[0]) < 0.02 * (2.0 * dense.sum() - sum(around))  # no slope beside the curvature


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_filled_entries_are_those_of_the_dense_posterior(kind: Any) -> None:
    data = case(2)
    model = kind(2, missing="nan", scale="none").fit(data.x, **data.beside)
    loadings, mean, effects, noise = parts(model, data)
    lengths = np.linalg.norm(loadings, axis=0) if kind is PPCA else 1.0
    scores, about = model.transform(data.x, **data.beside), model.posterior(data.x, **data.beside)
    filled, variance = (getattr(model, name)(data.x, **data.beside) for name in ("impute", "impute_variance"))
    np.testing.assert_array_equal(about["scores"], scores)
    for i in range(len(data.x)):
        x, s, o, c = data.x[i], *(each[i] for each in data.beside.values())
        seen = np.isfinite(x) & np.isfinite(s)
        white = loadings[seen] / (noise[seen] + s[seen] ** 2)[:, None]
        spread = la.inv(np.eye(2) + white.T @ loadings[seen])
        centre = mean + c @ effects + o
        z = spread @ white.T @ (x - centre)[seen]
        np.testing.assert_allclose(scores[i] / lengths, z, atol=1e-9)
        np.testing.assert_allclose(filled[i, ~seen], (centre + loadings @ z)[~seen], atol=1e-9)
        expected = noise + np.einsum("jk,kl,jl->j", loadings, spread, loadings)
        np.testing.assert_allclose(variance[i, ~seen], expected[~seen], atol=1e-9)
        np.testing.assert_array_equal(filled[i, seen], x[seen])


def test_an_infinite_error_bar_is_a_missing_entry() -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(200, 8))
    hidden = rng.random(x.shape) < 0.2
    missing = PPCA(2, missing="nan", prior="ml", scale="none", tol=1e-12).fit(np.where(hidden, np.nan, x))
    model = PPCA(2, tol=1e-12).fit(x, uncertainty=np.where(hidden, np.inf, 0.0))
    assert model.log_likelihood_ == pytest.approx(missing.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(model.noise_variance_, missing.noise_variance_, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_error_bars_find_what_noisy_entries_hide(kind: Any) -> None:
    """Entries of which a few are ten times as noisy as others."""
    rng = np.random.default_rng(4)
    loadings, z = rng.normal(size=(30, 3)), rng.normal(size=(3000, 3))
    bars = 0.7 * np.exp(rng.normal(size=(3000, 30)))
    x = z @ loadings.T + 0.1 * rng.normal(size=bars.shape) + bars * rng.normal(size=bars.shape)
    model, plain = kind().fit(x, uncertainty=bars), kind(3).fit(x)
    assert model.n_components_ == 3
    angles = [la.subspace_angles(each.components_.T, loadings).max() for each in (model, plain)]
    assert angles[0] < 0.35 * angles[1]
    errors = [
        np.sqrt(np.mean((each.inverse_transform(scores) - z @ loadings.T) ** 2))
        for each, scores in ((model, model.transform(x, uncertainty=bars)), (plain, plain.transform(x)))
    ]
    assert errors[0] < 0.4 * errors[1]
    about = model.set_params(whiten=True) if kind is PPCA else model
    found = about.inverse_transform(about.transform(x, uncertainty=bars))
    covariance = about.posterior(x, uncertainty=bars)["covariance"].values
    spread = np.einsum("jk,nkl,jl->nj", model.components_.T, covariance, model.components_.T)
    inside = np.abs(found - z @ loadings.T) < 1.645 * np.sqrt(spread)
    assert 0.87 < inside.mean() < 0.93


def test_a_fit_of_many_rows_begins_where_some_of_them_lead() -> None:
    """From their principal axes alone it took six iterations."""
    rng = np.random.default_rng(0)
    bars = rng.uniform(0.3, 1.5, (45_000, 100))
    x = rng.normal(size=(45_000, 2)) @ rng.normal(size=(2, 100)) + (0.5 + bars) * rng.normal(size=bars.shape)
    assert PPCA(2).fit(x, uncertainty=bars).n_iter_ <= 5


def test_error_bars_that_are_too_wide_are_told() -> None:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(200, 2)) @ rng.normal(size=(2, 8)) + 0.1 * rng.normal(size=(200, 8))
    with pytest.warns(NoiseFloorWarning, match="too wide"):
        PPCA(2).fit(x, uncertainty=1.0)


def test_results_do_not_depend_on_containers_chunks_or_who_computes(tmp_path: Path, client: Client) -> None:
    data = case(6, 300)
    zarr.create_array(tmp_path / "x.zarr", data=data.x, chunks=(64, 9))
    zarr.create_array(tmp_path / "s.zarr", data=data.beside["uncertainty"], chunks=(50, 3))
    stored = {**data.beside, "uncertainty": str(tmp_path / "s.zarr")}
    whole = PPCA(2, missing="nan").fit(str(tmp_path / "x.zarr"), **stored)
    scores = whole.transform(data.x, **data.beside)
    names = [f"f{number}" for number in range(9)]
    labelled = xr.DataArray(data.x, dims=("star", "band"), coords={"band": names})
    bars = xr.DataArray(data.beside["uncertainty"], dims=("star", "band"), coords={"band": names})
    covariates = pd.DataFrame(data.beside["covariates"], columns=["age", "sex"])
    others = {**data.beside, "uncertainty": bars, "covariates": covariates}
    model = PPCA(2, missing="nan").fit(labelled, **others)
    assert model.result_["effects"].sel(covariate="age", band="f3").item() == pytest.approx(model.effects_[0, 3])
    np.testing.assert_allclose(model.transform(labelled, **others).values, scores, atol=1e-6)
    lazy = {**data.beside, "uncertainty": da.from_array(data.beside["uncertainty"], chunks=(40, 9))}
    rows = da.from_array(data.x, chunks=(100, 9))
    model = PPCA(2, missing="nan").fit(rows, **lazy)
    np.testing.assert_allclose(model.transform(rows, **lazy), scores, atol=1e-6)
    whole.transform(str(tmp_path / "x.zarr"), out=tmp_path / "t.zarr", client=client, **stored)
    np.testing.assert_array_equal(zarr.open_group(tmp_path / "t.zarr")["scores"][:], scores)


def test_a_model_is_saved_with_what_it_asks_of_new_rows(tmp_path: Path) -> None:
    data = case(7)
    covariates = pd.DataFrame(data.beside["covariates"], columns=["age", "sex"])
    beside = {**data.beside, "covariates": covariates}
    model = PPCA(2, missing="nan").fit(data.x, **beside)
    model.save(tmp_path / "m.zarr")
    again = dlatent.load(tmp_path / "m.zarr")
    np.testing.assert_array_equal(again.transform(data.x, **beside), model.transform(data.x, **beside))
    np.testing.assert_array_equal(model.fit_transform(data.x, **beside), model.transform(data.x, **beside))
    with pytest.raises(DataError, match="covariates are those of the model in another order"):
        again.transform(data.x, **{**beside, "covariates": covariates[["sex", "age"]]})
    with pytest.raises(DataError, match="fitted with offset=; give that of these samples"):
        again.transform(data.x, **{**beside, "offset": None})
    with pytest.raises(DataError, match="covariates has 1 columns, and that of the fit had 2"):
        again.score_samples(data.x, **{**beside, "covariates": data.beside["covariates"][:, :1]})
    with pytest.raises(DataError, match="fitted without uncertainty="):
        SupervisedPPCA(2).fit(np.nan_to_num(data.x), np.arange(200) % 2).transform(
            np.nan_to_num(data.x), uncertainty=1.0
        )


def test_a_checkpoint_is_of_what_stands_beside(tmp_path: Path) -> None:
    data = case(8)
    model = PPCA(2, missing="nan").fit(data.x, checkpoint=tmp_path / "c", **data.beside)
    scores = PPCA(2, missing="nan").fit_transform(data.x, checkpoint=tmp_path / "c", resume=True, **data.beside)
    np.testing.assert_array_equal(scores, model.transform(data.x, **data.beside))
    wider = {**data.beside, "uncertainty": 2.0 * data.beside["uncertainty"]}
    with pytest.raises(dlatent.StoreError):
        PPCA(2, missing="nan").fit(data.x, checkpoint=tmp_path / "c", resume=True, **wider)


@pytest.mark.parametrize(
    ("beside", "said"),
    [
        ({"uncertainty": np.where(np.eye(80, 7) * (np.arange(80) == 3)[:, None], -1.0, 1.0)}, "row 3, column 3 is -1"),
        ({"uncertainty": np.ones((80, 6))}, r"has shape \(80, 6\), and the data \(80, 7\); expected 80 × 7"),
        ({"uncertainty": np.ones((79, 7))}, r"has shape \(79, 7\)"),
        ({"offset": 1.0}, "offset is the number 1.0; give one for each row"),
        ({"offset": np.ones((80, 3))}, "expected 80 × 1 or 7"),
        ({"covariates": np.where(np.arange(80) == 5, np.nan, 1.0)}, "covariates, row 5, column 0 is nan"),
        ({"covariates": np.ones(70)}, "expected 80 rows"),
        ({"covariates": ["a", "b"] * 40}, "covariates are numbers"),
    ],
)
def test_what_cannot_stand_beside_the_entries_is_named(beside: dict[str, Any], said: str) -> None:
    x = np.random.default_rng(0).normal(size=(80, 7))
    with pytest.raises(DataError, match=said):
        PPCA(2).fit(x, **beside)


def test_what_does_not_go_with_it_is_refused() -> None:
    x = np.random.default_rng(0).poisson(3.0, size=(80, 7)).astype(float)
    with pytest.raises(DataError, match="uncertainty= is of normal entries, and likelihood='poisson'"):
        PPCA(2, likelihood="poisson").fit(x, uncertainty=1.0)
    with pytest.raises(DataError, match="n_components='mle' is for normal entries alone, and not for uncertainty="):
        PPCA("mle").fit(x, uncertainty=1.0)
    with pytest.raises(DataError, match="scale='spread' does not go with uncertainty="):
        PPCA(2, scale="spread").fit(x, uncertainty=1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'uncertainties'"):
        PPCA(2).fit(x, uncertainties=1.0)
    names = xr.DataArray(x, dims=("row", "gene"), coords={"gene": list("abcdefg")})
    with pytest.raises(DataError, match="the labels of uncertainty are those of the model in another order"):
        PPCA(2).fit(names, uncertainty=xr.ones_like(names).isel(gene=slice(None, None, -1)))
    with pytest.raises(DataError, match="precision of the features is of normal entries"):
        PPCA(2).fit(x, uncertainty=1.0).get_precision()


def test_covariates_in_other_units_have_effects_in_other_units() -> None:
    data = case(9)
    model = FactorAnalysis(2, missing="nan", tol=1e-12).fit(data.x, **data.beside)
    other = data.beside["covariates"] * [1e-3, 1e3] + [7.0, -2.0]
    turned = FactorAnalysis(2, missing="nan", tol=1e-12).fit(data.x, **{**data.beside, "covariates": other})
    assert turned.log_likelihood_ == pytest.approx(model.log_likelihood_, rel=1e-9)
    np.testing.assert_allclose(turned.effects_ * [[1e-3], [1e3]], model.effects_, atol=1e-4)
    np.testing.assert_allclose(turned.mean_ + [7.0, -2.0] @ turned.effects_, model.mean_, atol=1e-4)


def test_binary_entries_with_offsets_begin_where_those_without_do() -> None:
    """An offset of each feature is a part of its mean."""
    entries = drawn("bernoulli", 120, 8)
    offsets = np.broadcast_to(np.linspace(-2.0, 2.0, 8), entries.shape)
    plain, model = (PPCA(1, likelihood="bernoulli").fit(entries, **more) for more in ({}, {"offset": offsets}))
    assert model.log_likelihood_ == pytest.approx(plain.log_likelihood_, rel=1e-9)
    assert abs(model.n_passes_ - plain.n_passes_) <= 1


@pytest.mark.parametrize("name", ["poisson", "negative_binomial"])
def test_offsets_and_covariates_of_counts(name: str) -> None:
    """Batches that shift half of the rows hide the loadings, unless they are covariates; exposures are offsets."""
    rng = np.random.default_rng(10)
    loadings, effects = 0.8 * rng.normal(size=(40, 2)), 2.0 * rng.normal(size=(1, 40))
    size, batch = rng.normal(size=(600, 1)), np.arange(600) % 2.0
    predictors = rng.normal(size=(600, 2)) @ loadings.T + size + batch[:, None] * effects - 0.5
    counts = rng.poisson(np.exp(np.minimum(predictors, 6.0))).astype(float)
    model = PPCA(2, likelihood=name, row_effects=False).fit(counts, offset=size, covariates=batch)
    blind = PPCA(2, likelihood=name, row_effects=False).fit(counts, offset=size)
    angles = [np.degrees(la.subspace_angles(each.components_.T, loadings).max()) for each in (model, blind)]
    assert angles[0] < 10.0 < 40.0 < angles[1]
    assert np.corrcoef(model.effects_[0], effects[0])[0, 1] > 0.98
    moved = PPCA(2, likelihood=name, row_effects=False).fit(counts, offset=size[:, 0] + 3.0, covariates=batch)
    np.testing.assert_allclose(moved.mean_ + 3.0, model.mean_, atol=1e-3)
    sparse = PPCA(2, likelihood=name, row_effects=False).fit(sp.csr_array(counts), offset=size, covariates=batch)
    np.testing.assert_allclose(sparse.effects_, model.effects_, atol=1e-6)
    assert PPCA(2, likelihood=name).fit(counts, covariates=batch).transform(counts, covariates=batch).shape == (600, 3)


def test_numbers_of_components_are_compared_with_what_stands_beside() -> None:
    data = case(11, 200)
    chosen = select_n_components(PPCA(missing="nan"), data.x, [1, 2, 3], **data.beside)
    assert (chosen.attrs["best"], chosen.attrs["criterion"]) == (2, "cross_validation")
    with pytest.raises(DataError, match="with nothing beside them"):
        select_n_components(PPCA(missing="nan"), data.x, [1, 2], criterion="held_out", **data.beside)
    with pytest.raises(DataError, match="covariates= is for PPCA and FactorAnalysis"):
        select_n_components(SupervisedPPCA(), data.x, [1], covariates=data.beside["covariates"])


def test_a_plan_counts_what_stands_beside(tmp_path: Path) -> None:
    arrays = [
        zarr.create_array(tmp_path / f"{name}.zarr", shape=(200_000, 500), chunks=(2000, 500), dtype="f4")
        for name in "xs"
    ]
    stores = [dlatent.open_data(each, missing_chunks="fill") for each in arrays]
    where = Workers(2, memory=2**30)
    plan = PPCA(10).plan(stores[0], uncertainty=stores[1], client=where)
    assert plan.task.data.nbytes == 2 * 4 * 200_000 * 500
    assert plan.worker_memory < 2**30


def test_commands_take_what_stands_beside(tmp_path: Path) -> None:
    data = case(12)
    places = {"x": data.x, **data.beside}
    for name, values in places.items():
        zarr.create_array(tmp_path / f"{name}.zarr", data=values)
    beside = [text for name in data.beside for text in (f"--{name}", str(tmp_path / f"{name}.zarr"))]
    model, x, out = (str(tmp_path / f"{name}.zarr") for name in ("model", "x", "scores"))
    assert main(["fit", "ppca", x, "-k", "2", "--missing", "nan", *beside, "-o", model]) == 0
    assert main(["transform", model, x, *beside, "-o", out]) == 0
    expected = dlatent.load(model).transform(data.x, **data.beside)
    np.testing.assert_array_equal(zarr.open_group(out)["scores"][:], expected)
