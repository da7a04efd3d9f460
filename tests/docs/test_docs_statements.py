"""What the pages say is so: names exist, formulas are those of the model, and what is denied is still missing."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import dlatent
from dlatent import DataError, KernelPPCA, PPCAMixture, RelationalPPCA, RelationalSupervisedPPCA, SupervisedPPCA
from tests.fitted import encoding_of

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not {"_build", "tutorials"} & set(path.parts)  # what is built
}


def prose(text: str) -> str:
    """The text without its blocks of code, on one line."""
    return " ".join(re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).split())


# What is denied

DENIAL = re.compile(
    r"in this version|not supported|not (?:yet )?(?:possible|available|implemented)|cannot be (?:saved|fitted|imputed|"
    r"loaded|planned|predicted)|\b[Oo]nly `|\b(?:has|have) no `|\bno way"
)
"""Words by which a page denies that the library can do something."""


def data(rows: int = 30) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, 5))


def ring(rows: int = 30) -> Any:
    return sp.csr_array(np.roll(np.eye(rows), 1, axis=0) + np.roll(np.eye(rows), -1, axis=0))


def graph_rows_are_complete() -> None:
    holes = data()
    holes[3, 2] = np.nan
    with pytest.raises(DataError):
        RelationalPPCA(2).fit(holes, graph=ring())
    assert "missing" not in RelationalPPCA(2).get_params()
    targets = data()[:, 0]
    targets[4] = np.nan
    RelationalSupervisedPPCA(2).fit(data(), targets, graph=ring())
    with pytest.raises(DataError, match="gamma=1e-6"):
        RelationalSupervisedPPCA(2, gamma=0).fit(data(), targets, graph=ring())


def a_kernel_that_is_a_function_is_not_saved() -> None:
    model = KernelPPCA(2, kernel=lambda a, b: np.asarray(a @ b.T)).fit(data())
    with pytest.raises(DataError):
        model.save("nowhere.zarr")


def kernel_models_lack_what_needs_features() -> None:
    model = KernelPPCA(2).fit(data())
    for name in ("components_", "mean_", "sample", "impute"):
        assert not hasattr(model, name)


def mixtures_take_complete_samples_alone() -> None:
    holes = data()
    holes[3, 2] = np.nan
    with pytest.raises(DataError, match="row 3, column 2"):
        PPCAMixture(2).fit(holes)
    assert not {"missing", "targets", "graph"} & {
        *PPCAMixture().get_params(),
        *inspect.signature(PPCAMixture.fit).parameters,
    }


DENIED: dict[tuple[str, str], Callable[[], None]] = {
    ("docs/design.md", "No missing entries in relational PPCA"): (graph_rows_are_complete),
    ("docs/models/kernels.md", "a kernel that is a function cannot be saved"): a_kernel_that_is_a_function_is_not_saved,
    (
        "docs/models/kernels.md",
        "There is no exact way back from features to rows, so that kernel models have no `components_`, `mean_`, "
        "`sample` or `impute`",
    ): kernel_models_lack_what_needs_features,
    ("docs/models/mixture.md", "Missing entries, targets and graphs are not in this version of the mixture"): (
        mixtures_take_complete_samples_alone
    ),
}
"""Every sentence that denies something, and a test that it is still so."""


def test_every_denial_is_listed_with_its_test() -> None:
    for page, text in PAGES.items():
        plain = prose(text)
        listed = [statement for own, statement in DENIED if own == page]
        known = [(plain.find(statement), len(statement)) for statement in listed]
        assert all(start >= 0 for start, _ in known), f"{page} says no longer: {listed}"
        if page.endswith(("changelog.md", "benchmarks.md")):  # history and measurements
            continue
        for found in DENIAL.finditer(plain):
            inside = any(start <= found.start() < start + length for start, length in known)
            around = plain[max(0, found.start() - 60) : found.end() + 60]
            assert inside, f"{page} denies something without a test that it is so: …{around}…"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("statement", DENIED, ids=lambda statement: statement[1][:40])
def test_what_is_denied_is_not_there(
    statement: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    DENIED[statement]()


def test_results_larger_than_memory_are_of_the_methods_that_the_page_lists() -> None:
    classes = [value for name in dlatent.__all__ if inspect.isclass(value := getattr(dlatent, name))]
    with_out = {
        name
        for model in classes
        for name, member in inspect.getmembers(model, inspect.isfunction)
        if "out" in inspect.signature(member).parameters and member.__module__.startswith("dlatent.")
        if not name.startswith("_")
    }
    (said,) = re.findall(r"((?:`\w+`(?:, | and )?)+) have `out=`", prose(PAGES["docs/howto/large_results.md"]))
    assert set(re.findall(r"`(\w+)`", said)) == with_out


def test_pictures_are_there_and_cost_the_import_nothing() -> None:
    program = (
        "import sys, dlatent\n"
        "before = set(sys.modules)\n"
        "assert not {'matplotlib', 'xarray', 'numpy', 'dlatent.plot'} & before, before\n"
        "assert callable(dlatent.plot.scores)\n"
        "assert 'matplotlib' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# Formulas


@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
@pytest.mark.parametrize("kind", ["classes", "outputs that vary together", "outputs"])
def test_the_distributions_of_supervised_ppca_are_those_of_the_page(kind: str) -> None:
    """The page's formulas beside conditional distributions of the dense joint normal of its model."""
    page = PAGES["docs/models/supervised.md"]
    for formula in (
        r"\varepsilon_y &\sim N(0, \sigma_y^2 V V^\top)",
        r"z \mid x &\sim N\left(M_x^{-1} W_x^\top (x - \mu_x) / \sigma_x^2, \; M_x^{-1}\right)",
        r"M^{-1} \left[W_x^\top (x - \mu_x) / \sigma_x^2 + W_y^\top (y - \mu_y) / \sigma_y^2\right], \; M^{-1}",
        r"y \mid x &\sim N\left(\mu_y + W_y E[z \mid x], \; W_y M_x^{-1} W_y^\top + \sigma_y^2 V V^\top\right)",
        r"M_x &= I + W_x^\top W_x / \sigma_x^2, \qquad M = M_x + W_y^\top W_y / \sigma_y^2",
    ):
        assert formula in page, f"another formula is printed than is tested: {formula}"
    rng = np.random.default_rng(1)
    z = rng.normal(size=(200, 2))
    x = z @ rng.normal(size=(2, 6)) + 0.4 * rng.normal(size=(200, 6)) + 3.0
    y: Any = z @ rng.normal(size=(2, 3)) + 0.3 * rng.normal(size=(200, 3))
    if kind == "classes":
        y = y.argmax(axis=1)
    elif kind == "outputs that vary together":
        y = np.column_stack([y, y.sum(axis=1)])
    model = SupervisedPPCA(2, head="likelihood", whiten=True).fit(x, y)
    w_x, w_y, v = model.components_.T, model.target_components_.T, encoding_of(model).rotation
    assert (v.shape[0] > v.shape[1]) == (kind != "outputs")
    noise_x, noise_y = model.noise_variance_, model.target_noise_variance_

    # Dense: Cov of (z, x, y) from the definition, and Schur complements.
    joint_noise = np.zeros((len(w_x) + len(w_y),) * 2)
    joint_noise[: len(w_x), : len(w_x)] = noise_x * np.eye(len(w_x))
    joint_noise[len(w_x) :, len(w_x) :] = noise_y * v @ v.T
    w = np.vstack([w_x, w_y])
    covariance = w @ w.T + joint_noise
    own, other = slice(0, len(w_x)), slice(len(w_x), None)
    gain = covariance[other, own] @ np.linalg.inv(covariance[own, own])
    dense_y = covariance[other, other] - gain @ covariance[own, other]
    means_y = model.target_mean_ + (x - model.mean_) @ gain.T

    m_x = np.eye(2) + w_x.T @ w_x / noise_x
    about_z = (x - model.mean_) @ w_x @ np.linalg.inv(m_x) / noise_x
    printed = w_y @ np.linalg.inv(m_x) @ w_y.T + noise_y * v @ v.T
    np.testing.assert_allclose(printed, dense_y, atol=1e-10)
    np.testing.assert_allclose(np.diag(printed), model.predictive_variance(), atol=1e-10)
    np.testing.assert_allclose(model.target_mean_ + about_z @ w_y.T, means_y, atol=1e-9)
    np.testing.assert_allclose(about_z, model.transform(x), atol=1e-9)
    np.testing.assert_allclose(np.linalg.inv(m_x), model.posterior(x)["covariance"], atol=1e-10)

    # Given both: the pseudo-inverse, as outputs that vary together have no density in all directions.
    both = np.hstack(
        [x - model.mean_, encoding_of(model).decode(encoding_of(model).encode(y, 200)) - model.target_mean_]
    )
    dense_z = both @ np.linalg.pinv(covariance, rcond=1e-10) @ w
    np.testing.assert_allclose(model.transform(x, y), dense_z, atol=1e-7)
