"""In place of kubelet, scheduler, network and names: Pods of a real API server become local processes.

Each has what its specification says of environment, arguments, volumes, memory and probes, a network address,
and user and root file system of the image, which it cannot write.  Names of services are in a file of hosts.  There are
no limits of cpu, no network policies, no registries, and one container a pod.
"""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import requests
import urllib3
from image_cases import Image
from kubernetes_cases import memory

urllib3.disable_warnings()  # of the certificate that the API server made for itself
NETWORK = "10.244.0"
PATIENCE = 5
"""Seconds till a container that has ended starts again."""
Object = dict[str, Any]


class Api:
    """A Kubernetes API server on loopback."""

    def __init__(self, address: str, token: str) -> None:
        self._address, self._session = address, requests.Session()
        self._session.headers["Authorization"] = f"Bearer {token}"
        self._session.verify = self._session.trust_env = False

    def __call__(self, method: str, path: str, body: Object | None = None, **more: Any) -> requests.Response:
        headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
        return self._session.request(method, self._address + path, json=body, headers=headers, timeout=10, **more)

    def get(self, path: str) -> Any:
        """An object, or the objects of a list."""
        answer = self("GET", path)
        answer.raise_for_status()
        found = answer.json()
        return found.get("items", found)


class Pod:
    """A pod of this node."""

    def __init__(self, node: Node, seen: Object) -> None:
        self._node, self.name = node, seen["metadata"]["name"]
        self.path = f"/api/v1/namespaces/{seen['metadata']['namespace']}/pods/{self.name}"
        self.labels: dict[str, str] = seen["metadata"].get("labels", {})
        self._spec = seen["spec"]
        self._container = seen["spec"]["containers"][0]
        self.number = node.next_number()
        self.address = f"{NETWORK}.{self.number}"
        self._folder = node.folder / self.name
        self.log = node.folder / f"{self.name}.log"
        self._restarts, self._failures, self._ready, self._told = 0, 0, False, ""
        self._next_probe, self._started, self._terminated, self._ended = 0.0, _now(), 0.0, 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self.exit_status: int | None = None
        name, inside = f"pod{self.number}", ("ip", "-n", f"pod{self.number}")
        _do("ip", "netns", "add", name)
        _do("ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        _do("ip", "link", "set", name, "master", "pods", "up")
        _do(*inside, "addr", "add", f"{self.address}/24", "dev", "eth0")
        _do(*inside, "link", "set", "eth0", "up")
        _do(*inside, "link", "set", "lo", "up")
        self._scratch = self._folder / "scratch"
        self._scratch.mkdir(parents=True)
        self._scratch.chmod(0o2777)
        self._mounts = {}
        for mount in self._container["volumeMounts"]:
            (volume,) = (one for one in self._spec["volumes"] if one["name"] == mount["name"])
            if "secret" in volume:
                self._mounts[mount["mountPath"]] = self._written(volume["secret"])
        self._variables = self._environment(seen["metadata"]["namespace"])
        self._start()

    def _written(self, of: Object) -> Path:
        """The files of a Secret, as its user and group may read them."""
        folder = self._folder / of["secretName"]
        folder.mkdir()
        group = self._spec["securityContext"]["fsGroup"]
        data = self._node.api.get(f"{self.path.rpartition('/pods/')[0]}/secrets/{of['secretName']}")["data"]
        for name, text in data.items():
            file = folder / name
            file.write_bytes(base64.b64decode(text))
            os.chown(file, 0, group)
            file.chmod(of["defaultMode"])
        return folder

    def _environment(self, namespace: str) -> dict[str, str]:
        """The variables of the image, of ConfigMaps and Secrets, and of the container itself, the last one winning."""
        found = dict(self._node.image.variables)
        for source in self._container.get("envFrom", []):
            kind = "configmaps" if "configMapRef" in source else "secrets"
            of = source.get("configMapRef") or source["secretRef"]
            answer = self._node.api("GET", f"/api/v1/namespaces/{namespace}/{kind}/{of['name']}")
            if answer.status_code == 404 and of.get("optional"):
                continue
            answer.raise_for_status()
            data = answer.json().get("data", {})
            found |= data if kind == "configmaps" else {k: base64.b64decode(v).decode() for k, v in data.items()}
        for one in self._container.get("env", []):
            found[one["name"]] = _expanded(one.get("value", ""), found)
        return found

    def _start(self) -> None:
        self._ready, self._failures, self._next_probe = False, 0, time.monotonic()
        self.exit_status, self._killed = None, False
        words = [_expanded(text, self._variables) for text in self._container["args"]]
        group = self._node.memory_group(self.number, memory(self._container["resources"]["limits"]["memory"]))
        self._group = group
        joined = ("bash", "-c", 'echo $$ >"$0"; exec "$@"', str(group / "cgroup.procs"))
        inside = ("nsenter", f"--net=/run/netns/pod{self.number}")
        command = self._node.image.command(words, self._scratch, self._mounts, self._node.hosts)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*joined, *inside, *command], env=self._variables, stdout=log, stderr=log)

    def _signal(self, number: signal.Signals) -> None:
        """To the first process of the pod."""
        self._killed = number == signal.SIGKILL  # `unshare` does not say so
        assert self._process is not None
        for child in psutil.Process(self._process.pid).children()[:1]:
            child.send_signal(number)

    def step(self, seen: Object) -> bool:
        """Do what is to be done now, and whether the pod still exists."""
        assert self._process is not None
        status = self._process.poll()
        if status is not None and self.exit_status is None:
            self.exit_status = 137 if self._killed else status if status >= 0 else 128 - status
            self._ended = time.monotonic()
            self._node.say(f"{self.name} ended with status {self.exit_status}")
        if seen["metadata"].get("deletionTimestamp"):
            return self._go(seen)
        if self.exit_status is not None and self._spec["restartPolicy"] == "Always":
            if time.monotonic() - self._ended > PATIENCE:
                self._restarts += 1
                self._start()
        elif self.exit_status is None:
            self._probe()
        self._tell()
        return True

    def _go(self, seen: Object) -> bool:
        if self.exit_status is None:
            if not self._terminated:
                self._terminated = time.monotonic()
                self._node.say(f"{self.name} is told to end")
                self._signal(signal.SIGTERM)
            elif time.monotonic() - self._terminated > seen["metadata"]["deletionGracePeriodSeconds"]:
                self._node.say(f"{self.name} is killed")
                self._signal(signal.SIGKILL)
            return True
        self._tell()
        self._node.api("DELETE", self.path, {"gracePeriodSeconds": 0})
        peak, limit = (
            int((self._group / f"memory.{name}_in_bytes").read_text()) >> 20 for name in ("max_usage", "limit")
        )
        self._node.say(f"{self.name} is gone; its memory was at most {peak} of {limit} MiB")
        _do("ip", "link", "del", f"pod{self.number}")
        _do("ip", "netns", "del", f"pod{self.number}")
        return False

    def _probe(self) -> None:
        """Both probes look at the same page: ready by one answer, started again after as many failures as they say."""
        ready, alive = self._container.get("readinessProbe"), self._container.get("livenessProbe")
        if ready is None or time.monotonic() < self._next_probe:
            self._ready = self._ready or ready is None
            return
        (port,) = (p["containerPort"] for p in self._container["ports"] if p["name"] == ready["httpGet"]["port"])
        self._ready = _answers(f"http://{self.address}:{port}{ready['httpGet']['path']}")
        self._next_probe = time.monotonic() + (ready["periodSeconds"] if self._ready else 1)
        self._failures = 0 if self._ready else self._failures + 1
        if self._failures > alive["initialDelaySeconds"] + alive["periodSeconds"] * alive["failureThreshold"]:
            self._node.say(f"{self.name} does not answer, and is started again")
            self._signal(signal.SIGKILL)

    def _tell(self) -> None:
        """Tell the API server, where it does not know."""
        over, well = self.exit_status is not None, self._ready and self.exit_status is None
        phase = "Failed" if self.exit_status else "Succeeded"
        if not over or self._spec["restartPolicy"] == "Always":
            phase = "Running"
        state = {"terminated": {"exitCode": self.exit_status}} if over else {"running": {"startedAt": self._started}}
        if (told := f"{phase}{self._restarts}{well}") == self._told:
            return
        conditions = {"PodScheduled": True, "Initialized": True, "ContainersReady": well, "Ready": well}
        body = {
            "phase": phase,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "startTime": self._started,
            "conditions": [
                {"type": name, "status": str(value), "lastTransitionTime": _now()} for name, value in conditions.items()
            ],
            "containerStatuses": [
                {
                    "name": self._container["name"],
                    "image": self._container["image"],
                    "imageID": "",
                    "ready": well,
                    "restartCount": self._restarts,
                    "state": state,
                }
            ],
        }
        if self._node.api("PATCH", f"{self.path}/status", {"status": body}).ok:
            self._told = told

    def kill(self) -> None:
        """At once, without a word to anybody."""
        if self._process is not None and self._process.poll() is None:
            self._signal(signal.SIGKILL)


