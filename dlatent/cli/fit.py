"""`dlatent plan | fit | choose`: models as commands name them, with an option for each hyperparameter; what a fit would
do and cost; a fit; and numbers of components compared."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from inspect import signature
from time import perf_counter
from typing import Any, get_args

from dask.utils import parse_bytes

import dlatent
from dlatent.cli import NOT_CONVERGED, OK, UsageError, show
from dlatent.cli.arguments import Options, Parser, add, add_command, add_options, flag, positive
from dlatent.cli.cluster import STARTED, add_cluster, certificates_of, connected
from dlatent.cli.inputs import (
    STORE,
    add_beside,
    add_graph,
    add_labels,
    add_views,
    inputs_of,
    read_by,
    require_free,
    told_how_to_go_on,
)
from dlatent.engine.executor import Workers
from dlatent.engine.machine import granted
from dlatent.errors import masked
from dlatent.models import MODELS, Model
from dlatent.models.hyperparameters import TRUTH, Allowed, Criterion, declared
from dlatent.solvers.plan import Plan
from dlatent.stores.checkpoint import discard

SAMPLES = "dimensions of the samples, of a DATA that xarray wrote with others than samples and features (or netCDF)"
BY_COMMAND = {model.command: model for model in MODELS if model.command}
"""The models that the commands know, by their words for them."""


def fill(parser: Parser, command: str) -> None:
    """Add a parser for each model; `choose` takes those of one table of samples."""
    kinds = parser.add_subparsers(metavar="MODEL", required=True, dest="kind")
    for name, model in BY_COMMAND.items():
        if not (command == "choose" and model.views):
            add_command(kinds, name, model.description, partial(_fill, command, model))


def _fill(command: str, model: Model, parser: Parser) -> None:
    """Add what a model takes, and the options of a command."""
    if model.views:
        add_views(parser, labels=model.labels)
    else:
        parser.add_argument("data", metavar="DATA", help=STORE)
        parser.add_argument("--dim", metavar="DIM[,DIM]", type=dims, help=SAMPLES)
    add(parser, "missing-chunks")
    if model.graph:
        add_graph(parser, precision=model.precision)
    if model.labels and not model.views:
        add_labels(parser, "default: the only column of DATA")
    if "beside" in signature(model.load().fit).parameters:
        add_beside(parser)
    for field, about in declared(model.load()):
        if about.option is None:
            continue
        flags = [f"-{about.letter}"] * bool(about.letter) + [f"--{about.option or field.name.replace('_', '-')}"]
        default = f"{field.default:g}" if isinstance(field.default, float) else field.default
        help = about.description if default is None else f"{about.description} (default {default})"
        options: dict[str, Any] = {"choices": about.allowed.choices}
        if about.allowed is TRUTH:
            options, help = {"action": "store_true"}, about.description
        elif not about.allowed.choices:
            options = {"type": _reader(about.allowed), "metavar": about.short or None}
        if field.name == "n_components":
            several = command == "choose"
            help = "latent variables, several numbers with commas between" if several else help
            required = several or field.default != "auto"
            options = {"type": counts if several else _reader(about.allowed), "metavar": "K", "required": required}
        parser.add_argument(*flags, dest=field.name, help=help.replace("%", "%%"), **options)
    run, particular, common, workers = COMMANDS[command]
    add_cluster(parser, workers)
    add_options(parser, particular)
    add(parser, *common, "json")
    parser.set_defaults(run=run)


def dims(text: str) -> tuple[str, ...]:
    """Names of dimensions, separated by commas."""
    return tuple(text.split(","))


def counts(text: str) -> list[int]:
    """Integers of at least 0, separated by commas."""
    return [0 if part.strip() == "0" else positive(part) for part in text.split(",")]


def _reader(allowed: Allowed) -> Callable[[str], Any]:
    """Reads a value of a hyperparameter."""

    def read(text: str) -> Any:
        try:
            value = allowed.read(text)
        except ValueError:
            value = None
        if value is None or not allowed.test(value):
            raise argparse.ArgumentTypeError(f"{text!r} is not {allowed.description}")
        return value

    return read


def model_of(arguments: argparse.Namespace) -> Any:
    """The estimator, not fitted.

    Errors: UsageError for options that would be ignored.
    """
    model = BY_COMMAND[arguments.kind].load()
    values = {field.name: getattr(arguments, field.name, None) for field, _ in declared(model)}
    if values.get("start") is not None and arguments.solver != "em":
        raise UsageError("--start says where EM begins; give --solver em with it")
    if values.get("start_noise") is not None and arguments.start != "pca":
        raise UsageError("--start-noise is the noise variance at which --start pca begins; give --start pca with it")
    return model(**{name: value for name, value in values.items() if value is not None})


FIT: Options = {
    "-o --output": {"required": True, "metavar": "MODEL.zarr", "help": "where to save the model"},
    "--checkpoint": {
        "metavar": "PLACE",
        "help": "directory or URL that gets the result of every pass, till all is done",
    },
    "--resume": flag("go on with the checkpoint, where there is one"),
}


def run(arguments: argparse.Namespace) -> int:
    """Fit, save, and show what came out."""
    if arguments.resume and arguments.checkpoint is None:
        raise UsageError("--resume needs --checkpoint PLACE")
    extra = (arguments.checkpoint, getattr(arguments, "kernel_store", None))
    resume = arguments.checkpoint if arguments.resume else None
    require_free(arguments.output, *read_by(arguments), overwrite=arguments.overwrite, resume=resume, extra=extra)
    model = model_of(arguments)
    dlatent.show_progress(False)  # there are a bar and lines of our own
    hint = f"{arguments.checkpoint} has the passes so far: go on by the same command with --resume"
    ignored = warnings.catch_warnings(action="ignore")  # the model knows what its fit warned of
    with ignored, connected(arguments) as client, show.Screen(quiet=arguments.quiet) as screen:
        data, inputs = inputs_of(arguments)
        started, progress = perf_counter(), show.FitProgress(screen, model.tol)
        kept = {"checkpoint": arguments.checkpoint, "resume": arguments.resume}
        with told_how_to_go_on(hint if arguments.checkpoint else None):
            model.fit(data, **inputs, client=client, callbacks=[progress], **kept)
    model.save(arguments.output, overwrite=arguments.overwrite)
    if arguments.checkpoint is not None:
        discard(arguments.checkpoint)
    seconds = perf_counter() - started
    report = {"model": arguments.output, **model._summary(), "seconds": seconds}
    lines = model._summary_lines() | {"seconds": f"{seconds:.1f}, with the plan and the saving"}
    if "graph" in inputs:
        report["graph"]["notes"] = inputs["graph"].notes
        lines["graph"] = "; ".join([lines["graph"], *inputs["graph"].notes])
    show.result(f"{arguments.output} written", report, lines, json=arguments.json)
    return OK if model.converged_ else NOT_CONVERGED


CHOOSE: Options = {
    "--criterion": {
        "choices": get_args(Criterion),
        "default": "auto",
        "help": "auto: held_out, cells of models that take missing entries, else cross_validation, rows; bic; of ppca "
        "alone evidence, and parallel analysis (default auto)",
    },
    "--held-out": {"type": float, "default": 0.1, "metavar": "PART", "help": "of the cells (default 0.1)"},
    "--folds": {"type": positive, "default": 5, "metavar": "N", "help": "of the rows (default 5)"},
}


def choose(arguments: argparse.Namespace) -> int:
    """Score all candidates, and show what came out."""
    dlatent.show_progress(False if arguments.quiet else "auto")
    if getattr(arguments, "precision", None) is not None:
        raise UsageError("samples of a given precision cannot be held out; leave --precision to dlatent fit")
    candidates, arguments.n_components = arguments.n_components, arguments.n_components[0]
    options = {"criterion": arguments.criterion, "held_out": arguments.held_out, "cv": arguments.folds}
    with connected(arguments) as client:
        data, inputs = inputs_of(arguments)
        model = model_of(arguments)
        dataset = dlatent.select_n_components(model, data, candidates, client=client, **inputs, **options)
    names = [name for name, values in dataset.items() if values.ndim == 1]
    lines = [
        {"components": k, **{name: dataset[name].values[i].item() for name in names}}
        for i, k in enumerate(dataset["n_components"].values.tolist())
    ]
    about = {"best": dataset.attrs["best"], "criterion": dataset.attrs["criterion"], "candidates": lines}
    show.result(f"{dataset.attrs['model']} with numbers of components", about, json=arguments.json)
    return OK


WORKER_OPTIONS = ("threads_per_worker", "memory_limit", "driver_memory", "bandwidth", "price")
"""Options of planned workers."""

MIB = 2**20
POD_OVERHEAD = 512 * MIB
"""Memory of a pod beside the memory of its worker, for the nanny, and beside the projected peak of the driver."""

COMPONENT = """\
# {solver}, about {passes} passes; {data}
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
  - target: {{kind: DaskCluster}}
    patch: |-
      - {{op: replace, path: /spec/worker/replicas, value: {workers}}}
      - {{op: test, path: /spec/worker/spec/containers/0/env/0/name, value: MEMORY}}
      - {{op: replace, path: /spec/worker/spec/containers/0/env/0/value, value: "{limit}"}}
      - {{op: test, path: /spec/worker/spec/containers/0/env/1/name, value: THREADS}}
      - {{op: replace, path: /spec/worker/spec/containers/0/env/1/value, value: "{threads}"}}
      - {{op: replace, path: /spec/worker/spec/containers/0/resources/requests/cpu, value: "{threads}"}}
      - {{op: replace, path: /spec/worker/spec/containers/0/resources/requests/memory, value: {worker}Mi}}
      - {{op: replace, path: /spec/worker/spec/containers/0/resources/limits/memory, value: {worker}Mi}}
  - target: {{kind: DaskAutoscaler}}
    patch: |-
      - {{op: replace, path: /spec/minimum, value: {workers}}}
      - {{op: replace, path: /spec/maximum, value: {workers}}}
  - target: {{kind: Job}}
    patch: |-
      - {{op: replace, path: /spec/template/spec/containers/0/resources/requests/memory, value: {driver}Mi}}
      - {{op: replace, path: /spec/template/spec/containers/0/resources/limits/memory, value: {driver}Mi}}
