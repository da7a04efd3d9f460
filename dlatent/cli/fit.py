"""`dlatent fit`: fit a model to a store and save it."""

from __future__ import annotations

import argparse
import warnings
from time import perf_counter
from typing import TYPE_CHECKING, Any

from dlatent.cli import show
from dlatent.cli.arguments import add_overwrite
from dlatent.cli.cluster import connected
from dlatent.cli.models import add_models, data_of, inputs_of, model_of
from dlatent.cli.places import require_free
from dlatent.cli.progress import FitProgress, Screen
from dlatent.cli.status import NOT_CONVERGED, OK

if TYPE_CHECKING:
    from dlatent import PPCA
    from dlatent.arrays import Graph


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "fit", help="fit a model to a store and save it", description="Fit a model by maximum likelihood and save it."
    )
    for kind in add_models(parser).values():
        kind.add_argument("-o", "--output", required=True, metavar="MODEL.zarr", help="where to save the model")
        kind.add_argument("--quiet", action="store_true", help="show no progress")
        add_overwrite(kind)
        kind.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Fit, save, and show what came out."""
    require_free(arguments.output, overwrite=arguments.overwrite)
    model = model_of(arguments)
    data, inputs = data_of(arguments), inputs_of(arguments)
    with warnings.catch_warnings(record=True) as caught, connected(arguments) as client:
        warnings.simplefilter("always")
        started = perf_counter()
        plan = model.plan(data, **inputs, client=client)
        with Screen(quiet=arguments.quiet) as screen:
            screen.line(f"solver {plan.solver} ({plan.reason}), about {plan.passes} passes on {plan.machine}")
            progress = FitProgress(screen, plan, model.tol)
            model.fit(data, **inputs, client=client, callbacks=[progress.callback])
            progress.finish()
    model.save(arguments.output, overwrite=arguments.overwrite)
    texts = _said(caught)
    found = _summary(model, inputs.get("graph"), arguments.output, perf_counter() - started, texts)
    if arguments.json:
        show.as_json(found)
    else:
        _print(found)
    for text in texts:
        show.say(f"warning: {text}")
    return OK if model.converged_ else NOT_CONVERGED


def _said(caught: list[warnings.WarningMessage]) -> list[str]:
    """What the fit itself warned of; the warnings of other libraries are none of the user's business here."""
    from dlatent.errors import ConvergenceWarning, MisfitWarning, NoiseFloorWarning, PrecisionWarning

    own = (ConvergenceWarning, MisfitWarning, NoiseFloorWarning, PrecisionWarning)
    return [str(one.message) for one in caught if issubclass(one.category, own)]


def _summary(model: PPCA, graph: Graph | None, path: str, seconds: float, texts: list[str]) -> dict[str, Any]:
    edges = None if graph is None else {"edges": graph.entries // 2, "notes": graph.notes}
    return {
        "model": path,
        "kind": type(model).__name__,
        "samples": model.n_samples_,
        "features": model.n_features_in_,
        "components": model.n_components,
        "mixtures": getattr(model, "weights_", None),
        "graph": edges,
        "log_likelihood": model.log_likelihood_,
        "noise_variance": model.noise_variance_,
        "target_noise_variance": getattr(model, "target_noise_variance_", None),
        "trace_error": getattr(model, "trace_error_", None) or None,
        "converged": model.converged_,
        "iterations": model.n_iter_,
        "passes": model.n_passes_,
        "bytes_read": int(model.history_["pass_bytes_read"].sum()),
        "seconds": seconds,
        "warnings": texts,
    }


def _noise(variance: Any, of: str = "feature") -> str:
    """One noise variance, or the range of those of single features; for several views, those of each."""
    if isinstance(variance, dict):
        return "; ".join(f"{name} {_noise(own)}" for name, own in variance.items())
    if isinstance(variance, float):
        return f"{variance:.6g}"
    return f"{variance.min():.6g} to {variance.max():.6g}, one for each {of}"


def _print(found: dict[str, Any]) -> None:
    settled = "converged" if found["converged"] else "NOT converged"
    targets, graph, error = found["target_noise_variance"], found["graph"], found["trace_error"]
    weights, noise = found["mixtures"], found["noise_variance"]
    of = "feature" if weights is None else "component" if noise.ndim == 1 else "component and feature"
    show.facts(
        f"{found['model']} written",
        {
            "model": f"{found['kind']}, {found['components']} components",
            "data": f"{found['samples']:,} samples × {found['features']:,} features",
            "graph": None if graph is None else "; ".join([f"{graph['edges']:,}", *graph["notes"]]),
            "log-likelihood": f"{show.likelihood(found['log_likelihood'], graph=graph is not None)}, {settled}",
            "mixture": None if weights is None else f"weights {', '.join(f'{weight:.3g}' for weight in weights)}",
            "noise variance": _noise(noise, of),
            "of the labels": None if targets is None else f"{targets:.6g}",
            "landmarks": None if error is None else f"trace error {error:.3g}",
            "passes": f"{found['passes']} over the data, {found['bytes_read'] / 1e6:,.1f} MB read",
            "seconds": f"{found['seconds']:.1f}",
        },
    )
