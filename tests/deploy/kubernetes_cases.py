"""What kustomize makes of deploy/kubernetes, who accepts it, and what must hold of it."""

from __future__ import annotations

import importlib.resources
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import yaml
from dask.utils import parse_bytes
from dask_kubernetes.operator.controller import controller
from deploy_cases import DEPLOY
from jsonschema import Draft7Validator

RECIPE = DEPLOY / "kubernetes"
USER = 10001
Object = dict[str, Any]


def missing() -> str:
    """Why nothing can be rendered here; "" where it can."""
    return "" if shutil.which("kubectl") or shutil.which("kustomize") else "neither kubectl nor kustomize is installed"


def render(folder: Path) -> list[Object]:
    """The objects of a kustomization."""
    command = ["kubectl", "kustomize"] if shutil.which("kubectl") else ["kustomize", "build"]
    ended = subprocess.run([*command, str(folder)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return [found for found in yaml.safe_load_all(ended.stdout) if found]


def of_kind(objects: list[Object], kind: str) -> Object:
    """The only object of its kind."""
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def made_by_operator(cluster: Object) -> list[Object]:
    """The Deployments and the Service that the Dask operator makes of a DaskCluster."""
    name, labels, spec = cluster["metadata"]["name"], cluster["metadata"].get("labels", {}), cluster["spec"]
    group = f"{name}-default"
    worker: Any = {
        "worker_group_name": group,
        "namespace": "x",
        "cluster_name": name,
        "uuid": "0",
        "pod_spec": spec["worker"]["spec"],
        "annotations": {},
        "labels": labels,
    }
    service = controller.build_scheduler_service_spec(name, spec["scheduler"]["service"], {}, labels)
    scheduler = controller.build_scheduler_deployment_spec(name, spec["scheduler"]["spec"], {}, labels)
    return json.loads(json.dumps([service, scheduler, controller.build_worker_deployment_spec(**worker)]))


def expanded(objects: list[Object]) -> list[Object]:
    """What Kubernetes itself gets: the objects, and those that the operator adds."""
    plain = [one for one in objects if "dask.org" not in one["apiVersion"]]
    return plain + made_by_operator(of_kind(objects, "DaskCluster"))


def pods(objects: list[Object]) -> dict[str, tuple[dict[str, str], Object]]:
    """Labels and specification of the pod of each part."""
    templates = [one["spec"]["template"] for one in expanded(objects) if one["kind"] in ("Deployment", "Job")]
    return {
        template["spec"]["containers"][0]["name"]: (template["metadata"]["labels"], template["spec"])
        for template in templates
    }


@cache
def _operator_schemas() -> dict[str, Any]:
    folder = importlib.resources.files("dask_kubernetes") / "operator/deployment/helm/dask-kubernetes-operator/crds"
    found: dict[str, Any] = {}
    for name in ("daskcluster", "daskautoscaler"):
        for definition in yaml.safe_load_all((folder / f"{name}.yaml").read_text()):
            spec = definition["spec"]
            schema = spec["versions"][0]["schema"]["openAPIV3Schema"]
            head = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}}
            found[spec["names"]["kind"]] = _closed(schema | {"properties": schema["properties"] | head})
    return found


