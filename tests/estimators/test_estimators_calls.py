"""The way of the data from `fit` to the function of a block, which a reader must be able to follow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dlatent
from dlatent import PPCA, CorrespondenceLLE, KernelPPCA, RelationalPPCA
from dlatent.engine.connect import connect

HERE = Path(dlatent.__file__).parent
X = np.random.default_rng(0).normal(size=(200, 8)) @ np.random.default_rng(1).normal(size=(8, 30))
HOLES = np.where(np.random.default_rng(2).random(X.shape) < 0.1, np.nan, X)


def calls_to(name: str, action: Callable[[], Any]) -> list[str]:
    """The longest chain of dlatent's own functions, file by file, that led to a function of this name, behind the one
    that tells scikit-learn's callbacks of a fit."""
    chains = list[list[str]]()

    def listen(frame: Any, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_name != name:
            return
        chain = list[str]()
        while frame is not None:
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(HERE):
                chain.insert(0, f"{file.relative_to(HERE)}:{frame.f_code.co_name}")
            frame = frame.f_back
        chains.append(chain)

    sys.setprofile(listen)
    try:
        action()
    finally:
        sys.setprofile(None)
    first, *chain = max(chains, key=len)
    return chain if first == "models/scikit_callbacks.py:method" else [first, *chain]


@pytest.mark.parametrize(
    ("solver", "function", "data", "most"),
    [
        ("covariance", "block_moments", X, 9),
        ("krylov", "block_products", X, 11),
        ("gram", "block_lift", X[:20], 10),
        ("accelerated_em", "block_entries", HOLES, 12),
    ],
)
def test_few_calls_lie_between_a_fit_and_its_block_function(solver: Any, function: str, data: Any, most: int) -> None:
    model = PPCA(3, solver=solver, prior="ml", missing="nan" if solver == "accelerated_em" else "raise")
    chain = calls_to(function, lambda: model.fit(data, client="serial"))
    assert chain[0] == "models/table_fit.py:fit"
    assert any(call.startswith("solvers/") and call.endswith(":fit") for call in chain)
    assert "engine/session.py:run" in chain
    assert len(chain) <= most, chain


@pytest.mark.parametrize(
    ("solver", "function", "most"), [("covariance", "fold_moments", 10), ("krylov", "fold_products", 12)]
)
def test_few_calls_lie_between_a_fit_and_its_block_function_in_a_graph(solver: Any, function: str, most: int) -> None:
    path = sp.csr_array(sp.diags_array([np.ones(len(X) - 1)] * 2, offsets=[-1, 1]))
    chain = calls_to(function, lambda: RelationalPPCA(3, solver=solver).fit(X, graph=path, client="serial"))
    assert chain[0] == "models/fit_methods.py:fit_precision"
    assert any(call.startswith("solvers/") and call.endswith(":fit") for call in chain)
    assert "engine/session.py:run" in chain
    assert len(chain) <= most, chain


def sessions(monkeypatch: pytest.MonkeyPatch, module: str) -> list[Any]:
    """The sessions that a module of `models` opens from now on."""
    opened: list[Any] = []

    def noted(*given: Any, **more: Any) -> Any:
        opened.append(connect(*given, **more))
        return opened[-1]

    monkeypatch.setattr(f"dlatent.models.{module}.connect", noted)
    return opened


KERNEL = {
    "memory": ({"solver": "memory"}, "meet_kernel"),
    "memory, given": ({"solver": "memory", "kernel": "precomputed"}, "block_precomputed"),
    "recomputed": ({"solver": "recomputed"}, "meet_product"),
    "recomputed, given": ({"solver": "recomputed", "kernel": "precomputed"}, "block_precomputed"),
    "stored, written": ({"solver": "stored"}, "meet_write"),
    "stored, read": ({"solver": "stored"}, "block_triangle"),
    "landmarks": ({"landmarks": 20}, "block_landmarks"),
}


@pytest.mark.parametrize("name", KERNEL)
def test_few_calls_lie_between_a_kernel_fit_and_its_block_function_in_one_session(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, function = KERNEL[name]
    place = {"kernel_store": tmp_path / "k.zarr"} if options.get("solver") == "stored" else {}
    data = X @ X.T if "given" in name else X
    opened = sessions(monkeypatch, "task")
    chain = calls_to(function, lambda: KernelPPCA(3, **options, **place).fit(data, client="serial"))
    assert len(opened) == 1
    assert chain[:2] == ["models/fit_methods.py:fit", "models/task.py:run"]
    assert chain[2].startswith("solvers/")
    assert len(chain) <= 12, chain


def test_views_are_embedded_in_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = sessions(monkeypatch, "embedding")
    views = {name: X[rows] for name, rows in {"a": slice(0, 120), "b": slice(80, 200), "c": slice(40, 160)}.items()}
    pairs = np.array([[80 + n, n, 40 + n] for n in range(40)])
    model = CorrespondenceLLE(n_neighbors=8).fit(views, correspondence=pairs, client="serial")
    assert len(opened) == 1
    assert list(model.history_["pass_name"].values) == ["initial mean", "bounds", "neighbours", "weights"] * 3
