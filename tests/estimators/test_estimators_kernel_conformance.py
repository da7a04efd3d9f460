"""The kernel models obey the laws of the conformance suite."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from dlatent import KernelPPCA, KernelSupervisedPPCA
from dlatent.testing.conformance import Preset
from dlatent.testing.kernel_conformance import KernelConformance
from tests.simulators import hide, plain_features

X = plain_features()
LABELLED = np.arange(len(X)) % 3 == 0
OUTPUTS = X[:, :2] @ np.array([[1.0, 0.3], [-0.5, 1.0]]) + np.random.default_rng(1).standard_normal((len(X), 2))
CLASSES = np.searchsorted(np.quantile(OUTPUTS[:, 0], [0.33, 0.67]), OUTPUTS[:, 0])
ROUTES = ("memory", "recomputed")

PRESETS = [
    Preset("kernel", partial(KernelPPCA, n_components=3), X, solvers=ROUTES),
    Preset("kernel, laplacian", partial(KernelPPCA, n_components=2, kernel="laplacian"), X, solvers=ROUTES),
    Preset("kernel supervised", partial(KernelSupervisedPPCA, n_components=2), X, OUTPUTS, solvers=ROUTES),
    Preset(
        "kernel semi-supervised",
        partial(KernelSupervisedPPCA, n_components=2),
        X,
        hide(OUTPUTS, LABELLED),
        solvers=ROUTES,
    ),
    Preset(
        "kernel, classes", partial(KernelSupervisedPPCA, n_components=2), X, np.array(["a", "b", "c"])[CLASSES],
        solvers=ROUTES,
    ),
]  # fmt: skip


@pytest.mark.parametrize("preset", PRESETS, ids=str)
class TestConformance(KernelConformance):
    pass
