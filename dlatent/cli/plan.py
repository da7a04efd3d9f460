"""`dlatent plan`: what a fit would do and cost."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from dlatent.cli import show
from dlatent.cli.cluster import add_cluster, check_unused, connected
from dlatent.cli.inputs import data_of, inputs_of
from dlatent.cli.models import add_models, model_of
from dlatent.cli.status import OK, UsageError
from dlatent.errors import masked

if TYPE_CHECKING:
    from dlatent.solvers.plan import Plan

IMAGINED = ("threads_per_worker", "memory_limit", "driver_memory", "bandwidth", "price")
"""What is said of workers that are not there."""

MIB = 2**20
BESIDE = 512 * MIB
"""What a pod gets beside the memory of its worker, for the nanny, and beside the projected peak of the driver."""

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
      - op: replace
        path: /spec/worker/spec/containers/0/resources
        value: {{requests: {{cpu: "{threads}", memory: {worker}Mi}}, limits: {{memory: {worker}Mi}}}}
  - target: {{kind: DaskAutoscaler}}
    patch: |-
      - {{op: replace, path: /spec/minimum, value: {workers}}}
      - {{op: replace, path: /spec/maximum, value: {workers}}}
  - target: {{kind: Job}}
    patch: |-
      - op: replace
        path: /spec/template/spec/containers/0/resources
        value: {{requests: {{cpu: "1", memory: {driver}Mi}}, limits: {{memory: {driver}Mi}}}}
"""


def register(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plan",
        help="what a fit would do and cost, before a byte of the matrix is read",
        description="The route and why, passes, bytes and tasks of each, and projected memory; reads no features.",
    )
    for kind in add_models(parser, cluster=_add_workers):
        kind.set_defaults(run=run)


def _add_workers(parser: argparse.ArgumentParser) -> None:
    add_cluster(parser, workers="plan for N workers that need not be there; none is started")
    parser.add_argument(
        "--driver-memory", metavar="SIZE", help="memory of their driver (default: that of this machine)"
    )
    parser.add_argument(
        "--bandwidth",
        metavar="SIZE",
        help="what each of them gets in a second from the store and from others, for example 200MB; then the plan says "
        "about how long the fit takes",
    )
    parser.add_argument("--price", type=float, metavar="P", help="what each of them costs for an hour")
    parser.add_argument(
        "--emit",
        choices=["kubernetes"],
        help="print what --workers and --memory-limit make of deploy/kubernetes, as a component of kustomize",
    )


def run(arguments: argparse.Namespace) -> int:
    """Plan, and show the plan."""
    if arguments.emit and (arguments.workers is None or arguments.memory_limit is None):
        raise UsageError("--emit needs --workers N and --memory-limit SIZE, what the cluster is to have")
    if arguments.emit and arguments.json:
        raise UsageError("--emit prints YAML; leave --json out")
    model = model_of(arguments)
    data, inputs = data_of(arguments), inputs_of(arguments)
    with _workers(arguments) as client:
        plan = model.plan(data, **inputs, client=client)
    if arguments.emit:
        print(_component(arguments, plan), end="")
    elif arguments.json:
        show.as_json(plan.figures())
    else:
        print(plan)
    return OK


def _workers(arguments: argparse.Namespace) -> AbstractContextManager[Any]:
    """The cluster that is there, or the workers that are not.

    Errors: UsageError for options of workers without workers, and values that are none.
    """
    if arguments.workers is None:
        if given := [name for name in IMAGINED if getattr(arguments, name) is not None]:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise UsageError(f"{options} is said of workers that are not there; give --workers N with it")
        return connected(arguments)
    from dlatent.engine.machine import granted
    from dlatent.engine.records import Workers

    check_unused(arguments)
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
    from dask.utils import parse_bytes

    limit = int(parse_bytes(arguments.memory_limit))
    return COMPONENT.format(
        solver=plan.solver,
        passes=plan.passes,
        data=" ".join(masked(plan.problem.description).split()),
        workers=arguments.workers,
        threads=arguments.threads_per_worker or 1,
        limit=limit,
        worker=-(-(limit + BESIDE) // MIB),
        driver=-(-(plan.driver_memory + BESIDE) // MIB),
    )
