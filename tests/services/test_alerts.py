"""The counts of a cluster answer an operator, and deploy/alerts.yml and deploy/grafana.json ask for
those that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paxosblock import Client, LocalCluster
from paxosblock.api.status import SafeModeAction
from paxosblock.base.units import KIB
from paxosblock.local.node_process import Node
from tests.secure import url_of
from tests.services.test_lost_replicas import QUICK
from tests.services.test_safe_mode import ask
from tests.waiting import wait_until

RULE: Final = re.compile(r"- alert: (\w+)\n(?: +#.*\n)? +expr: (.*)\n")
SIMPLE: Final = re.compile(
    r"(sum|max)\((paxosblock_\w+)(?:\{(\w+)=\"(\w+)\"\})?"
    r"( \* on\(instance\) paxosblock_namenode_leads)?( or vector\(0\))?\) ([<>]) (\d+)"
)
"""The rules whose answer is a number of each node; promtool knows the whole language."""


def scraped(node: Node) -> dict[str, float]:
    """The samples of a node: `name`, `name{label="value"}`."""
    with urllib.request.urlopen(url_of(node.address, "metrics")) as page:
        text = page.read().decode()
    return {
        sample.name + "".join(f'{{{k}="{v}"}}' for k, v in sample.labels.items()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def fires(cluster: LocalCluster, rule: str) -> bool:
    """True if a rule finds now what it looks for."""
    found = SIMPLE.fullmatch(rule)
    assert found, f"{rule} is not a simple one"
    how, metric, label, value, of_leader, or_nothing, compares, limit = found.groups()
    name = metric + (f'{{{label}="{value}"}}' if label else "")
    pages = [scraped(node) for node in cluster.nodes if node.alive]
    values = [
        page[name] * (page["paxosblock_namenode_leads"] if of_leader else 1)
        for page in pages
        if name in page
    ]
    if not values and not or_nothing:
        return False  # as Prometheus finds nothing to compare
    result = sum(values) if how == "sum" else max(values)
    return result > float(limit) if compares == ">" else result < float(limit)


def names_at(node: Node) -> set[str]:
    """The names of a node's metrics, also of those that have no sample yet."""
    with urllib.request.urlopen(url_of(node.address, "metrics")) as page:
        declared = re.findall(r"^# TYPE (\w+)", page.read().decode(), re.M)
    return {*declared, *(name.partition("{")[0] for name in scraped(node))}


@pytest.fixture(scope="module")
def rules(repository: Path) -> dict[str, str]:
    found = dict(RULE.findall((repository / "deploy" / "alerts.yml").read_text()))
    assert len(found) > 10
    return found


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(datanodes=4, settings=QUICK) as cluster:
        yield cluster


def test_a_node_that_dies_is_counted_and_what_its_loss_costs(
    cluster: LocalCluster, rules: dict[str, str], repository: Path
) -> None:
    """An alert fires when its fault is made, and ends with it."""
    names = {name for node in cluster.nodes for name in names_at(node)}
    for alert, rule in rules.items():
        asked = re.findall(r"paxosblock_\w+", rule)
        assert asked, alert
        assert [name for name in asked if name not in names] == [], alert
    for query in queries(repository):
        asked = re.findall(r"(?:paxosblock|process)_\w+", query)
        assert asked, query
        assert [name for name in asked if name not in names] == [], query
    wait_until(lambda: not firing(cluster, rules), what="a cluster in good order")
    with Client(cluster.url) as fs:
        fs.mkdirs("/d")
        for number in range(8):  # whichever of the four dies has some of them
            with fs.create(f"/d/a{number}", replication=3) as out:
                out.write(bytes(100 * KIB))
        with fs.create("/d/b", replication=1) as out:
            out.write(b"only one")
        holder = fs.locations("/d/b")[0].hosts[0]
    namenode = scraped(cluster.namenode)
    assert namenode["paxosblock_namenode_names"] == 10
    assert namenode["paxosblock_namenode_blocks"] == 9
    assert namenode["paxosblock_namenode_files_open"] == 0
    assert namenode['paxosblock_namenode_datanodes{state="live"}'] == 4
    assert namenode['paxosblock_namenode_call_seconds_count{call="create"}'] == 9
    assert namenode["paxosblock_namenode_takeover_seconds_count"] == 1
    assert namenode["paxosblock_namenode_raft_sync_seconds_count"] > 0
    assert total(cluster, "votes_total") == total(cluster, "vote_seconds_count") == 25
    assert namenode["paxosblock_namenode_capacity_bytes"] == total(cluster, "capacity_bytes")

    killed = next(node for node in cluster.datanodes if node.address == holder)
    killed.kill()
    expected = {"DataNodeDead", "BlocksMissing", "Alarms"}
    wait_until(lambda: expected <= firing(cluster, rules), 60, "a death to be told")
    assert scraped(cluster.namenode)['paxosblock_namenode_datanodes{state="live"}'] == 3
    copied = 'copied_bytes_total{direction="received"}'
    wait_until(lambda: total(cluster, copied) >= 100 * KIB, 60, "a copy of what it had")
    assert total(cluster, 'copied_bytes_total{direction="sent"}') >= 100 * KIB
    killed.start()
    wait_until(lambda: not firing(cluster, rules), 60, "its return to be told")


