"""The pods of deploy/kubernetes, started for real by podman:  make pods

No Kubernetes is needed: each pod of the StatefulSets and of the Deployment becomes a container with
the image, the words, the variables, the files, the user and the rights that the manifest gives it,
and the name by which the others look for it. First `kubernetes-first-start`, then `kubernetes` one
pod after the other, as a rollout does; what was written before is read after it. Kubernetes' own
part is not tried: where pods go, probes over time, budgets, Services before several gateways.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.waiting import wait_until

yaml: Any = importlib.import_module("yaml")  # it has no types
REPOSITORY: Final = Path(__file__).resolve().parent.parent
PODMAN: Final = ["podman"]
"""The command, with the runtime that a caller names."""
NETWORK: Final = "paxosblock-pods"
TEXT: Final = "written before the rollout\n"


@dataclass(frozen=True)
class Pod:
    """One pod, and its names on the network."""

    name: str
    service: str
    template: dict[str, Any]
    claims: tuple[str, ...]

    @property
    def container(self) -> dict[str, Any]:
        """The only container of it."""
        (found,) = self.template["containers"]
        return dict(found)


def podman(*words: str | Path, text: str | None = None, check: bool = True) -> str:
    """Run podman; return what it prints."""
    command = [*PODMAN, *map(str, words)]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if check and ran.returncode:
        raise SystemExit(f"{' '.join(command)}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def manifests(base: str) -> list[dict[str, Any]]:
    """Return what `kustomize` makes of a folder of deploy."""
    command = ["kubectl", "kustomize", str(REPOSITORY / "deploy" / base)]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [each for each in yaml.safe_load_all(made.stdout) if each]


def pods_of(found: list[dict[str, Any]]) -> Iterator[Pod]:
    """Yield the pods that Kubernetes would make, those of StatefulSets first."""
    for each in sorted(found, key=lambda each: each["kind"], reverse=True):
        if each["kind"] not in {"StatefulSet", "Deployment"}:
            continue
        spec, name = each["spec"], each["metadata"]["name"]
        claims = tuple(it["metadata"]["name"] for it in spec.get("volumeClaimTemplates", ()))
        for number in range(spec["replicas"]):
            service = spec.get("serviceName", name)
            yield Pod(f"{name}-{number}", service, spec["template"]["spec"], claims)


class Machine:
    """The one on which the pods run, with the files of their ConfigMaps and Secrets."""

    def __init__(self, folder: Path, image: str) -> None:
        self._folder, self._image = folder, image
        self.running: dict[str, Pod] = {}

    def write_secrets(self) -> None:
        """Write the Secret that docs/containers.md makes, readable as its `defaultMode` says."""
        for name in ("access", "secret"):
            made = self._folder / "paxosblock" / name
            made.parent.mkdir(exist_ok=True)
            subprocess.run(
                [sys.executable, "-m", "paxosblock", "setup", "secret", made],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            made.chmod(0o440)
            os.chown(made, 0, 9870)

    def write_settings(self, found: list[dict[str, Any]]) -> None:
        """Write the files of the ConfigMaps."""
        for each in found:
            if each["kind"] == "ConfigMap":
                folder = self._folder / each["metadata"]["name"]
                folder.mkdir(exist_ok=True)
                for name, text in each["data"].items():
                    (folder / name).write_text(text)
        for folder in (self._folder, *self._folder.iterdir()):
            folder.chmod(0o755)

    def start(self, pod: Pod) -> None:
        """Start a pod."""
        container, security = pod.container, pod.template["securityContext"]
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"]
        assert not rights["allowPrivilegeEscalation"]
        variables = {each["name"]: self._value(pod, each) for each in container["env"]}
        words = ["run", "--detach", "--name", pod.name, "--hostname", pod.name, "--read-only"]
        words += ["--network", NETWORK, "--network-alias", f"{pod.name}.{pod.service}"]
        words += ["--network-alias", pod.service, "--security-opt", "no-new-privileges"]
        words += ["--user", f"{security['runAsUser']}:{security['runAsGroup']}"]
        words += [f"--cap-drop={each}" for each in rights["capabilities"]["drop"]]
        words += [f"--env={name}={value}" for name, value in variables.items()]
        words += [f"--volume={each}" for each in self._volumes(pod)]
        words += ["--ulimit", "nofile=16384", "--ulimit", "nproc=8192", self._image]
        for word in container["args"]:
            words.append(word.replace("$(POD)", variables.get("POD", "")))
        self.running[pod.name] = pod
        podman(*words)

    def wait_ready(self, pod: Pod) -> None:
        """Wait until the probes of a pod would find it ready."""
        wait_until(lambda: self.is_ready(pod), 60, f"{pod.name} to be ready")

    def _value(self, pod: Pod, variable: dict[str, Any]) -> str:
        if "value" in variable:
            return str(variable["value"])
        path = variable["valueFrom"]["fieldRef"]["fieldPath"]
        return {"metadata.name": pod.name, "spec.nodeName": "this-machine"}[path]

    def _volumes(self, pod: Pod) -> Iterator[str]:
        """Yield what is mounted, as podman writes it; a claim is a volume with the pod's name."""
        volumes = {each["name"]: each for each in pod.template["volumes"]}
        for mount in pod.container["volumeMounts"]:
            name, path = mount["name"], mount["mountPath"]
            if name in pod.claims:
                yield f"{pod.name}:{path}"  # with the owner of the image's folder, as `fsGroup` has
                continue
            volume = volumes[name]
            if "configMap" in volume:
                yield f"{self._folder / volume['configMap']['name']}:{path}:ro"
                continue
            for item in volume["secret"]["items"]:
                source = self._folder / volume["secret"]["secretName"] / item["key"]
                yield f"{source}:{path}/{item['path']}:ro"

    def is_ready(self, pod: Pod) -> bool:
        """True if the readiness probe of the manifest would find it so. Raises SystemExit if the
        pod has ended."""
        if podman("inspect", "--format", "{{.State.Running}}", pod.name).strip() != "true":
            raise SystemExit(f"{pod.name} has ended:\n{podman('logs', pod.name)}")
        probe = pod.container["readinessProbe"]["httpGet"]
        ports = {each["name"]: each["containerPort"] for each in pod.container["ports"]}
        url = f"http://127.0.0.1:{ports[probe['port']]}{probe['path']}"
        asks = f"import urllib.request as r; print(r.urlopen({url!r}).status)"
        return podman("exec", pod.name, "python3", "-c", asks, check=False).strip() == "200"

    def stop(self, pod: Pod) -> None:
        """End a pod as Kubernetes does, and keep its volume."""
        grace_s = pod.template["terminationGracePeriodSeconds"]
        podman("stop", "--time", grace_s, pod.name)
        podman("rm", pod.name)
        del self.running[pod.name]

    def command(self, *words: str, text: str | None = None) -> str:
        """Run a verb of `paxosblock` in the pod of a gateway, and return what it prints."""
        gateway = next(name for name in self.running if name.startswith("gateway"))
        namenodes = next(
            word.partition("=")[2]
            for word in self.running[gateway].container["args"]
            if word.startswith("--namenodes=")
        )
        variable = f"--env=PAXOSBLOCK_NAMENODES={namenodes}"
        return podman("exec", "-i", variable, gateway, "paxosblock", *words, text=text)

    def remove_all(self) -> None:
        """Remove the pods, and the volumes of those that had one."""
        for pod in self.running.values():
            podman("rm", "--force", "--volumes", pod.name, check=False)
            if pod.claims:
                podman("volume", "rm", "--force", pod.name, check=False)


