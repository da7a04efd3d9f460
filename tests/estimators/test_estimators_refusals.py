"""Bad input gets one clear error that says where and what to do, and leaves nothing on disk."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import xarray as xr
import zarr
from estimator_cases import CLASSES, PARTLY, D, N, X, Y
from scipy.stats import multivariate_normal

from dlatent import (
    PPCA,
    CorrespondencePPCA,
    DataError,
    DataWarning,
    DlatentError,
    FactorAnalysis,
    NotFittedError,
    PlanError,
    StoreError,
    SupervisedPPCA,
)

ROUTES = ["covariance", "krylov"]
BAD = {"NaN": (np.nan, "is nan"), "infinity": (np.inf, "is inf"), "minus infinity": (-np.inf, "is -inf")}


def spoiled(value, row, column, shape=(60, 8)):
    x = np.random.default_rng(0).standard_normal(shape) + 3
    x[row, column] = value
    return x


def as_zarr(x, tmp_path):
    zarr.create_array(tmp_path / "x.zarr", data=x, chunks=(20, 4))
    return tmp_path / "x.zarr"


KINDS = {
    "numpy": lambda x, _: x,
    "sparse": lambda x, _: sp.csr_array(x),
    "dask": lambda x, _: da.from_array(x, chunks=(20, 4)),
    "zarr": as_zarr,
    "xarray": lambda x, _: xr.DataArray(x, dims=("a", "b")),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", [2, 47])
def test_values_that_are_not_finite_are_named_with_row_column_and_block(kind, bad, solver, row, tmp_path):
    value, words = BAD[bad]
    data = KINDS[kind](spoiled(value, row, 5), tmp_path)
    blocks = kind == "dask"
    place = rf"row {row}, column 5 \(block {row // 20 if blocks else 0}, row {row % 20 if blocks else row} of it\)"
    with pytest.raises(DataError, match=rf"{place} {words}.*fill or remove"):
        PPCA(2, solver=solver).fit(data)
    with pytest.raises(DataError, match=place):
        SupervisedPPCA(2, solver=solver).fit(data, PARTLY)


SHAPES = {
    "rows of two lengths": ([[1.0, 2.0], [3.0]], "give rows of one length"),
    "a number": (3.0, "cannot read data of type"),
    "nothing": (None, "cannot read data of type"),
    "one row": (X[:1], "has 1 sample; a fit needs at least 2"),
    "a DataArray of three axes": (xr.DataArray(X[None]), "expected samples × features"),
    "a Dataset of two matrices": (xr.Dataset({"a": (("i", "j"), X), "b": (("i", "j"), X)}), "pass one of them"),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("method", ["fit", "plan"])
def test_what_is_no_matrix_is_refused(name, method):
    data, words = SHAPES[name]
    with pytest.raises(DataError, match=words):
        getattr(PPCA(1), method)(data)


@pytest.mark.parametrize("width", [2, *(pytest.param(width, marks=pytest.mark.slow) for width in (1, 5))])
@pytest.mark.parametrize(
    "model",
    [
        *(PPCA(solver=solver) for solver in ("covariance", "krylov", "em")),
        *(FactorAnalysis(solver=solver) for solver in ("covariance", "accelerated_em", "em")),
        PPCA(missing="nan", prior="ml"),
        FactorAnalysis(missing="nan", prior="ml"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_as_many_components_as_features_are_the_normal_distribution(model, width):
    rng = np.random.default_rng(width)
    x = rng.standard_normal((60, width)) @ rng.standard_normal((width, width)) + 3.0
    found = model.set_params(n_components=width).fit(x)
    expected = multivariate_normal(x.mean(axis=0), np.cov(x.T, bias=True)).logpdf(x).sum()
    assert found.log_likelihood_ == pytest.approx(expected, rel=1e-7)
    assert found.converged_
    np.testing.assert_allclose(found.score_samples(x).sum(), expected, rtol=1e-7)


@pytest.mark.parametrize(("rows", "columns", "k"), [(10, 5, 6), (4, 9, 4), (5, 5, 7), (60, 8, 100)])
def test_too_many_components(rows, columns, k):
    most = min(rows - 1, columns)
    words = f"n_components is {k}, but data of {rows} samples × {columns} features allow at most {most}"
    x = np.random.default_rng(0).standard_normal((rows, columns))
    with pytest.raises(DataError, match=words):
        PPCA(k).fit(x)
    with pytest.raises(DataError, match=words):
        SupervisedPPCA(k).fit(x, np.arange(rows) % 2)


OPTIONS = {
    "n_components": [0, -1, 1.5, "2", True],
    "tol": [0.0, -1e-9, float("nan"), "small", None],
    "max_iter": [0, -3, 2.5, "many"],
    "noise_floor": [-0.1, 1.0, float("nan"), "low"],
    "solver": ["svd", "columns", None],
    "zero_rows": ["warn", None],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in OPTIONS.items() for value in values])
def test_options_that_make_no_sense_are_refused_by_name(name, value):
    model = PPCA(**{name: value})
    with pytest.raises(DataError, match=rf"^{name} is .*expected"):
        model.fit(X)


def test_options_of_the_targets_are_refused_by_name():
    with pytest.raises(DataError, match=r"^target_noise_floor is"):
        SupervisedPPCA(2, target_noise_floor=-1).fit(X, Y)
    with pytest.raises(DataError, match=r"^target_type is 'classes'"):
        SupervisedPPCA(2, target_type="classes").fit(X, Y)


CONSTANT = [("numpy", 3.0), ("numpy", 0.1), ("numpy", 1e6 + 1 / 3), ("sparse", 3.0), ("sparse", 0.1)]


@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize(("kind", "value"), CONSTANT)
def test_constant_data_have_no_components(solver, kind, value):
    x = np.full((30, 6), value)
    with pytest.raises(DataError, match="the data are constant"):
        PPCA(2, solver=solver).fit(KINDS[kind](x, None))
    with pytest.raises(DataError, match="the data are constant"):
        SupervisedPPCA(2, solver=solver).fit(KINDS[kind](x, None), Y[:30])


@pytest.mark.parametrize("solver", ROUTES)
@pytest.mark.parametrize("kind", ["numpy", "sparse", "dask", "zarr"])
def test_rows_of_zeros_are_refused_or_kept(kind, solver, tmp_path):
    x = X.copy()
    x[[7, 41]] = 0.0
    data = KINDS[kind](x, tmp_path)
    with pytest.raises(DataError, match=r"row (7 \(block 0\)|41 \(block \d\)) is all zeros.*zero_rows='keep'"):
        PPCA(2, solver=solver, zero_rows="raise").fit(data)
    with pytest.warns(DataWarning, match="^2 rows are all zeros"):
        kept = PPCA(2, solver=solver).fit(data)
    assert kept.n_samples_ == N
    with pytest.warns(DataWarning, match="^2 rows are all zeros"):
        assert kept.log_likelihood_ == pytest.approx(PPCA(2).fit(x).log_likelihood_, rel=1e-9)


def test_stored_zeros_are_zeros():
    x = sp.csr_array(X)
    x.data[x.indptr[9] : x.indptr[10]] = 0.0
    with pytest.raises(DataError, match=r"row 9 "):
        PPCA(2, zero_rows="raise").fit(x)


TARGETS = {
    "no targets": (None, "requires y to be passed.*; for data without labels use PPCA"),
    "too few": (CLASSES[:-1], rf"y has shape \(59,\); the data have {N} samples"),
    "a matrix too short": (Y[:10], r"y has shape \(10, 2\)"),
    "three axes": (np.zeros((N, 2, 2)), r"y has shape \(60, 2, 2\)"),
    "none labelled, -1": (np.full(N, -1), "no row of y is labelled"),
    "none labelled, None": (np.full(N, None), "no row of y is labelled"),
    "none labelled, NaN": (np.full(N, np.nan), "no row of y is labelled"),
    "none labelled, outputs": (np.full((N, 2), np.nan), "no row of y is labelled"),
    "one class": (np.full(N, "a"), "all 60 labelled rows have the class 'a'"),
    "one class among unlabelled": (np.where(np.arange(N) < 5, 3, -1), "all 5 labelled rows have the class 3"),
    "all different": (np.arange(N), "all 60 rows have classes of their own.*target_type='regression'"),
    "mixed types": (np.array([1, "a"] * (N // 2), dtype=object), "mix types that cannot be ordered"),
    "constant numbers": (np.full((N, 2), 0.25), "all 60 labelled rows have the same targets"),
    "an infinite number": (np.where(np.arange(N) == 3, np.inf, Y[:, 0]), "row 3: y is infinite"),
    "a number partly missing": (
        np.where((np.arange(N) == 6)[:, None] & [False, True], np.nan, Y),
        "row 6: output 1 of y is missing but others are present",
    ),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("method", ["fit", "plan"])
def test_targets_that_cannot_be_used_are_refused(name, method):
    y, words = TARGETS[name]
    with pytest.raises(DataError, match=words):
        getattr(SupervisedPPCA(2), method)(X, y)


@pytest.mark.parametrize("word", ["nan", "Unknown", ""])
def test_a_class_that_means_no_label_is_named(word: str) -> None:
    y = np.array(["cat", "dog", word])[np.arange(len(X)) % 3]
    with pytest.warns(DataWarning, match=f"^{word!r} is fitted as a class like the others, with {len(X) // 3} rows"):
        SupervisedPPCA(2).fit(X, y)


def test_lone_classes_are_kept_and_named_in_a_warning():
    y = np.where(np.arange(N) == 4, 9, CLASSES)
    with pytest.warns(DataWarning, match="^1 of 4 classes have one labelled row, for example 9"):
        assert SupervisedPPCA(1).fit(X, y).classes_.tolist() == [0, 1, 2, 9]


def test_masks_must_fit():
    for mask in (np.ones(5, dtype=bool), np.ones(N), np.ones((N, 1), dtype=bool)):
        with pytest.raises(DataError, match="labelled has shape"):
            SupervisedPPCA(1).fit(X, CLASSES, labelled=mask)


def test_multilabel_targets_must_be_zero_or_one():
    with pytest.raises(DataError, match="must be 0 or 1; use target_type='regression'"):
        SupervisedPPCA(1, target_type="multilabel").fit(X, np.column_stack([CLASSES, CLASSES]))


def test_text_is_no_regression_target():
    with pytest.raises(DataError, match="y must be numbers"):
        SupervisedPPCA(1, target_type="regression").fit(X, np.full(N, "a"))


def test_plan_and_predict_refuse_before_a_fit():
    for name, arguments in {
        "transform": (X,),
        "score": (X,),
        "score_samples": (X,),
        "posterior": (X,),
        "predict": (X,),
        "decision_function": (X,),
        "predictive_variance": (),
        "inverse_transform": (X[:, :2],),
        "sample": (),
        "get_covariance": (),
    }.items():
        with pytest.raises(NotFittedError, match=r"SupervisedPPCA is not fitted yet; call fit first.*dlatent\.load"):
            getattr(SupervisedPPCA(2), name)(*arguments)


@pytest.mark.parametrize("name", ["result_"])
def test_results_before_a_fit(name):
    with pytest.raises(NotFittedError, match="call fit first"):
        getattr(PPCA(2), name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["transform", "score", "score_samples", "predict"])
def test_another_number_of_features_is_refused(kind, name, tmp_path):
    model = SupervisedPPCA(2).fit(X, PARTLY)
    with pytest.raises(DataError, match=r"X has 7 features, but .* is expecting 8 features"):
        getattr(model, name)(KINDS[kind](X[:, :7], tmp_path))


def test_scores_of_another_width_are_refused():
    with pytest.raises(DataError, match=r"shape \(4, 3\); expected samples × 2 components"):
        PPCA(2).fit(X).inverse_transform(np.zeros((4, 3)))


def test_labels_that_the_model_does_not_know_are_refused():
    model = SupervisedPPCA(1).fit(X, CLASSES)
    y = CLASSES.copy()
    y[12] = 17
    for name in ("transform", "score", "score_samples", "posterior"):
        with pytest.raises(DataError, match=r"row 12: the label 17 is not among the model's classes \[0, 1, 2\]"):
            getattr(model, name)(X, y)


def test_targets_of_another_shape_are_refused_at_transform():
    model = SupervisedPPCA(2).fit(X, PARTLY)
    with pytest.raises(DataError, match="the targets have 1 outputs; the model was fitted with 2"):
        model.transform(X, Y[:, 0])
    with pytest.raises(DataError, match="y has 10 rows; the data have 60 samples"):
        model.transform(X, Y[:10])
    holes = Y.copy()
    holes[3, 1] = np.nan
    with pytest.raises(DataError, match="row 3: output 1 of y is missing"):
        model.transform(X, holes)


def failing(block):
    return 1 / 0


FAILING = {
    "another width": (X[:, :5], "X has 5 features, but PPCA is expecting 8"),
    "a bad chunk": (da.from_array(X, chunks=(20, 8)).map_blocks(failing, meta=X[:0]), "division by zero"),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_transform_that_fails_writes_nothing(name, tmp_path):
    data, words = FAILING[name]
    with pytest.raises((DlatentError, ZeroDivisionError), match=words):
        PPCA(2).fit(X).transform(data, out=tmp_path / "out.zarr")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [DataError, PlanError, StoreError])
def test_errors_are_value_errors(error):
    assert issubclass(error, ValueError)
    assert issubclass(error, DlatentError)


def test_not_fitted_is_what_scikit_learn_expects():
    assert issubclass(NotFittedError, (ValueError, AttributeError))
    assert X.shape[1] == D


WIDE = np.random.default_rng(0).standard_normal((4, 400_000), dtype=np.float32)


@pytest.mark.parametrize("method", ["get_covariance", "get_precision"])
def test_a_matrix_of_all_features_that_fills_the_memory_is_refused(method):
    with pytest.raises(PlanError, match=r"400,000 × 400,000, takes 1\.2 TiB, more than half of the .* use "):
        getattr(PPCA(1).fit(WIDE), method)()


@pytest.mark.slow
def test_the_covariance_of_views_that_fills_the_memory_is_refused():
    views = {"a": WIDE, "b": WIDE[:, :300_000]}
    model = CorrespondencePPCA(1).fit(views, correspondence=np.repeat(np.arange(4)[:, None], 2, axis=1))
    with pytest.raises(PlanError, match=r"400,000 × 300,000, takes 894\.1 GiB"):
        model.get_covariance("a", "b")


def test_classes_whose_covariance_fills_the_memory_are_refused_before_the_fit():
    many = np.repeat(np.arange(1_000_000), 2)
    with pytest.raises(PlanError, match=r"the covariance of the classes, 1,000,000 × 1,000,000, takes 7\.3 TiB"):
        SupervisedPPCA(1).plan(np.zeros((len(many), 3)), many)
