"""Fits of mixtures: what they find again, what they never lose, and what becomes of components without samples."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, load_wine
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import StandardScaler

from benchmarks.mixture_maxima import FLOOR, best_mixture, mixture
from dlatent import Callback, ConvergenceWarning, DataWarning, NoiseFloorWarning, PlanError, PPCAMixture
from dlatent.solvers.mixture.solver import Mixtures, starts_of, subset_rows
from dlatent.solvers.plan import Plan
from tests.oracles.mixture import mixture_log_densities, simulate_mixture
from tests.solvers.test_solvers_planner import GIB, MIB, Host, problem
from tests.tasks import make_plan

NOISES = pytest.mark.parametrize("noise", ["isotropic", "diagonal"])


def quiet(model, rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows)


@NOISES
def test_a_simulated_mixture_is_found_again(noise):
    data = simulate_mixture(6000, 8, own_noise=noise == "diagonal", separation=1.5, random_state=1)
    model = PPCAMixture(2, 3, noise=noise, noise_prior=0.0).fit(data.features)
    truth = data.mixture
    np.testing.assert_allclose(model.weights_, truth.weights, atol=0.02)
    np.testing.assert_allclose(model.means_, truth.mean, atol=0.2)
    spread = truth.noise_variance if noise == "diagonal" else truth.noise_variance[:, 0]
    # Of 1,200 samples a variance is known to 4 %; that of one feature's noise among loadings of 16 to about 0.1.
    np.testing.assert_allclose(model.noise_variance_, spread, atol=0.15 if noise == "diagonal" else 0.02)
    for found, own in zip(model.components_, truth.loadings, strict=True):
        expected = own @ own.T
        np.testing.assert_allclose(found.T @ found, expected, atol=0.15 * expected.max())
    assert (model.predict(data.features) == data.labels).mean() > 0.97
    assert model.log_likelihood_ > mixture_log_densities(truth, data.features).sum()


@pytest.mark.slow
@NOISES
def test_acceleration_finds_what_em_does_in_fewer_passes(noise):
    data = simulate_mixture(5000, 10, 3, own_noise=noise == "diagonal", separation=1.0, random_state=2).features
    fast = PPCAMixture(3, 3, noise=noise, n_init=2).fit(data)
    slow = quiet(PPCAMixture(3, 3, noise=noise, n_init=2, solver="em", tol=1e-8, max_iter=300), data)
    assert fast.log_likelihood_ >= slow.log_likelihood_
    assert fast.n_iter_ < 40


@pytest.mark.filterwarnings("ignore::dlatent.NoiseFloorWarning")
@pytest.mark.parametrize(
    "seed", [5, 6, 9, 13, 14, 38, 70, *(pytest.param(s, marks=pytest.mark.slow) for s in (27, 28, 37))]
)
def test_no_run_of_textbook_em_from_random_rows_ends_higher(seed):
    problem = mixture(seed)
    noise = "diagonal" if problem.diagonal else "isotropic"
    model = PPCAMixture(problem.components, problem.mixtures, noise=noise, noise_prior=0.0, noise_floor=FLOOR)
    assert model.fit(problem.rows).log_likelihood_ > best_mixture(problem, 8) - 0.1


def test_starts_are_as_many_as_there_is_room_for():
    """Each holds the parameters of all components on the driver."""
    few = replace(problem(1000, 10, k=2), family=Mixtures(3))
    wide = replace(problem(1000, 100_000, k=10), family=Mixtures(20))
    assert (starts_of(few.task), starts_of(wide.task)) == (64, 8)
    asked = replace(wide, family=Mixtures(20, 100))
    assert starts_of(asked.task) == 100
    roomy = Host(driver_memory=512 * GIB)
    assert make_plan(asked, roomy).driver_memory > 5 * make_plan(wide, roomy).driver_memory


def test_features_that_are_constant_in_a_component_do_not_rule_out_other_rows():
    """Grey levels of digits: border pixels are zero in all rows of a digit but few."""
    rows = load_digits().data
    model = quiet(PPCAMixture(2, 10, noise="diagonal", tol=1e-4), rows[:1200])
    rival = GaussianMixture(10, covariance_type="diag", reg_covar=1e-3 * rows.var(), random_state=0).fit(rows[:1200])
    assert model.score(rows[1200:]) > max(rival.score(rows[1200:]), -150.0)


@pytest.mark.parametrize("seed", [0, 1])
def test_components_do_not_collapse_on_few_rows_where_other_starts_stay_whole(seed):
    """Three rows that two latent variables explain wholly have a likelihood that only the floor bounds."""
    rows = StandardScaler().fit_transform(load_wine().data)
    rows = np.random.default_rng(seed).permutation(rows)[:142]
    model = quiet(PPCAMixture(2, 3, random_state=seed), rows)
    assert not model.at_floor_.any()
    assert model.weights_.min() * len(rows) > 4


@NOISES
def test_the_data_lie_in_blocks_of_which_starts_see_some_rows(noise):
    """More rows than the driver holds: the best start goes on over all of them."""
    data = simulate_mixture(9000, 6, own_noise=noise == "diagonal", random_state=3)
    model, plans = PPCAMixture(2, 3, noise=noise), list[Plan]()
    model.fit(data.features, callbacks=[Callback(on_plan=plans.append)])
    assert subset_rows(plans[0].task) == 4000
    assert (model.predict(data.features) == data.labels).mean() > 0.99


@NOISES
def test_repeated_rows_stop_at_the_floor_and_the_fit_says_so(noise):
    rng = np.random.default_rng(0)
    data = np.vstack([np.tile(rng.standard_normal(5) + 30.0, (25, 1)), rng.standard_normal((75, 5))])
    with pytest.warns(NoiseFloorWarning, match="component 1 of 25.0 samples"):
        model = PPCAMixture(1, 2, noise=noise, noise_prior=0.0).fit(data)
    assert np.isfinite(model.log_likelihood_)
    np.testing.assert_allclose(model.weights_, [0.75, 0.25])
    assert np.atleast_2d(model.at_floor_.T).all(axis=0).tolist() == [False, True]
    np.testing.assert_allclose(model.score_samples(data).sum(), model.log_likelihood_, rtol=1e-9)


def test_a_component_at_its_floor_does_not_hold_up_the_others():
    """Along a ridge the first extrapolations go too far; without a limit plain EM was left, and 299 passes no end."""
    rng = np.random.default_rng(0)
    data = np.vstack([np.tile(rng.standard_normal(5) + 30.0, (25, 1)), rng.standard_normal((75, 5))])
    model = quiet(PPCAMixture(1, 2, noise="diagonal", noise_prior=0.0), data)
    assert model.converged_
    assert model.n_iter_ < 120


@NOISES
def test_without_a_floor_there_is_still_a_bound(noise):
    data = np.vstack([np.tile(np.arange(5.0), (25, 1)), np.random.default_rng(0).standard_normal((75, 5))])
    data[:, 3] = 2.0
    model = quiet(PPCAMixture(1, 3, noise=noise, noise_floor=0.0, noise_prior=0.0, zero_rows="keep"), data)
    assert np.isfinite(model.log_likelihood_)
    assert (model.noise_variance_ > 0).all()
    np.testing.assert_allclose(model.score_samples(data).sum(), model.log_likelihood_, rtol=1e-6)


@NOISES
@pytest.mark.parametrize("form", [np.asarray, pytest.param(sp.csr_array, marks=pytest.mark.slow)])
def test_more_components_than_clusters_are_no_nan(noise, form):
    data = simulate_mixture(60, 5, 1, weights=(0.5, 0.5), own_noise=noise == "diagonal", separation=6.0).features
    few, many = (quiet(PPCAMixture(1, m, noise=noise), form(data)) for m in (2, 9))
    assert many.weights_.sum() == pytest.approx(1.0)
    for values in (many.weights_, many.means_, many.components_, many.noise_variance_, many.transform(data)):
        assert np.isfinite(values).all()
    assert many.log_likelihood_ > few.log_likelihood_
    assert (np.diff(many.weights_) <= 1e-6).all()


def test_as_many_components_as_rows_are_no_nan():
    data = np.random.default_rng(0).standard_normal((7, 4))
    model = quiet(PPCAMixture(1, 7), data)
    assert np.isfinite(model.log_likelihood_)
    assert np.isfinite(model.predict_proba(data)).all()


def test_empty_components_are_told():
    """Two points, three components: one has nothing to hold."""
    data = np.repeat([[0.0, 0.0, 1.0], [5.0, 1.0, 0.0]], [20, 1], axis=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PPCAMixture(1, 20, n_init=1).fit(data)
    assert any(issubclass(one.category, DataWarning) and "less than one sample" in str(one.message) for one in caught)


def test_a_fit_that_is_cut_short_says_so():
    data = simulate_mixture(5000, 10, 3, separation=0.5, random_state=2).features
    with pytest.warns(ConvergenceWarning, match="stopped after 2 iterations"):
        model = PPCAMixture(3, 3, max_iter=2, tol=1e-12, n_init=1).fit(data)
    assert not model.converged_


@pytest.mark.slow
def test_more_starts_are_no_worse():
    data = simulate_mixture(200, 4, 1, weights=(0.25,) * 4, separation=1.5, noise=0.5, random_state=8).features
    values = [quiet(PPCAMixture(1, 4, n_init=n), data).log_likelihood_ for n in (1, 20)]
    assert values[1] >= values[0] - 1e-6


MIXED = replace(problem(1_000_000, 100, k=5), family=Mixtures(10))


def test_a_mixture_has_one_route_and_no_other_model_takes_it():
    assert make_plan(MIXED, Host()).solver == "mixture"
    for name in ("covariance", "krylov", "gram", "accelerated_em"):
        with pytest.raises(PlanError, match="which component of the mixture a row is of is not known"):
            make_plan(MIXED, Host(), solver=name)
    with pytest.raises(PlanError, match="the model is no mixture"):
        make_plan(problem(1000, 10), Host(), solver="mixture")
    for more in ({"graph_entries": 100}, {"missing": True}, {"targets": 2}):
        with pytest.raises((PlanError, ValueError)):
            make_plan(replace(MIXED, **more), Host(), solver="mixture")


def test_more_of_anything_needs_no_less_memory():
    base = make_plan(MIXED, Host())
    wide = {"features": 1000, "nbytes": 8 * 10**9}
    for more in ({"family": Mixtures(20)}, {"n_components": 10}, wide, {"shared": False}):
        other = make_plan(replace(MIXED, **more), Host())
        assert other.worker_memory >= base.worker_memory
        assert other.driver_memory >= base.driver_memory


def test_wide_rows_are_few_on_the_driver():
    wide = replace(problem(10_000, 1_000_000, k=2, block=256 * MIB), family=Mixtures(3))
    assert subset_rows(wide.task) == 30
    text = replace(problem(800_000, 47_000, k=10, nnz=60_000_000), family=Mixtures(20))
    assert subset_rows(text.task) == 4000
    assert make_plan(text, Host()).driver_memory < 8 * GIB


@pytest.mark.slow
@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_a_process_stays_within_its_plan(form):
    made = {
        "sparse": "sp.random_array((2000, 12000), density=0.002, rng=np.random.default_rng(0), format='csr')",
        "dense": "da.random.default_rng(0).normal(size=(1000, 5000), chunks=(250, 5000))",
    }
    program = f"""