def _closed(schema: Any) -> Any:
    """The schema with fields that it does not know refused, which an API server would drop."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    if closed.get("type") == "object" and "properties" in closed:
        closed.setdefault("additionalProperties", False)
    if closed.pop("x-kubernetes-int-or-string", False):
        closed.pop("anyOf", None)
        closed["type"] = ["integer", "string"]
    return closed


def refused(objects: list[Object], version: str) -> list[str]:
    """What a Kubernetes of this version, or the operator, says against objects and what is made of them."""
    said = []
    for one in objects:
        if schema := _operator_schemas().get(one["kind"]):
            said += [f"{one['kind']}: {error.message}" for error in Draft7Validator(schema).iter_errors(one)]
    for one in objects if said else expanded(objects):
        if one["kind"] in _operator_schemas():
            continue
        try:
            kubernetes_validate.validate(one, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            said.append(f"{one['kind']}: {error.message}")
    return said


def memory(text: str | int) -> int:
    """Bytes of a quantity of Kubernetes, of which these files use Mi and Gi."""
    found = re.fullmatch(r"(\d+)(Mi|Gi)", str(text))
    assert found, f"{text} is no quantity that these files use"
    return int(found[1]) * 2 ** {"Mi": 20, "Gi": 30}[found[2]]


def faults(objects: list[Object]) -> list[str]:
    """What is wrong with a recipe that Kubernetes accepts."""
    parts = pods(objects)
    found = [f"the parts are {sorted(parts)}"] if sorted(parts) != ["driver", "scheduler", "worker"] else []
    for name, (_, spec) in parts.items():
        found += [f"{name}: {fault}" for fault in (*_rights(spec), *_resources(spec), *_names(spec, objects))]
    found += _sizes(objects)
    found += _selectors(objects)
    found += _endings(objects)
    if len(images := {spec["containers"][0]["image"] for _, spec in parts.values()}) != 1:
        found.append(f"the images are {sorted(images)}")
    found += [f"there is a Secret: {one['metadata']['name']}" for one in objects if one["kind"] == "Secret"]
    return found


def _rights(spec: Object) -> Iterator[str]:
    """A pod has none that it does not need."""
    pod = spec.get("securityContext", {})
    wanted = {"runAsNonRoot": True, "runAsUser": USER, "runAsGroup": USER, "seccompProfile": {"type": "RuntimeDefault"}}
    yield from (f"{name} is {pod.get(name)}" for name, value in wanted.items() if pod.get(name) != value)
    if spec.get("automountServiceAccountToken") is not False:
        yield "gets a token of Kubernetes"
    if any(spec.get(name) for name in ("hostNetwork", "hostPID", "hostIPC")):
        yield "shares something of the host"
    if len(spec["containers"]) != 1 or spec.get("initContainers"):
        yield "has several containers, of which this test looks at one"
    own = spec["containers"][0].get("securityContext", {})
    if own != {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}:
        yield f"its container has the rights {own}"
    writable = {volume["name"] for volume in spec["volumes"] if volume.get("emptyDir", {}).get("sizeLimit")}
    mounts = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    if mounts.get("/tmp") not in writable:
        yield "has no scratch of limited size at /tmp"
    if missing := set(mounts.values()) - {volume["name"] for volume in spec["volumes"]}:
        yield f"mounts {missing}, which are no volumes"


def _resources(spec: Object) -> Iterator[str]:
    own = spec["containers"][0].get("resources", {})
    asked, limit = own.get("requests", {}).get("memory"), own.get("limits", {}).get("memory")
    if asked is None or asked != limit:
        yield f"asks for {asked} of memory and is limited to {limit}"
    if "cpu" not in own.get("requests", {}):
        yield "asks for no cpu"
    volumes = sum(memory(one["emptyDir"].get("sizeLimit", "0Mi")) for one in spec["volumes"] if "emptyDir" in one)
    asked, limit = (own.get(name, {}).get("ephemeral-storage", "0Mi") for name in ("requests", "limits"))
    if asked != limit or memory(asked) <= volumes:
        yield f"asks for {asked} of disk and is limited to {limit}, and its volumes may take {volumes} bytes"


def _names(spec: Object, objects: list[Object]) -> Iterator[str]:
    """Names that a container uses are there: ConfigMaps, variables, ports."""
    container = spec["containers"][0]
    maps = {one["metadata"]["name"]: one["data"] for one in objects if one["kind"] == "ConfigMap"}
    known = {variable["name"] for variable in container.get("env", [])}
    for source in container.get("envFrom", []):
        if "secretRef" in source and not source["secretRef"].get("optional"):
            yield f"needs the Secret {source['secretRef']['name']}"
        if (of := source.get("configMapRef", {}).get("name")) and of not in maps:
            yield f"takes variables from {of}, which is no ConfigMap"
        known |= set(maps.get(of, ()))
    texts = [*container["args"], *(variable.get("value", "") for variable in container.get("env", []))]
    used = {name for text in texts for name in re.findall(r"\$\((\w+)\)", text)}
    if unknown := used - known:
        yield f"uses the variables {unknown}, which nobody sets"
    ports = {port["name"] for port in container.get("ports", [])}
    if container["name"] != "driver":
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            if container.get(probe, {}).get("httpGet", {}).get("port") not in ports:
                yield f"has no {probe} at one of its ports"


def _sizes(objects: list[Object]) -> Iterator[str]:
    """The worker's own limit leaves room for the nanny; the autoscaler means this cluster, and keeps its workers."""
    cluster, scaler = of_kind(objects, "DaskCluster"), of_kind(objects, "DaskAutoscaler")["spec"]
    container = cluster["spec"]["worker"]["spec"]["containers"][0]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    beside = memory(container["resources"]["limits"]["memory"]) - parse_bytes(variables["MEMORY"])
    if beside < 400 * 2**20:
        yield f"the limit of a worker leaves {beside} bytes beside what it may use itself"
    (volume,) = (one for one in cluster["spec"]["worker"]["spec"]["volumes"] if one["name"] == "scratch")
    if parse_bytes(variables.get("DASK_DISTRIBUTED__WORKER__MEMORY__MAX_SPILL", "inf")) >= memory(
        volume.get("emptyDir", {}).get("sizeLimit", "0Mi")
    ):
        yield "a worker may spill more than its volume takes"
    if int(container["resources"]["requests"]["cpu"]) != int(variables["THREADS"]):
        yield "a worker has more or fewer threads than processors"
    if scaler["cluster"] != cluster["metadata"]["name"]:
        yield f"the autoscaler means {scaler['cluster']}"
    if not scaler["minimum"] == cluster["spec"]["worker"]["replicas"] <= scaler["maximum"]:
        yield "the autoscaler does not keep the workers that the cluster begins with"


