"""deploy/kubernetes: what it renders is valid, safe, and fits together; each of these checks finds its mistake."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_cases as cases
import kubernetes_validate
import pytest
from deploy_cases import DEPLOY, environment, variables
from kubernetes_cases import RECIPE, Object, faults, may_run, memory, missing, of_kind, pods, refused, render

from dlatent import cli
from dlatent.cli.main import main, parser

rendering = pytest.mark.skipif(bool(missing()), reason=missing() or "there is kubectl")
COMBINED = ("large", "spot", "tls", "smoke")
RECIPES = ("small", "large", "spot", COMBINED)
VERSIONS = ("1.31", kubernetes_validate.latest_version())


def kustomization(folder: Path, overlay: str, components: tuple[str, ...] = (), more: str = "") -> Path:
    """A user's own overlay of ours."""
    base = os.path.relpath(RECIPE, folder)
    folder.joinpath("kustomization.yaml").write_text(
        f"resources: [{base}/overlays/{overlay}]\n"
        f"components: [{', '.join(f'{base}/components/{name}' for name in components)}]\n{more}"
    )
    return folder


@cache
def _rendered(folder: Path) -> list[Object]:
    return render(folder)


@pytest.fixture(scope="session")
def combined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kustomization(tmp_path_factory.mktemp("combined"), COMBINED[0], COMBINED[1:])


@pytest.fixture(params=RECIPES, ids=["small", "large", "spot", "all components"])
def objects(request: pytest.FixtureRequest, combined: Path) -> list[Object]:
    which = request.param
    return copy.deepcopy(_rendered(combined if which == COMBINED else RECIPE / "overlays" / which))


@pytest.fixture
def small() -> list[Object]:
    return copy.deepcopy(_rendered(RECIPE / "overlays" / "small"))


@rendering
@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_and_the_operator_accept_every_object(objects: list[Object], version: str) -> None:
    assert refused(objects, version) == []


@rendering
def test_the_parts_fit_together_and_have_no_rights_that_they_do_not_need(objects: list[Object]) -> None:
    assert faults(objects) == []


def put(kind: str, path: str, value: Any) -> Callable[[list[Object]], None]:
    """A change of one field, or with ... one that takes it away."""

    def change(objects: list[Object]) -> None:
        at: Any = next(one for one in objects if one["kind"] == kind)
        *way, last = (int(word) if word.isdigit() else word for word in path.split("/"))
        for word in way:
            at = at[word]
        if value is ...:
            del at[last]
        else:
            at[last] = value

    return change


WORKER, SCHEDULER = "spec/worker/spec", "spec/scheduler/spec"
POD = "spec/template/spec"
BOX = "containers/0"


