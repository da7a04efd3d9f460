"""deploy/kubernetes end to end: a real API server with its controllers, the real Dask operator, our manifests.

    python kubernetes_end_to_end.py BINARIES    # as kubernetes_binaries.sh has put them there; root, five minutes

Builds the image, runs the smoke command while a worker is evicted and the driver deleted, and a fit with certificates
while the scheduler is killed.  The last line is OK.  All of it happens in name spaces of its own, where ports are free.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from deploy_cases import OK, environment
from distributed import Client, Security
from image_cases import Image
from kubernetes_cases import RECIPE, Object, render
from kubernetes_node import NETWORK, Api, Node
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

import dlatent

SPACE, TOKEN = "fit", "token-of-this-run"
STORE = f"http://{NETWORK}.1:9000"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_ENDPOINT_URL": STORE}
CONTROLLERS = "deployment,replicaset,job,garbagecollector,namespace,serviceaccount,serviceaccount-token,disruption"


class Control:
    """etcd, the API server, its controllers and the operator, and commands of `kubectl`."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self._folder, self._binaries = folder, binaries
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "tokens").write_text(f"{TOKEN},admin,1,system:masters\n")
        self.configuration = folder / "kubeconfig"
        self.configuration.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "here",
                    "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin", "namespace": SPACE}}],
                    "clusters": [
                        {
                            "name": "here",
                            "cluster": {"server": "https://127.0.0.1:6443", "insecure-skip-tls-verify": True},
                        }
                    ],
                    "users": [{"name": "admin", "user": {"token": TOKEN}}],
                }
            )
        )
        subprocess.run(["openssl", "genrsa", "-out", folder / "key", "2048"], check=True, capture_output=True)
        self.start("etcd", binaries / "etcd", f"--data-dir={folder}/etcd", "--unsafe-no-fsync")
        self.start(
            "kube-apiserver",
            binaries / "kube-apiserver",
            "--etcd-servers=http://127.0.0.1:2379",
            f"--cert-dir={folder}/certificates",
            f"--token-auth-file={folder}/tokens",
            "--authorization-mode=RBAC",
            "--bind-address=127.0.0.1",
            f"--advertise-address={NETWORK}.1",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--service-account-issuer=https://kubernetes",
            f"--service-account-key-file={folder}/key",
            f"--service-account-signing-key-file={folder}/key",
        )
        self.api = Api("https://127.0.0.1:6443", TOKEN)
        self.wait_till_ready()
        self.start(
            "kube-controller-manager",
            binaries / "kube-controller-manager",
            f"--kubeconfig={self.configuration}",
            f"--service-account-private-key-file={folder}/key",
            f"--controllers={CONTROLLERS}",
            "--leader-elect=false",
        )

    def start(self, name: str, *words: str | Path) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            variables = environment(KUBECONFIG=str(self.configuration))
            self.processes[name] = subprocess.Popen([str(w) for w in words], stdout=log, stderr=log, env=variables)

    def wait_till_ready(self) -> None:
        end = time.monotonic() + 90
        while True:
            try:
                if self.api("GET", "/readyz").ok:
                    return
            except OSError:
                pass
            assert time.monotonic() < end, "the API server does not start"
            time.sleep(0.5)

    def operate(self) -> None:
        """The operator's definitions, and the operator."""
        import dask_kubernetes

        definitions = Path(dask_kubernetes.__file__).parent / "operator/deployment/helm/dask-kubernetes-operator/crds"
        self.kubectl("apply", "--validate=false", "-f", str(definitions))
        time.sleep(3)  # till they are served
        module = ("-m", "dask_kubernetes.operator.controller")
        self.start("operator", sys.executable, "-m", "kopf", "run", "--standalone", "--all-namespaces", *module)

    def kubectl(self, *words: str, given: str | None = None) -> str:
        ended = subprocess.run(
            ["kubectl", *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=120,
            env=environment(KUBECONFIG=str(self.configuration)),
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            process.wait(30)


class Trial:
    """One recipe on the cluster, and what is done to it."""

    def __init__(self, control: Control, node: Node) -> None:
        self.control, self.node, self.api = control, node, control.api
        self._objects = ""

    def until(self, done: Callable[[], Any], seconds: float, what: str) -> Any:
        """Let the node work until something is so."""
        end = time.monotonic() + seconds
        while not (found := done()):
            self.node.step()
            for name, process in self.control.processes.items():
                assert process.poll() is None, f"{name} has ended"
            assert time.monotonic() < end, f"after {seconds} s there is not: {what}"
            time.sleep(0.3)
        self.node.say(f"-- {what}")
        return found

    def apply(self, objects: list[Object]) -> None:
        self._objects = yaml.safe_dump_all(objects)
        self.control.kubectl("-n", SPACE, "apply", "--validate=false", "-f", "-", given=self._objects)

    def delete(self) -> None:
        self.control.kubectl("-n", SPACE, "delete", "--wait=false", "-f", "-", given=self._objects)
        kinds = ("apps/v1/namespaces/fit/deployments", "kubernetes.dask.org/v1/namespaces/fit/daskworkergroups")
        self.until(lambda: not self.node.pods, 120, "all pods are gone")
        self.until(lambda: not any(self.api.get(f"/apis/{kind}") for kind in kinds), 60, "and all that made them")

    def pods(self, part: str) -> list[Object]:
        """Those that live and are ready, the oldest first."""
        labels = {
            "worker": "dask.org/component=worker",
            "scheduler": "dask.org/component=scheduler",
            "driver": "app.kubernetes.io/component=driver",
        }
        found = self.api.get(f"/api/v1/namespaces/{SPACE}/pods?labelSelector={labels[part]}")
        live = [one for one in found if "deletionTimestamp" not in one["metadata"] and _ready(one)]
        return sorted(live, key=lambda one: one["metadata"]["creationTimestamp"])

    def log(self, part: str = "driver") -> str:
        """Of all pods of a part that there have been."""
        words = {"driver": "dlatent-smoke-*.log dlatent-fit-*.log", "worker": "dlatent-default-*.log"}[part]
        paths = sorted((p for word in words.split() for p in self.node.folder.glob(word)), key=os.path.getctime)
        return "".join(path.read_text() for path in paths)

    def evict(self, pod: Object) -> int:
        """As a drain of its node does."""
        name = pod["metadata"]["name"]
        body = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": name, "namespace": SPACE}}
        return self.api("POST", f"/api/v1/namespaces/{SPACE}/pods/{name}/eviction", body).status_code

    def delete_pod(self, pod: Object) -> None:
        self.node.say(f"-- {pod['metadata']['name']} is deleted")
        assert self.api("DELETE", f"/api/v1/namespaces/{SPACE}/pods/{pod['metadata']['name']}").ok

    def condition(self, name: str) -> str:
        """Of the Job: Complete, Failed, or nothing yet."""
        status = self.api.get(f"/apis/batch/v1/namespaces/{SPACE}/jobs/{name}").get("status", {})
        return next((one["type"] for one in status.get("conditions", []) if one["status"] == "True"), "")


def _ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def recipe(folder: Path, components: list[str], patch: list[Object]) -> list[Object]:
    """The small overlay with components and a patch of the Job, for this server and its store."""
    folder.mkdir()
    base = os.path.relpath(RECIPE, folder)
    places = {"DATA": "s3://bucket/x.zarr", "MODEL": "s3://bucket/model.zarr", "CHECKPOINT": "s3://bucket/kept"}
    literals = [f"{name}={value}" for name, value in {**places, "AWS_ENDPOINT_URL": STORE}.items()]
    asked = {
        "resources": [f"{base}/overlays/small"],
        "components": [f"{base}/components/{name}" for name in components],
        "configMapGenerator": [
            {"name": "places", "behavior": "merge", "literals": literals, "options": {"disableNameSuffixHash": True}}
        ],
        "patches": [{"target": {"kind": "Job"}, "patch": json.dumps(patch)}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(asked))
    objects = render(folder)
    for one in objects:
        if one["kind"] == "PodDisruptionBudget":
            one["apiVersion"] = "policy/v1beta1"  # Kubernetes 1.20 knows the same by this name, without this field
            del one["spec"]["unhealthyPodEvictionPolicy"]
    return objects


ARGUMENTS = "/spec/template/spec/containers/0/args"


def smoke(trial: Trial, folder: Path) -> None:
    """The smoke command; a worker is evicted and the driver deleted."""
    more = [{"op": "add", "path": f"{ARGUMENTS}/-", "value": word} for word in ("--pause", "8")]
    trial.apply(recipe(folder / "smoke", ["spot", "smoke"], more))
    trial.until(lambda: len(trial.pods("worker")) == 2, 120, "two workers are ready")
    trial.until(lambda: re.search(r"products .*MB/s", trial.log()), 180, "the fit is in its passes")
    (driver,), worker = trial.pods("driver"), trial.pods("worker")[0]
    refused = trial.evict(driver)
    trial.node.say(f"-- the eviction of the driver is answered {refused}")
    assert refused == 429, refused
    assert trial.evict(worker) == 201
    name = worker["metadata"]["name"]
    trial.until(lambda: name not in _names(trial.pods("worker")), 30, f"{name} is evicted")
    passes = len(re.findall("MB/s", trial.log()))
    trial.until(lambda: len(re.findall("MB/s", trial.log())) > passes, 90, "a pass more is made")
    trial.delete_pod(driver)
    trial.until(lambda: trial.condition("dlatent-smoke"), 400, "the Job has ended")
    assert trial.condition("dlatent-smoke") == "Complete"
    said = trial.log()
    assert re.search(r"s3://bucket/kept is there: goes on behind [1-9]\d* passes", said), said
    assert said.rstrip().endswith(OK), said
    grow(trial)
    trial.delete()


def grow(trial: Trial) -> None:
    """The autoscaler adds workers where there is more work than two can do soon, and takes them away again."""
    (scheduler,) = trial.pods("scheduler")
    with Client(f"tcp://{scheduler['status']['podIP']}:8786") as client:
        asked = client.map(time.sleep, [0.5] * 400, pure=False)
        trial.until(lambda: len(trial.pods("worker")) == 4, 120, "with more work there are four workers")
        client.cancel(asked)
        trial.until(lambda: len(trial.pods("worker")) == 2, 180, "without it there are two")


def certified_fit(trial: Trial, folder: Path) -> None:
    """A fit with certificates; the scheduler is killed with all that it knows, and the Job tries again."""
    made = Security.temporary()
    files = {"ca.crt": made.tls_ca_file, "tls.crt": made.tls_client_cert, "tls.key": made.tls_client_key}
    for name, text in files.items():
        (folder / name).write_text(text)
    given = [f"--from-file={folder / name}" for name in files]
    trial.control.kubectl("-n", SPACE, "create", "secret", "generic", "dlatent-tls", *given)
    few = [{"op": "replace", "path": f"{ARGUMENTS}/5", "value": "8"}]
    more = [{"op": "add", "path": f"{ARGUMENTS}/-", "value": word} for word in ("--solver", "krylov")]
    trial.apply(recipe(folder / "certified", ["tls"], few + more))
    trial.until(lambda: trial.pods("scheduler") and trial.pods("worker"), 120, "scheduler and a worker are ready")
    (scheduler,) = trial.pods("scheduler")
    _refuses_others(scheduler["status"]["podIP"])
    trial.until(lambda: re.search("about .* passes on", trial.log()), 200, "the driver fits")
    trial.node.pods[scheduler["metadata"]["uid"]].kill()
    trial.until(lambda: trial.condition("dlatent-fit"), 500, "the Job has ended")
    assert trial.condition("dlatent-fit") == "Complete", trial.log()
    trial.delete()


def _refuses_others(address: str) -> None:
    try:
        Client(f"tcp://{address}:8786", timeout=5).close()
    except OSError:
        return
    raise AssertionError("the scheduler speaks to those without certificates")


def same_model(trial: Trial) -> None:
    """The model on the store has the bits of a fit here."""
    os.environ.update(KEYS)
    there = dlatent.load("s3://bucket/model.zarr")
    here = dlatent.PPCA(8, solver="krylov").fit("s3://bucket/x.zarr", client="serial")
    assert np.array_equal(there.components_, here.components_)
    assert there.log_likelihood_ == here.log_likelihood_
    trial.node.say("-- the model has the bits of a fit without a cluster")


def _names(pods: list[Object]) -> list[str]:
    return [one["metadata"]["name"] for one in pods]


def inside(binaries: Path, folder: Path) -> None:
    """In name spaces of its own."""
    image = pickle.loads((folder / "image").read_bytes())
    hosts = folder / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    for command in ("mount --bind {} /etc/hosts", "ip link set lo up", "mount -t tmpfs none /run/netns"):
        Path("/run/netns").mkdir(exist_ok=True)
        subprocess.run(command.format(hosts).split(), check=True)
    (folder / "pods").mkdir()
    node = Node(Api("https://127.0.0.1:6443", TOKEN), image, folder / "pods", hosts)
    served = make_server(f"{NETWORK}.1", 9000, DomainDispatcherApplication(create_backend_app), threaded=True)
    threading.Thread(target=served.serve_forever, daemon=True).start()
    _bucket()
    control = Control(binaries, folder)
    trial = Trial(control, node)
    try:
        control.operate()
        control.kubectl("create", "namespace", SPACE)
        literals = [f"--from-literal={name}={value}" for name, value in KEYS.items() if "URL" not in name]
        control.kubectl("-n", SPACE, "create", "secret", "generic", "object-store", *literals)
        smoke(trial, folder)
        certified_fit(trial, folder)
        same_model(trial)
    except BaseException:
        for path in sorted([*folder.glob("*.log"), *node.folder.glob("*.log")]):
            print(f"==== {path.name}\n{path.read_text()[-3000:]}", file=sys.stderr)
        raise
    finally:
        node.stop()
        control.stop()
        served.shutdown()
    node.say("OK")


def _bucket() -> None:
    import s3fs

    s3fs.S3FileSystem(endpoint_url=STORE, key="key", secret="secret").mkdir("bucket")


def main() -> int:
    """Build the image here, and go on inside."""
    if sys.argv[1] == "--inside":
        inside(Path(sys.argv[2]), Path(sys.argv[3]))
        return 0
    with tempfile.TemporaryDirectory(prefix="dlatent-kubernetes-") as name:
        folder = Path(name)
        (folder / "build").mkdir()
        (folder / "image").write_bytes(pickle.dumps(Image(folder / "build")))
        apart = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--propagation=private"]
        command = [sys.executable, __file__, "--inside", str(Path(sys.argv[1]).resolve()), name]
        return subprocess.run([*apart, *command]).returncode


if __name__ == "__main__":
    raise SystemExit(main())