"""


PLAN: Options = {
    "--driver-memory": {"metavar": "SIZE", "help": "memory of their driver (default: that of this machine)"},
    "--bandwidth": {
        "metavar": "SIZE",
        "help": "what each of them gets in a second from the store and from others, for example 200MB; then the plan "
        "says about how long the fit takes",
    },
    "--price": {"type": float, "metavar": "P", "help": "what each of them costs for an hour"},
    "--emit": {
        "choices": ["kubernetes"],
        "help": "print what --workers and --memory-limit make of deploy/kubernetes, as a component of kustomize",
    },
}


def plan(arguments: argparse.Namespace) -> int:
    """Plan, and show the plan."""
    if arguments.emit and (arguments.workers is None or arguments.memory_limit is None):
        raise UsageError("--emit needs --workers N and --memory-limit SIZE, what the cluster is to have")
    if arguments.emit and arguments.json:
        raise UsageError("--emit prints YAML; leave --json out")
    model = model_of(arguments)
    with _workers(arguments) as client:
        data, inputs = inputs_of(arguments)
        result = model.plan(data, **inputs, client=client)
    if arguments.emit:
        print(_component(arguments, result), end="")
    elif arguments.json:
        show.as_json(result.figures())
    else:
        print(result)
    return OK


def _workers(arguments: argparse.Namespace) -> AbstractContextManager[Any]:
    """The cluster that is there, or the workers that are not.

    Errors: UsageError for options of workers without workers, and values that are none.
    """
    if arguments.workers is None:
        if said := [name for name in WORKER_OPTIONS if getattr(arguments, name) is not None]:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in said)
            raise UsageError(f"{options} is said of workers that are not there; give --workers N with it")
        return connected(arguments)
    certificates_of(arguments)
    workers = Workers(
        arguments.workers,
        arguments.memory_limit or granted() // arguments.workers,
        threads=arguments.threads_per_worker or 1,
        driver_memory=arguments.driver_memory,
        bandwidth=arguments.bandwidth,
        price=arguments.price,
    )
    try:
        workers.resources()
    except ValueError as error:
        raise UsageError(str(error)) from error
    return nullcontext(workers)


def _component(arguments: argparse.Namespace, plan: Plan) -> str:
    """The component: the workers that are planned for, and a driver of the size that the plan projects."""
    limit = int(parse_bytes(arguments.memory_limit))
    return COMPONENT.format(
        solver=plan.solver,
        passes=plan.passes,
        data=" ".join(masked(plan.task.data.description).split()),
        workers=arguments.workers,
        threads=arguments.threads_per_worker or 1,
        limit=limit,
        worker=-(-(limit + POD_OVERHEAD) // MIB),
        driver=-(-(plan.driver_memory + POD_OVERHEAD) // MIB),
    )


PLANNED = "plan for N workers that need not be there; none is started"
COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], int], Options, tuple[str, ...], str]] = {
    "plan": (plan, PLAN, (), PLANNED),
    "fit": (run, FIT, ("quiet", "overwrite"), STARTED),
    "choose": (choose, CHOOSE, ("quiet",), STARTED),
}
"""The function of a command, its own options, those that others have, too, and the help of --workers."""
