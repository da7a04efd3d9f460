"""A saved model that was changed is refused, or it computes what it did: never something else, and no foreign error."""

from __future__ import annotations

import copy
import json
import os
import shutil

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from estimator_cases import MODELS, PARTLY, X

import dlatent
from dlatent import StoreError
from dlatent.cli.main import main
from dlatent.stores.results import load as load_stored
from tests.fitted import parameters_of
from tests.graphs import power_law_graph

GRAPH = power_law_graph(60, 150, random_state=4)
PAIRS = np.column_stack([np.arange(10, 50), np.arange(40)])
VIEWS = {"a": X[:50, :5], "b": X[10:, 5:]}
CHANGES = int(os.environ.get("DLATENT_CHANGES", "10"))
"""Seeded changes of each model; more of them are tried by hand."""

KINDS = MODELS | {
    "relational": lambda: dlatent.RelationalPPCA(2).fit(X, graph=GRAPH),
    "relational_supervised": lambda: dlatent.RelationalSupervisedPPCA(2).fit(X, X[:, :2], graph=GRAPH),
    "views": lambda: dlatent.CorrespondencePPCA(1).fit(VIEWS, correspondence=PAIRS),
    "view_factors": lambda: dlatent.CorrespondenceFactorAnalysis(1).fit(VIEWS, correspondence=PAIRS),
    "view_targets": lambda: dlatent.CorrespondenceSupervisedPPCA(1).fit(VIEWS, {"a": X[:50, 6]}, correspondence=PAIRS),
    "kernel": lambda: dlatent.KernelPPCA(2, gamma=0.1).fit(X),
    "kernel_sparse": lambda: dlatent.KernelPPCA(2, kernel="cosine").fit(sp.csr_array(X)),
    "kernel_supervised": lambda: dlatent.KernelSupervisedPPCA(2, landmarks=20).fit(X, PARTLY),
    "mixture": lambda: dlatent.PPCAMixture(1, 2).fit(X),
    "mixture_factors": lambda: dlatent.PPCAMixture(1, 2, noise="diagonal").fit(X),
    "lle": lambda: dlatent.LocallyLinearEmbedding(n_neighbors=8).fit(X),
    "lle_views": lambda: dlatent.CorrespondenceLLE(n_neighbors=8).fit(
        {name: sp.csr_array(rows) for name, rows in VIEWS.items()}, correspondence=PAIRS
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The path of a saved model of each kind, made when it is first asked for."""
    folder, made = tmp_path_factory.mktemp("models"), {}

    def path_of(kind):
        if kind not in made:
            made[kind] = folder / f"{kind}.zarr"
            KINDS[kind]().save(made[kind])
        return made[kind]

    return path_of


@pytest.fixture
def changed(saved, tmp_path):
    """A copy of a saved model, ready to be changed; without its digest it is as one that somebody has forged."""
    numbers = iter(range(10**6))

    def copied(kind, *, forged=True):
        path = tmp_path / f"{next(numbers)}.zarr"
        shutil.copytree(saved(kind), path)
        group = zarr.open_group(path, mode="r+", use_consolidated=False)
        if forged:
            group.attrs["result"] = {k: v for k, v in dict(group.attrs["result"]).items() if k != "digest"}
        return path, group

    return copied


def replaced(group, name, values, dims=None):
    """Write other values in the place of a variable."""
    array = group[name]
    dims, attrs = dims or array.metadata.dimension_names, dict(array.attrs)
    text = values.dtype.kind in "UOT"
    made = group.create_array(
        name, shape=values.shape, dtype=str if text else values.dtype, dimension_names=dims, attributes=attrs,
        overwrite=True, config={"write_empty_chunks": True},
    )  # fmt: skip
    if values.size:
        made[...] = values.astype(object) if text else values


def leaves(value, path=()):
    """The paths of all values in JSON, inner ones too."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from leaves(inner, (*path, key))


def change_attributes(group, rng):
    described = copy.deepcopy(dict(group.attrs["result"]))
    paths = [path for path in leaves(described) if path and path != ("digest",)]
    *above, last = paths[rng.integers(len(paths))]
    holder = described
    for key in above:
        holder = holder[key]
    if rng.random() < 0.2:
        holder.pop(last)
        what = "removed"
    else:
        others = [None, -1, 0, 3, 1e300, {"__float__": "nan"}, "other", "", [], {}, True, [[]], [-1, 7], 2**70]
        what = holder[last] = others[rng.integers(len(others))]
    group.attrs["result"] = described
    return f"{above} {last} {what!r}"


def change_variable(group, rng):
    name = sorted(name for name, _ in group.arrays())[rng.integers(len(list(group.arrays())))]
    array = group[name]
    values = np.asarray(array[...])
    kind = rng.integers(7)
    if kind == 0:
        del group[name]
    elif kind == 1:
        replaced(group, name, values[:-1])
    elif kind == 2:
        replaced(group, name, np.concatenate([values, values]))
    elif kind == 3:
        replaced(group, name, np.zeros(values.shape, dtype="<i8" if values.dtype.kind == "f" else "<f8"))
    elif kind == 4:
        replaced(group, name, values, dims=[f"other {i}" for i in range(values.ndim)])
    elif values.size and values.dtype.kind in "fiu":
        at = tuple(rng.integers(n) for n in values.shape)
        others = [-1, 0, 1, 2, 99] if values.dtype.kind != "f" else [-1.0, np.nan, np.inf, 1e300, 0.125, -1e-3]
        values[at] = others[rng.integers(len(others))]
        replaced(group, name, values)
    elif values.size:
        replaced(group, name, values[::-1].copy())
    return f"{name} {kind}"


def outputs(model):
    """What a model computes and says."""
    found = [model.get_params(), model.result_.to_dict(), model.history_.to_dict()]
    if hasattr(model, "view_names_"):
        found += [np.asarray(model.transform({"a": VIEWS["a"]} if hasattr(model, "posterior") else VIEWS["a"]))]
    else:
        data = sp.csr_array(X) if "cosine" in str(getattr(model, "kernel", "")) else X
        found += [np.asarray(model.transform(data))]
    return repr([np.asarray(one).tobytes() if isinstance(one, np.ndarray) else one for one in found])


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.filterwarnings("ignore")
def test_a_changed_model_is_refused_or_computes_the_same(kind, saved, changed):
    rng = np.random.default_rng(list(KINDS).index(kind))
    expected, refused = outputs(dlatent.load(saved(kind))), 0
    for number in range(CHANGES):
        path, group = changed(kind, forged=False)
        what = (change_attributes if number % 2 else change_variable)(group, rng)
        try:
            model = dlatent.load(path)
        except dlatent.DlatentError:
            refused += 1
        else:
            assert outputs(model) == expected, what
    assert refused > CHANGES // 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.filterwarnings("ignore")
def test_a_forged_model_meets_no_foreign_error(kind, changed):
    rng = np.random.default_rng(100 + list(KINDS).index(kind))
    for number in range(CHANGES):
        path, group = changed(kind)
        what = (change_attributes if number % 2 else change_variable)(group, rng)
        said = ""
        try:
            model = dlatent.load(path)
        except dlatent.DlatentError as error:
            said = str(error)
        if said:
            assert path.name in said, what
        else:
            noise = parameters_of(model).noise_variance if hasattr(model, "log_likelihood_") else np.zeros(1)
            assert (np.isfinite(noise) & (noise >= 0)).all(), what


def attribute(group, **values):
    described = copy.deepcopy(dict(group.attrs["result"]))
    described["attributes"]["model"] |= values
    group.attrs["result"] = described


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        ("ppca", "noise_variance", -1.0, r"'noise_variance' is -1\.0 at \(0,\); expected .* not negative"),
        ("ppca", "loadings", np.nan, r"'loadings' is nan at \(0, 0\); expected a finite number"),
        ("factors", "feature_noise_variance", np.inf, "'feature_noise_variance' is inf"),
        ("regression", "rank_mean", -np.inf, "'rank_mean' is -inf"),
        ("kernel", "training_edges", 3, "'training_edges' do not cut"),
        ("kernel_sparse", "training_columns", 99, "the training rows: row 0 has column index 99"),
        ("lle", "view_row", 7, "'view_row' does not name each of the 60 rows"),
        ("lle_views", "reference_columns", 99, "the reference rows: row 0 has column index 99"),
    ],
)
def test_a_value_that_no_model_has_is_named(kind, name, value, message, changed):
    path, group = changed(kind)
    values = np.asarray(group[name][...])
    values[(0,) * values.ndim] = value
    replaced(group, name, values)
    with pytest.raises(StoreError, match=message):
        dlatent.load(path)