import json, warnings
from pathlib import Path
import dask.array as da
import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.mixture import GaussianMixture

from benchmarks.mixture_maxima import FLOOR, best_mixture, mixture
from dlatent import Callback, PPCAMixture

warnings.simplefilter("ignore")
data = {made[form]}
Path("/proc/self/clear_refs").write_text("5")
model, plans = PPCAMixture(10, 8, max_iter=4, n_init=1, tol=1e-300, zero_rows="keep"), []
model.fit(data, callbacks=[Callback(on_plan=plans.append)])
(peak,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps([int(peak.split()[1]) * 1024, plans[0].worker_memory]))
"""
    found = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    peak, planned = json.loads(found.stdout)
    assert 300 * MIB < peak < planned < 2.5 * peak


def test_components_in_any_order_are_one_maximum():
    data = simulate_mixture(300, 6, separation=4.0, random_state=5).features
    found = [PPCAMixture(2, 3, random_state=seed, tol=1e-12).fit(data) for seed in range(4)]
    for other in found[1:]:
        np.testing.assert_allclose(other.means_, found[0].means_, rtol=1e-5, atol=1e-5)
    matches = [
        order
        for order in permutations(range(3))
        if np.allclose(found[0].means_[list(order)], found[1].means_, atol=1e-4)
    ]
    assert matches == [(0, 1, 2)]