def run(image: str) -> Iterator[str]:
    """Start all pods, roll them out again, and yield what was done, step by step."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="pods-")))
        machine = Machine(folder, image)
        podman("network", "create", NETWORK)
        stack.callback(podman, "network", "rm", "--force", NETWORK)
        stack.callback(machine.remove_all)
        first = manifests("kubernetes-first-start")
        machine.write_secrets()
        machine.write_settings(first)
        for pod in (pods := [*pods_of(first)]):
            machine.start(pod)
        for pod in pods:
            machine.wait_ready(pod)
        yield f"{', '.join(machine.running)} are ready"
        machine.command("fs", "put", "-", "/file", text=TEXT)
        (last,) = machine.command("admin", "report", "--json").splitlines()[-1:]
        yield f"a file is written; the page says: {json.loads(last)['health']['level']}"
        later = manifests("kubernetes")
        machine.write_settings(later)
        for pod in pods_of(later):
            machine.stop(pod)
            machine.start(pod)
            machine.wait_ready(pod)
            assert machine.command("fs", "cat", "/file") == TEXT
            yield f"{pod.name} is ready again, and the file is read"


def main() -> None:
    """Start the pods, and say each step."""
    parser = argparse.ArgumentParser(description="the pods of deploy/kubernetes, by podman")
    parser.add_argument("--image", default="localhost/paxosblock")
    parser.add_argument("--runtime", help="as `podman --runtime`: runc where crun refuses")
    asked = parser.parse_args()
    PODMAN.extend([f"--runtime={asked.runtime}"] if asked.runtime else [])
    for program in ("podman", "kubectl"):
        if shutil.which(program) is None:
            raise SystemExit(f"there is no {program} here")
    began_s = time.monotonic()
    for step in run(asked.image):
        sys.stdout.write(f"{time.monotonic() - began_s:6.1f} s  {step}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