@pytest.mark.parametrize(
    "patterns", [[[0, 2]], [[-1, 0]], [[1, 0]], [[0, 0]], [[]], [], [[0]], [[0, 1], [0, 1]], 3, None]
)
def test_a_pattern_that_no_model_has_is_refused(patterns, changed):
    path, group = changed("regression")
    attribute(group, patterns=patterns)
    with pytest.raises(StoreError):
        dlatent.load(path)


def test_lengths_that_do_not_fit_are_named_before_values_are_read(changed):
    path, group = changed("ppca")
    replaced(group, "mean", np.zeros(9))
    for chunk in (path / "mean" / "c").iterdir():
        chunk.write_bytes(b"nonsense")
    with pytest.raises(StoreError, match="the dimension 'feature' has length 9 in 'mean', but 8 in 'loadings'"):
        dlatent.load(path)


def huge(path, *, chunks):
    """Make the model one of 10^8 features that are not stored, or of which one chunk claims to be as large."""
    group = zarr.open_group(path, mode="r+", use_consolidated=False)
    length = 8 if chunks else 2 * 10**8
    wide = 2 * 10**8
    group.create_array(
        "mean", shape=(length,), dtype="<f8", chunks=(wide if chunks else 2**20,), dimension_names=["feature"],
        overwrite=True,
    )  # fmt: skip


@pytest.mark.parametrize("chunks", [False, True])
def test_a_model_that_unpacks_to_more_than_it_may_is_refused_before(chunks, changed, capsys):
    path, _ = changed("ppca")
    huge(path, chunks=chunks)
    before = peak()
    with pytest.raises(
        StoreError, match=r"would take 1,6\d\d,.* bytes of memory.*largest variable is 'mean'.*max_byte"
    ):
        dlatent.load(path)
    for words in (["inspect", str(path)], ["inspect", str(path), "--max-model-size", "1GB"]):
        assert main(words) == 3
        assert "--max-model-size" in capsys.readouterr().err
    assert peak() - before < 2**28
    small, _ = changed("ppca", forged=False)
    with pytest.raises(StoreError, match="max_bytes"):
        dlatent.load(small, max_bytes=100)
    assert main(["inspect", str(small), "--max-model-size", "100"]) == 3
    assert dlatent.load(small, max_bytes=10**6).n_features_in_ == 8


def peak():
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def test_a_model_without_a_digest_opens(saved, changed):
    path, group = changed("ppca")
    assert "digest" not in group.attrs["result"]
    assert outputs(dlatent.load(path)) == outputs(dlatent.load(saved("ppca")))
    assert json.loads((saved("ppca") / "zarr.json").read_text())["attributes"]["result"]["digest"]
    assert load_stored(path).kind == "PPCA"