def _endings(objects: list[Object]) -> Iterator[str]:
    """What is done goes, and holds no node: budgets are of pods that end, and let those go that do not run."""
    if not of_kind(objects, "Job")["spec"].get("ttlSecondsAfterFinished"):
        yield "the Job stays for ever when it is done"
    parts = pods(objects)
    for one in objects:
        if one["kind"] == "PodDisruptionBudget":
            wanted = one["spec"]["selector"]["matchLabels"].items()
            selected = [name for name, (labels, _) in parts.items() if labels.items() >= wanted]
            if selected != ["driver"] or one["spec"].get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
                yield f"the budget of {selected} can block drains for ever"
        if one["kind"] == "NetworkPolicy" and not all(rule.get("to") for rule in one["spec"].get("egress", [])):
            yield f"{one['metadata']['name']} lets pods go anywhere"
    spread = parts["worker"][1].get("topologySpreadConstraints", [])
    chosen = [one["labelSelector"]["matchLabels"].items() for one in spread]
    if not any(parts["worker"][0].items() >= labels for labels in chosen):
        yield "workers are not spread over nodes"


def _selectors(objects: list[Object]) -> Iterator[str]:
    """Who selects pods finds some, and ports that he names are theirs."""
    parts = pods(objects)
    for one in expanded(objects):
        spec, who = one.get("spec", {}), f"{one['kind']} {one['metadata']['name']}"
        wanted = [spec["podSelector"]] if one["kind"] == "NetworkPolicy" else []
        for rule in (*spec.get("ingress", []), *spec.get("egress", [])):
            wanted += [
                peer["podSelector"]
                for peer in (*rule.get("from", []), *rule.get("to", []))
                if "podSelector" in peer and "namespaceSelector" not in peer  # else pods that are not ours
            ]
        if one["kind"] == "PodDisruptionBudget":
            wanted.append(spec["selector"])
        if one["kind"] == "Service":
            wanted.append({"matchLabels": spec["selector"]})
        for selector in wanted:
            if set(selector) != {"matchLabels"} or not selector["matchLabels"]:
                yield f"{who} selects by more than labels"
            elif not [name for name, (labels, _) in parts.items() if selector["matchLabels"].items() <= labels.items()]:
                yield f"{who} selects no pod by {selector['matchLabels']}"
    ports = {port["name"] for _, spec in parts.values() for port in spec["containers"][0].get("ports", [])}
    service = of_kind(expanded(objects), "Service")
    if unknown := {port["targetPort"] for port in service["spec"]["ports"]} - ports:
        yield f"the Service leads to {unknown}, which are no ports"
    address = f"//{service['metadata']['name']}:"
    for name in ("driver", "worker"):
        variables = {one["name"]: one["value"] for one in parts[name][1]["containers"][0]["env"]}
        if address not in variables["DASK_SCHEDULER_ADDRESS"]:
            yield f"{name} looks for the scheduler at {variables['DASK_SCHEDULER_ADDRESS']}"


def may_run(spec: Object, labels: dict[str, str], taints: set[str]) -> bool:
    """Whether a pod goes to a node with these labels, and taints NAME=VALUE."""
    allowed = {f"{one['key']}={one['value']}" for one in spec.get("tolerations", [])}
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    tests = {
        "In": lambda one: labels.get(one["key"]) in one["values"],
        "NotIn": lambda one: labels.get(one["key"]) not in one["values"],
        "DoesNotExist": lambda one: one["key"] not in labels,
    }
    fits = any(all(tests[one["operator"]](one) for one in term["matchExpressions"]) for term in terms)
    return taints <= allowed and (fits or not terms)