@rendering
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("Job", "spec/backofLimit", 3), "'backofLimit' was unexpected"),
        (put("Job", f"{POD}/restartPolicy", ["Never"]), "is not of type 'string'"),
        (put("Job", f"{POD}/{BOX}/resource", {}), "'resource' was unexpected"),
        (put("NetworkPolicy", "spec/policyTypes", "Ingress"), "is not of type 'array'"),
        (put("DaskCluster", f"{WORKER}/{BOX}/resource", {}), "'resource' was unexpected"),
        (put("DaskCluster", "spec/worker/replicas", "two"), "is not of type 'integer'"),
        (put("DaskCluster", f"{SCHEDULER}/{BOX}/ports/0/containerPort", ...), "'containerPort' is a required property"),
        (put("DaskCluster", "spec/scheduler/service", ...), "'service' is a required property"),
        (put("DaskAutoscaler", "spec/most", 3), "'most' was unexpected"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_mistake_in_a_field_is_refused(
    small: list[Object], change: Callable[[list[Object]], None], said: str, version: str
) -> None:
    change(small)
    assert said in "\n".join(refused(small, version))


RIGHTS = "securityContext"


@rendering
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (put("DaskCluster", f"{WORKER}/{RIGHTS}/runAsNonRoot", ...), "worker: runAsNonRoot is None"),
        (put("Job", f"{POD}/{RIGHTS}/seccompProfile", ...), "driver: seccompProfile is None"),
        (put("Job", f"{POD}/automountServiceAccountToken", ...), "driver: gets a token"),
        (put("DaskCluster", f"{SCHEDULER}/{BOX}/{RIGHTS}/capabilities/drop", ["KILL"]), "scheduler: its container"),
        (put("Job", f"{POD}/{BOX}/{RIGHTS}/readOnlyRootFilesystem", False), "driver: its container"),
        (put("DaskCluster", f"{WORKER}/volumes/0/emptyDir", {}), "worker: has no scratch"),
        (put("DaskCluster", f"{WORKER}/{BOX}/resources/requests/memory", "1Gi"), "worker: asks for 1Gi"),
        (put("DaskCluster", f"{WORKER}/{BOX}/env/0/value", "2560MiB"), "leaves 0 bytes"),
        (put("DaskCluster", f"{WORKER}/{BOX}/env/1/value", "4"), "more or fewer threads"),
        (put("DaskCluster", f"{WORKER}/{BOX}/env/3/value", "tcp://scheduler:8786"), "looks for the scheduler"),
        (put("DaskCluster", f"{WORKER}/{BOX}/image", "dlatent:latest"), "the images are"),
        (put("DaskCluster", f"{WORKER}/{BOX}/readinessProbe", ...), "worker: has no readinessProbe"),
        (put("DaskCluster", "metadata/labels", {}), "NetworkPolicy dlatent-operator selects no pod"),
        (put("DaskCluster", "spec/scheduler/service/ports/0/targetPort", "comm"), "the Service leads to {'comm'}"),
        (put("DaskAutoscaler", "spec/maximum", 1), "does not keep the workers"),
        (put("DaskAutoscaler", "spec/minimum", 1), "does not keep the workers"),
        (put("DaskAutoscaler", "spec/cluster", "other"), "the autoscaler means other"),
        (put("Job", f"{POD}/{BOX}/envFrom/1/configMapRef/name", "place"), "place, which is no ConfigMap"),
        (put("Job", f"{POD}/{BOX}/envFrom/1", {"secretRef": {"name": "s"}}), "driver: needs the Secret s"),
        (put("Job", f"{POD}/{BOX}/args/3", "$(DATE)"), "{'DATE'}, which nobody sets"),
        (put("ConfigMap", "kind", "Secret"), "there is a Secret"),
        (put("DaskCluster", f"{WORKER}/{BOX}/resources/requests/ephemeral-storage", "1Gi"), "worker: asks for 1Gi of"),
        (put("DaskCluster", f"{WORKER}/volumes/0/emptyDir/sizeLimit", "17Gi"), "volumes may take"),
        (put("DaskCluster", f"{WORKER}/{BOX}/env/4/value", "16GiB"), "may spill more than its volume"),
        (put("DaskCluster", f"{SCHEDULER}/{BOX}/startupProbe", ...), "scheduler: has no startupProbe"),
        (put("DaskCluster", f"{WORKER}/topologySpreadConstraints", []), "not spread over nodes"),
        (put("Job", "spec/ttlSecondsAfterFinished", ...), "the Job stays for ever"),
        (put("NetworkPolicy", "spec/egress/2/to", ...), "dlatent lets pods go anywhere"),
    ],
)
def test_what_does_not_fit_together_is_found(
    small: list[Object], change: Callable[[list[Object]], None], said: str
) -> None:
    change(small)
    assert said in "\n".join(faults(small))


@rendering
def test_every_variable_of_worker_env_reaches_workers_and_driver(objects: list[Object]) -> None:
    (found,) = (one["data"] for one in objects if one["metadata"]["name"] == "worker-environment")
    assert found == variables(DEPLOY / "worker.env")
    for name in ("worker", "driver"):
        assert {"configMapRef": {"name": "worker-environment"}} in pods(objects)[name][1]["containers"][0]["envFrom"]