class Node:
    """All pods of the API server, one after the other."""

    def __init__(self, api: Api, image: Image, folder: Path, hosts: Path) -> None:
        self.api, self.image, self.folder, self.hosts = api, image, folder, hosts
        self.pods: dict[str, Pod] = {}
        self._number, self._begun = 9, time.monotonic()
        own = re.search(r"^\d+:memory:(.*)$", Path("/proc/self/cgroup").read_text(), re.MULTILINE)
        assert own, "there are no control groups of version 1, by which memory would be limited"
        self._group = Path(f"/sys/fs/cgroup/memory{own[1]}")
        _do("ip", "link", "add", "pods", "type", "bridge")
        _do("ip", "addr", "add", f"{NETWORK}.1/24", "dev", "pods")
        _do("ip", "link", "set", "pods", "up")

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def memory_group(self, number: int, limit: int) -> Path:
        """The control group of a pod; memory beyond its limit ends it."""
        group = self._group / f"dlatent-pod{number}-{os.getpid()}"
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(limit))
        return group

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._begun:6.1f} s  {text}", flush=True)

    def step(self) -> None:
        """Start, watch and end pods once, and write the names of services anew."""
        found = {one["metadata"]["uid"]: one for one in self.api.get("/api/v1/pods")}
        for uid, seen in found.items():
            meta = seen["metadata"]
            if uid not in self.pods:
                if "nodeName" not in seen["spec"]:
                    target = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}}
                    target["target"] = {"apiVersion": "v1", "kind": "Node", "name": "node"}
                    self.api("POST", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding", target)
                    continue
                self.say(f"{meta['name']} starts")
                self.pods[uid] = Pod(self, seen)
            elif not self.pods[uid].step(seen):
                del self.pods[uid]
        for uid in self.pods.keys() - found.keys():
            self.pods.pop(uid).kill()
        lines = ["127.0.0.1 localhost"]
        for one in self.api.get("/api/v1/services"):
            name, space = one["metadata"]["name"], one["metadata"]["namespace"]
            wanted = one["spec"].get("selector", {}).items()
            addresses = [pod.address for pod in self.pods.values() if wanted and wanted <= pod.labels.items()]
            lines += [f"{address} {name} {name}.{space} {name}.{space}.svc.cluster.local" for address in addresses[-1:]]
        if (text := "\n".join(lines) + "\n") != self.hosts.read_text():
            with self.hosts.open("r+") as file:  # in its place, where others have it mounted, and at no moment empty
                file.write(text)
                file.truncate()

    def stop(self) -> None:
        """Kill what is left."""
        for pod in self.pods.values():
            pod.kill()
        time.sleep(1)
        for group in self._group.glob(f"dlatent-pod*-{os.getpid()}"):
            with suppress(OSError):  # a process of it is still on its way out
                group.rmdir()


def _expanded(text: str, variables: dict[str, str]) -> str:
    return re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), text)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
