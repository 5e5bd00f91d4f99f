"""The container file, the compose file and the manifests of Kubernetes in `deploy`: what they say
of commands, ports, probes and files is what the code has.
"""

from __future__ import annotations

import importlib
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest

from paxosblock.base.units import KIB
from paxosblock.cli.main import root
from paxosblock.cli.node_commands import datanode, gateway, namenode
from paxosblock.client.names.url import cluster_addresses
from paxosblock.config import (
    DataNodeConfig,
    GatewayConfig,
    NameNodeConfig,
    check_variables,
    load_config,
)
from tests.fork_server import ended

yaml: Any = importlib.import_module("yaml")  # it has no types
PORTS = {
    kind: str(next(each for each in command.params if each.name == "listen").default)[-4:]
    for kind, command in (("namenode", namenode), ("datanode", datanode))
}
"""The usual port of each kind of node."""
GATEWAY: Final = str(next(each for each in gateway.params if each.name == "listen").default)[-5:]
S3: Final = "9878"
"""The ports of a gateway."""


def options(words: list[str]) -> dict[str, Any]:
    """Return what the command reads in these words; it raises click's error for a wrong one."""
    kind, *rest = words
    command = root.get_command(click.Context(root), kind)
    assert command is not None
    return command.make_context(kind, rest, resilient_parsing=False).params