@rendering
@pytest.mark.parametrize(
    "change",
    [
        put("PodDisruptionBudget", "spec/unhealthyPodEvictionPolicy", ...),
        put("PodDisruptionBudget", "spec/selector/matchLabels", {"dask.org/component": "scheduler"}),
    ],
)
def test_a_budget_that_blocks_drains_for_ever_is_found(change: Callable[[list[Object]], None]) -> None:
    spot = copy.deepcopy(_rendered(RECIPE / "overlays" / "spot"))
    change(spot)
    assert "can block drains for ever" in "\n".join(faults(spot))


@rendering
def test_the_namespace_of_the_page_enforces_what_the_pods_are_made_for() -> None:
    assert "label namespace fit pod-security.kubernetes.io/enforce=restricted" in (RECIPE / "README.md").read_text()


@rendering
def test_the_driver_says_what_dlatent_understands_and_restarts_where_that_helps(small: list[Object]) -> None:
    job = of_kind(small, "Job")["spec"]
    asked = parser().parse_args(job["template"]["spec"]["containers"][0]["args"][1:])
    assert (asked.run.__module__, asked.resume, asked.overwrite) == ("dlatent.cli.fit", True, True)
    assert (asked.checkpoint, asked.scheduler) == ("$(CHECKPOINT)", "$(DASK_SCHEDULER_ADDRESS)")
    ignored, final = job["podFailurePolicy"]["rules"]
    assert (ignored["action"], ignored["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
    assert final["onExitCodes"]["containerName"] == job["template"]["spec"]["containers"][0]["name"]
    hopeless = {cli.USAGE, cli.BAD_DATA, cli.DOES_NOT_FIT, cli.NOT_CONVERGED}
    assert set(final["onExitCodes"]["values"]) == hopeless
    assert job["template"]["spec"]["restartPolicy"] == "Never"  # which a podFailurePolicy needs


@rendering
def test_the_smoke_command_of_the_job_is_that_of_the_image(combined: Path) -> None:
    job = of_kind(_rendered(combined), "Job")
    assert job["metadata"]["name"] == "dlatent-smoke"
    program, *words = job["spec"]["template"]["spec"]["containers"][0]["args"][1:]
    assert f"COPY deploy/smoke.py {program}\n" in (RECIPE / "Containerfile").read_text()
    options = set(re.findall(r'"(--[\w-]+)"', (DEPLOY / "smoke.py").read_text()))
    assert set(words[::2]) <= options


@rendering
def test_with_certificates_nobody_speaks_without(combined: Path) -> None:
    parts = pods(_rendered(combined))
    (tls,) = (one["data"] for one in _rendered(combined) if one["metadata"]["name"] == "tls-environment")
    assert tls["DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION"] == "True"
    for _, spec in parts.values():
        container = spec["containers"][0]
        assert {"configMapRef": {"name": "tls-environment"}} in container["envFrom"]
        (place,) = (mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "tls")
        files = {value for name, value in tls.items() if "TLS" in name}
        assert files == {f"{place}/{name}" for name in ("ca.crt", "tls.crt", "tls.key")}
        addresses = [one["value"] for one in container.get("env", []) if one["name"] == "DASK_SCHEDULER_ADDRESS"]
        assert all(address.startswith("tls://") for address in addresses)


SPOT = {
    "cloud.google.com/gke-spot": "true",
    "karpenter.sh/capacity-type": "spot",
    "kubernetes.azure.com/scalesetpriority": "spot",
    "eks.amazonaws.com/capacityType": "SPOT",
}


@rendering
@pytest.mark.parametrize("label", SPOT)
def test_workers_alone_go_to_spot_nodes_and_to_none_with_a_gpu(label: str) -> None:
    parts = pods(_rendered(RECIPE / "overlays" / "spot"))
    node = {label: SPOT[label]}
    taints = set() if "eks" in label else {f"{label}={SPOT[label]}"}
    gpu = {
        "cloud.google.com/gke-accelerator": "nvidia-l4",
        "nvidia.com/gpu.present": "true",
        "karpenter.k8s.aws/instance-gpu-name": "t4",
        "kubernetes.azure.com/accelerator": "nvidia",
    }
    assert may_run(parts["worker"][1], node, taints)
    assert not may_run(parts["worker"][1], node | gpu, taints)
    assert not may_run(parts["worker"][1], {}, set())
    for name in ("scheduler", "driver"):
        assert may_run(parts[name][1], {}, set())
        assert not may_run(parts[name][1], node, set())


@rendering
def test_the_kustomization_that_the_page_shows_is_one(tmp_path: Path) -> None:
    shutil.copytree(RECIPE, tmp_path / "kubernetes")
    (shown,) = re.findall(r"```yaml\n(.*?)```", (RECIPE / "README.md").read_text(), re.DOTALL)
    mine = tmp_path / "kubernetes" / "overlays" / "mine"
    mine.mkdir()
    mine.joinpath("kustomization.yaml").write_text(shown)
    objects = render(mine)
    assert faults(objects) == []
    images = {spec["containers"][0]["image"] for _, spec in pods(objects).values()}
    assert images == {"registry.example.com/dlatent:0.1.0"}
    (places,) = (one["data"] for one in objects if one["metadata"]["name"] == "places")
    assert set(places.values()) == {f"s3://mine/{name}" for name in ("smoke.zarr", "model.zarr", "fit.checkpoint")}


@rendering
def test_a_plan_gives_the_recipe_its_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zarr = pytest.importorskip("zarr")
    zarr.create_array(str(tmp_path / "x.zarr"), shape=(4000, 40), chunks=(500, 40), dtype="f4")
    words = ["plan", "ppca", str(tmp_path / "x.zarr"), "-k", "3", "--missing-chunks", "fill"]
    assert main([*words, "--workers", "1", "--memory-limit", "3GiB", "--emit", "kubernetes"]) == 0
    (tmp_path / "size").mkdir()
    (tmp_path / "size" / "kustomization.yaml").write_text(capsys.readouterr().out)
    base = os.path.relpath(RECIPE, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{base}/overlays/large]\ncomponents: [size]\n")
    objects = render(tmp_path)
    assert [refused(objects, version) for version in VERSIONS] == [[], []]
    assert faults(objects) == []
    worker = of_kind(objects, "DaskCluster")["spec"]["worker"]
    assert worker["replicas"] == of_kind(objects, "DaskAutoscaler")["spec"]["maximum"] == 1
    container = worker["spec"]["containers"][0]
    assert container["env"][0] == {"name": "MEMORY", "value": str(3 * 2**30)}
    assert memory(container["resources"]["limits"]["memory"]) == int(3.5 * 2**30)
    driver = of_kind(objects, "Job")["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"]
    assert 512 * 2**20 < memory(driver) < 2**30  # of a small fit; that of the overlay has 16 GiB


def hadolint(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["hadolint", "-"], input=text, capture_output=True, text=True, env=environment())


@pytest.mark.skipif(not shutil.which("hadolint", path=environment()["PATH"]), reason="there is no hadolint")
def test_hadolint_has_nothing_to_say_of_the_containerfile() -> None:
    text = (RECIPE / "Containerfile").read_text()
    clean = hadolint(text)
    assert (clean.returncode, clean.stdout) == (0, "")
    assert "DL3003" in hadolint(text + "RUN cd /opt\n").stdout


def test_the_user_of_the_image_is_that_of_the_pods() -> None:
    users = re.findall(r"^USER (.*)$", (RECIPE / "Containerfile").read_text(), re.MULTILINE)
    assert users == [f"{cases.USER}:{cases.USER}"]


def test_no_file_holds_a_secret() -> None:
    told = re.compile(r"kind: Secret\b|PRIVATE KEY|AWS_SECRET_ACCESS_KEY=\w|AKIA[0-9A-Z]{16}|//[^/\s]+:[^/\s]+@")
    files = [path for path in RECIPE.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path.name for path in files if told.search(path.read_text())] == []
