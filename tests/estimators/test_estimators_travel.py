"""What travels to a fresh worker brings only what it computes with: imports take longer than a pass over small data."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from distributed import Client, LocalCluster

from dlatent.models import MODELS, Model

N, D = 60, 6
X = np.random.default_rng(0).normal(size=(N, D)) @ np.diag([5.0, 3.0, 1.0, 1.0, 1.0, 1.0])
LABELS = np.arange(N) % 2
GRAPH = sp.csr_array(sp.diags_array([np.ones(N - 1)] * 2, offsets=[1, -1]))
PAIRS = np.column_stack([np.arange(N)] * 2)
NOT_OF_ROWS = {"fit", "partial_fit", "fit_transform", "fit_predict", "plan", "bootstrap", "log_determinant"}
"""Methods that take a client, and fit, plan, or know of no rows."""
COMPUTE_WITH = {"KernelPPCA", "KernelSupervisedPPCA"}
"""Models whose kernels are those of scikit-learn."""


@pytest.fixture(scope="module")
def fresh() -> Iterator[Client]:
    """A worker in which few modules are imported."""
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder, holes = tmp_path_factory.mktemp("data"), np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
    values = {"x": X, "holes": holes, "left": X[:, :3], "right": X[:, 3:]}
    for name, array in values.items():
        zarr.create_array(str(folder / name), data=array, chunks=(20, array.shape[1]))
    return {name: str(folder / name) for name in values}


def row_methods(model: Model) -> list[str]:
    """The methods of a model that may run on a cluster, of those that do not fit."""
    members = inspect.getmembers(model.load(), callable)
    own = [name for name, _ in members if not name.startswith(("_", "set_"))]
    return [
        name
        for name in own
        if name not in NOT_OF_ROWS and "client" in inspect.signature(getattr(model.load(), name)).parameters
    ]


def named(value: Any) -> str:
    """The name of a model, or another value."""
    return str(getattr(value, "name", value))


def imported(client: Client) -> set[str]:
    """Of the modules that a worker has imported those that block functions should not need."""
    (names,) = client.run(eval, "list(__import__('sys').modules)").values()
    return {name for name in names if name in ("sklearn", "pandas", "xarray") or name.startswith("dlatent.models.")}


def fitted(model: Model, missing: str, places: dict[str, str]) -> tuple[Any, Any, dict[str, Any]]:
    """A model, and data and options of its methods."""
    made = model.load()() if missing == "raise" else model.load()(missing=missing)
    of_views = model.views or model.name == "CorrespondenceLLE"
    data: Any = {name: places[name] for name in ("left", "right")} if of_views else places["x"]
    if missing == "nan" and not of_views:
        data = places["holes"]
    pairs = {"correspondence": PAIRS} if of_views else {}
    graph = {"graph": GRAPH} if model.graph else {}
    options = {**pairs, **graph, **({"y": LABELS} if model.labels else {})}
    with warnings.catch_warnings(action="ignore"):
        made.fit(data, **options, client="serial")
    return made, data, options


def call(made: Any, method: str, data: Any, options: dict[str, Any], **more: Any) -> Any:
    """Call a method of a model with what it takes of the options."""
    asked = inspect.signature(getattr(made, method)).parameters
    taken = {name: value for name, value in options.items() if name in asked}
    first = (data,)
    if method == "predict_cells":
        first = (data, [0, 50], [1, 2])
    elif method == "reconstruct" and isinstance(data, dict):
        first, taken = (data["left"], "left", "right"), {}
    elif isinstance(data, dict) and "view" in asked:
        first, taken = (data["left"],), {"view": "left"}
    return getattr(made, method)(*first, **taken, **more)


IN_ORDER = sorted(MODELS, key=lambda model: model.name in COMPUTE_WITH)
"""Those last whose workers have scikit-learn ever after."""
WITH_HOLES = [model for model in IN_ORDER if "missing" in inspect.signature(model.load()).parameters]


@pytest.mark.parametrize(
    ("model", "missing"),
    [*((model, "nan") for model in WITH_HOLES), *((model, "raise") for model in IN_ORDER)],
    ids=named,
)
def test_methods_of_rows_bring_no_estimators_to_a_worker(
    model: Model, missing: str, fresh: Client, places: dict[str, str]
) -> None:
    made, data, options = fitted(model, missing, places)
    methods = [method for method in row_methods(model) if hasattr(made, method)]
    assert "transform" in methods
    for method in methods:
        before = imported(fresh)
        call(made, method, data, options, client=fresh)
        new = imported(fresh) - before
        assert new <= ({"sklearn", "pandas"} if model.name in COMPUTE_WITH else set()), method


@pytest.mark.parametrize("model", [model for model in IN_ORDER if not model.views], ids=named)
def test_lazy_scores_bring_no_estimators_to_a_worker(model: Model, fresh: Client, places: dict[str, str]) -> None:
    made, data, _ = fitted(model, "raise", places)
    rows = da.from_zarr(data["left"] if isinstance(data, dict) else data)
    lazy = made.transform(rows, "left") if isinstance(data, dict) else made.transform(rows)
    fresh.submit(eval, "__import__('dask.array')").result()  # which imports pandas
    before = imported(fresh)
    fresh.compute(lazy, sync=True)
    assert imported(fresh) - before <= ({"sklearn"} if model.name in COMPUTE_WITH else set())
