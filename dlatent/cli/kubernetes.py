"""A plan as a component of kustomize, which gives the recipe in deploy/kubernetes its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlatent.errors import masked

if TYPE_CHECKING:
    from dlatent.fitting.plan import Plan

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


def component(plan: Plan, workers: int, threads: int, worker_bytes: int) -> str:
    """The component: so many workers of so many threads and bytes, and a driver of the size that the plan projects."""
    return COMPONENT.format(
        solver=plan.solver,
        passes=plan.passes,
        data=" ".join(masked(plan.problem.description).split()),
        workers=workers,
        threads=threads,
        limit=worker_bytes,
        worker=_mebibytes(worker_bytes + BESIDE),
        driver=_mebibytes(plan.driver_memory + BESIDE),
    )


def _mebibytes(nbytes: int) -> int:
    return -(-nbytes // MIB)