def test_more_alerts_fire_when_their_fault_is_made_and_end_with_it(rules: dict[str, str]) -> None:
    with LocalCluster(datanodes=3, volumes=2, settings=QUICK) as cluster:

        def told(*alerts: str) -> None:
            wait_until(lambda: {*alerts} <= firing(cluster, rules), 60, f"{alerts} to fire")

        def quiet() -> None:
            wait_until(lambda: not firing(cluster, rules), 60, "all alerts to end")

        namenode, datanode = cluster.namenode, cluster.datanodes[0]
        with Client(cluster.url, config=cluster.client_config) as fs, fs.create("/a") as out:
            out.write(b"three replicas")
        ask(cluster, SafeModeAction.ENTER)
        told("SafeModeStays")
        ask(cluster, SafeModeAction.LEAVE)
        quiet()
        datanode.stop()
        told("DataNodeDead", "BlocksWait")
        identity = datanode.volumes[0] / "VERSION"
        whole = identity.read_bytes()
        identity.write_bytes(whole[:-3])
        datanode.start()
        told("VolumeFailed")
        datanode.stop()
        identity.write_bytes(whole)
        datanode.start()
        quiet()
        namenode.kill()
        told("NoNameNodeLeads")
        namenode.start()
        quiet()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here")
def test_promtool_finds_no_fault_in_metrics_alerts_and_queries(
    repository: Path, cluster: LocalCluster, tmp_path: Path
) -> None:
    asked = tmp_path / "queries.yml"
    asks = [{"record": f"query:{n}", "expr": each} for n, each in enumerate(queries(repository))]
    asked.write_text(json.dumps({"groups": [{"name": "grafana", "rules": asks}]}))
    for file in (repository / "deploy" / "alerts.yml", asked):
        subprocess.run(["promtool", "check", "rules", str(file)], check=True, timeout=60)
    for node in (cluster.namenode, cluster.datanodes[0]):
        with urllib.request.urlopen(url_of(node.address, "metrics")) as page:
            text = page.read()
        check = ["promtool", "check", "metrics"]
        found = subprocess.run(check, input=text, capture_output=True, check=False, timeout=60)
        assert (found.returncode, found.stdout, found.stderr) == (0, b"", b"")


def queries(repository: Path) -> list[str]:
    """The queries of deploy/grafana.json."""
    panels = json.loads((repository / "deploy" / "grafana.json").read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    assert len(found) > len(panels) > 20
    return found


def firing(cluster: LocalCluster, rules: dict[str, str]) -> set[str]:
    """The alerts that find what they look for, of those that have a simple rule."""
    return {
        alert for alert, rule in rules.items() if SIMPLE.fullmatch(rule) and fires(cluster, rule)
    }


def total(cluster: LocalCluster, metric: str) -> float:
    """The sum over all volumes of the DataNodes that run."""
    pages = [scraped(node) for node in cluster.datanodes if node.alive]
    name = f"paxosblock_datanode_{metric}"
    return sum(
        value
        for page in pages
        for key, value in page.items()
        if key == name or key.startswith(name + "{")
    )