@pytest.fixture
def no_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets options name files that only a container has."""
    config = next(each for each in namenode.params if each.name == "config")
    for command in (namenode, datanode, gateway):
        for each in command.params:
            if each.name == config.name:
                monkeypatch.setattr(each.type, "exists", False)


def documents(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def manifests(repository: Path) -> Iterator[dict[str, Any]]:
    for path in (repository / "deploy" / "kubernetes").glob("*node.yaml"):
        yield from documents(path)


def check_node(found: dict[str, Any], kind: str, own: str, namenodes: tuple[str, ...]) -> None:
    assert found["listen"] == f"0.0.0.0:{PORTS[kind]}"
    assert found["advertise"] == f"{own}:{PORTS[kind]}"
    assert cluster_addresses(found["peers" if kind == "namenode" else "namenodes"]) == namenodes
    paths = found["path"] if kind == "namenode" else found["paths"][0]
    assert str(paths) == f"/data/{kind}"


PLAIN: Final = "PAXOSBLOCK_CLIENT_TOKEN_OVER_PLAIN"
"""Without TLS a gateway serves nobody who must bring a token unless it may send tokens on."""


def check_gateway(found: dict[str, Any], namenodes: tuple[str, ...]) -> None:
    assert (found["listen"], found["s3_listen"]) == (f"0.0.0.0:{GATEWAY}", f"0.0.0.0:{S3}")
    assert cluster_addresses(found["namenodes"]) == namenodes
    assert found["path"] is None, "it keeps nothing"


@pytest.mark.usefixtures("no_files")
@pytest.mark.parametrize("first", ["", "--new-cluster"])
def test_the_compose_file_starts_a_cluster_of_three(repository: Path, first: str) -> None:
    (compose,) = documents(repository / "deploy" / "compose" / "compose.yaml")
    services = compose["services"]
    namenodes = tuple(f"nn{number}:9870" for number in (1, 2, 3))
    for name, service in services.items():
        check_variables(service["environment"])
        assert set(service["secrets"]) <= set(compose["secrets"])
        if name == "command":
            assert cluster_addresses(service["environment"]["PAXOSBLOCK_NAMENODES"]) == namenodes
            continue
        if name == "gw1":
            check_gateway(options(shlex.split(service["command"])), namenodes)
            assert service["environment"][PLAIN] == "true"
            assert f":{GATEWAY}/healthz" in service["healthcheck"]["test"][1]
            assert service["ports"] == [f"127.0.0.1:{each}:{each}" for each in (GATEWAY, S3)]
            continue
        kind = {"nn": "namenode", "dn": "datanode"}[name[:2]]
        written = service["command"].replace("${FIRST_START}", first)
        assert "$" not in written, "podman-compose does not know ${NAME:+word}"
        found = options(shlex.split(written))
        check_node(found, kind, service["hostname"], namenodes)
        assert service["volumes"] == [f"{name}:/data"]
        assert name in compose["volumes"]
        how, test = service["healthcheck"]["test"]
        assert how == "CMD-SHELL", "podman-compose 1.0 runs a list of words as `python3` alone"
        assert f":{PORTS[kind]}/healthz" in test
        assert found.get("new_cluster", False) is (kind == "namenode" and bool(first))
    assert len(services) == 8


@pytest.mark.usefixtures("no_files")
def test_the_manifests_start_nodes_that_find_each_other(repository: Path) -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for each in manifests(repository)}
    kinds = ("Service", "PodDisruptionBudget", "StatefulSet")
    assert set(found) == {(kind, name) for kind in kinds for name in PORTS}
    namenodes = tuple(f"namenode-{number}.namenode:9870" for number in range(3))
    for name, port in PORTS.items():
        service = found["Service", name]["spec"]
        budget = found["PodDisruptionBudget", name]["spec"]
        stateful = found["StatefulSet", name]["spec"]
        labels = stateful["template"]["metadata"]["labels"]
        pod = stateful["template"]["spec"]
        (container,) = pod["containers"]
        assert stateful["serviceName"] == name
        assert service["selector"] == labels == budget["selector"]["matchLabels"]
        assert stateful["selector"]["matchLabels"] == labels
        assert [each["port"] for each in service["ports"]] == [int(port)]
        assert [each["containerPort"] for each in container["ports"]] == [int(port)]
        assert service["publishNotReadyAddresses"], "nodes that are not ready find each other"
        assert budget["maxUnavailable"] == 1
        words = [word.replace("$(POD)", f"{name}-0") for word in container["args"]]
        check_node(options(words), name, f"{name}-0.{name}", namenodes)
        assert "--new-cluster" not in words
        check_variables({each["name"]: "" for each in container["env"] if each["name"] != "POD"})
        for probe in ("startupProbe", "readinessProbe"):
            assert container[probe]["httpGet"] == {"path": "/healthz", "port": name}
        mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        claims = [each["metadata"]["name"] for each in stateful["volumeClaimTemplates"]]
        assert set(mounted) == {*claims, *(each["name"] for each in pod["volumes"])}
        secrets = next(each["secret"] for each in pod["volumes"] if each["name"] == "secrets")
        kept = {f"{mounted['secrets']}/{each['path']}" for each in secrets["items"]}
        env = {each["name"]: each.get("value") for each in container["env"]}
        wanted = [env["PAXOSBLOCK_ACCESS_FILE"], options(words).get("secret_file")]
        assert {str(each) for each in wanted if each} == kept
        assert secrets["defaultMode"] & 0o007 == 0, "else nodes refuse it"
        assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 9870


@pytest.mark.usefixtures("no_files")
def test_the_manifests_start_gateways_that_find_the_namenodes(repository: Path) -> None:
    found = {
        each["kind"]: each
        for each in documents(repository / "deploy" / "kubernetes" / "gateway.yaml")
    }
    assert set(found) == {"Service", "PodDisruptionBudget", "Deployment"}
    deployment, service = found["Deployment"]["spec"], found["Service"]["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    labels = deployment["template"]["metadata"]["labels"]
    selectors = (deployment["selector"], found["PodDisruptionBudget"]["spec"]["selector"])
    assert all(each["matchLabels"] == labels for each in selectors)
    assert service["selector"] == labels
    ports = {"gateway": int(GATEWAY), "s3": int(S3)}
    assert {each["targetPort"]: each["port"] for each in service["ports"]} == ports
    assert {each["name"]: each["containerPort"] for each in container["ports"]} == ports
    given = options(container["args"])
    check_gateway(given, tuple(f"namenode-{number}.namenode:9870" for number in range(3)))
    assert given["advertise"] == f"{found['Service']['metadata']['name']}:{GATEWAY}"
    env = {each["name"]: each["value"] for each in container["env"]}
    check_variables(env)
    assert env[PLAIN] == "true"
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "gateway"}
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in pod["volumes"]}


def test_the_settings_in_the_manifests_exist(repository: Path) -> None:
    file = repository / "deploy" / "kubernetes" / "paxosblock.toml"
    for kind in (NameNodeConfig, DataNodeConfig, GatewayConfig):
        assert load_config(kind, file, {}).log_format.value == "json"


def test_the_image_is_of_a_user_that_the_manifests_know(repository: Path) -> None:
    text = (repository / "deploy" / "Containerfile").read_text()
    assert "\nUSER 9870:9870\n" in text
    assert f"\nEXPOSE {PORTS['namenode']} {PORTS['datanode']} {GATEWAY} {S3}\n" in text
    assert '\nENTRYPOINT ["paxosblock"]\n' in text
    ignored = (repository / ".dockerignore").read_text()
    assert len(ignored) < KIB
    for needed in ("paxosblock", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        assert f"!{needed}\n" in ignored
        assert (repository / needed).exists()


def kustomized(repository: Path, folder: str) -> str:
    make = ["kubectl", "kustomize", str(repository / "deploy" / folder)]
    return subprocess.run(make, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")
@pytest.mark.parametrize("base", ["kubernetes", "kubernetes-tls"])
def test_kustomize_makes_of_them_what_a_first_start_needs(repository: Path, base: str) -> None:
    usual, first = (
        kustomized(repository, each).splitlines() for each in (base, f"{base}-first-start")
    )
    assert [line.strip() for line in first if line not in usual] == ["- --new-cluster"]
    assert len(first) == len(usual) + 1


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")
def test_with_tls_each_pod_has_the_certificate_that_setup_tls_makes_for_it(
    repository: Path, tmp_path: Path
) -> None:
    names = ",".join(f"namenode-{number}.namenode" for number in range(3))
    hosts = ",".join(f"datanode-{number}=datanode-{number}.datanode" for number in range(3))
    command = [sys.executable, "-m", "paxosblock", "setup", "tls", str(tmp_path)]
    made = ended([*command, "--namenodes", names, "--datanodes", hosts, "--gateways", "gateway"])
    assert made.returncode == 0, made.stderr
    built = [*yaml.safe_load_all(kustomized(repository, "kubernetes-tls"))]
    (deployment,) = [each for each in built if each["kind"] == "Deployment"]
    check_gateway_with_tls(deployment, tmp_path)
    stateful = [each for each in built if each["kind"] == "StatefulSet"]
    assert len(stateful) == 2
    for each in stateful:
        kind, pod = each["metadata"]["name"], each["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        env = {one["name"]: one.get("value") for one in container["env"]}
        check_variables({name: "" for name in env if name != "POD"})
        mounts = {one["mountPath"]: one for one in container["volumeMounts"]}
        authority = mounts[env["PAXOSBLOCK_TLS_CA"]]
        own = mounts[env["PAXOSBLOCK_TLS_CERT"]]
        assert (tmp_path / authority["subPath"]).exists()
        for number in range(each["spec"]["replicas"]):
            file = tmp_path / own["subPathExpr"].replace("$(POD)", f"{kind}-{number}")
            assert f"datanode-{number}.pem" in file.name or kind == "namenode"
            assert file.exists()
        secret = next(one["secret"] for one in pod["volumes"] if one["name"] == own["name"])
        assert secret["secretName"] == f"paxosblock-tls-{kind}", "a DataNode sees no NameNode's key"
        assert secret["defaultMode"] & 0o007 == 0, "else nodes refuse it"
        for probe in ("startupProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["scheme"] == "HTTPS"


def check_gateway_with_tls(deployment: dict[str, Any], made: Path) -> None:
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "--insecure" not in container["args"]
    env = {each["name"]: each["value"] for each in container["env"]}
    check_variables(env)
    assert PLAIN not in env
    mounted = next(each for each in container["volumeMounts"] if each["name"] == "tls")
    for variable in ("PAXOSBLOCK_TLS_CA", "PAXOSBLOCK_GATEWAY_HTTPS_CERT"):
        assert (made / Path(env[variable]).relative_to(mounted["mountPath"])).exists()
    secret = next(each["secret"] for each in pod["volumes"] if each["name"] == "tls")
    assert secret == {"secretName": "paxosblock-tls-gateway", "defaultMode": 0o440}
    for probe in ("startupProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["scheme"] == "HTTPS"
