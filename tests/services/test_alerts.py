"""The counts of a cluster answer an operator, and deploy/alerts.yml and deploy/grafana.json ask for
those that exist."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from botocore.exceptions import ClientError
from prometheus_client.parser import text_string_to_metric_families

from paxosblock import Client, LocalCluster
from paxosblock.api.status import SafeModeAction
from paxosblock.base.units import KIB, MIB
from paxosblock.config import ClientConfig
from paxosblock.errors import NotReadyError, PaxosBlockError
from paxosblock.host.metrics import NodeMetrics
from paxosblock.local.cluster_folder import Settings
from paxosblock.local.node_process import Node
from paxosblock.namenode.raft.report import observe
from tests.disks.faults import CALLS, HELD, SYNCS, Fault
from tests.gateway.s3_clients import s3_client
from tests.raft.rig import entry, rig
from tests.secure import url_of
from tests.services.faulty_node import FaultyCluster
from tests.services.test_damaged_tables import FOLDERS, flip_bits, path_of, wait_whole
from tests.services.test_lost_replicas import QUICK
from tests.services.test_safe_mode import ask
from tests.services.test_scrubbing import flip
from tests.waiting import wait_until

RULE: Final = re.compile(r"- alert: (\w+)\n(?: +#.*\n)? +expr: (.*)\n")
SIMPLE: Final = re.compile(
    r"(sum|max)\((paxosblock_\w+)(?:\{(\w+)=\"(\w+)\"\})?"
    r"( \* on\(instance\) paxosblock_namenode_leads)?( or vector\(0\))?\) ([<>]) (\d+)"
)
"""The rules whose answer is a number of each node; promtool knows the whole language."""
SHARE: Final = re.compile(r"min\((paxosblock_\w+) / (paxosblock_\w+)\) < ([\d.]+)")
QUANTILE: Final = re.compile(
    r"histogram_quantile\(([\d.]+), sum\(rate\((\w+)\[5m\]\)\) by \(le\)\) > (\d+)"
)
FAILED: Final = re.compile(
    r"sum\(rate\((\w+)\[5m\]\)\) by \(door\) / sum\(rate\((\w+)\[5m\]\)\) by \(door\)"
    r" > ([\d.]+)"
)

AGO: Final = re.compile(r"min\((\w+_ago_seconds)\) < (\d+)")

Page = dict[str, float]
"""The samples of a node: `name`, `name{label="value"}`."""


def scraped(node: Node) -> Page:
    with urllib.request.urlopen(url_of(node.address, "metrics")) as page:
        return samples(page.read().decode())


def samples(text: str) -> Page:
    return {
        sample.name + "".join(f'{{{k}="{v}"}}' for k, v in sample.labels.items()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def little_is_left(pages: Iterable[Page], rule: str) -> bool:
    """True if a rule about a share finds what it looks for."""
    part, whole, limit = found_in(SHARE, rule)
    shares = [page[part] / page[whole] for page in pages if page.get(whole)]
    return min(shares, default=1.0) < float(limit)


def takes_long(before: Iterable[Page], now: Iterable[Page], rule: str) -> bool:
    """True if a rule about a quantile finds what it looks for, in what came since `before`."""
    quantile, metric, limit = found_in(QUANTILE, rule)
    of_bound = re.compile(rf'{metric}{{le="([^"]+)"}}')
    counts = Counter[float]()
    for sign, pages in ((-1, before), (1, now)):
        for name, value in (each for page in pages for each in page.items()):
            if found := of_bound.fullmatch(name):
                counts[float(found[1])] += sign * int(value)
    wanted = float(quantile) * counts[math.inf]
    reached = min(bound for bound, count in counts.items() if count >= wanted)
    # The answer lies between two bounds: it is above the limit if the lower one is not below it.
    return counts[math.inf] > 0 and max((b for b in counts if b < reached), default=0) >= int(limit)


def failing(before: Page, now: Page, rule: str) -> set[str]:
    """The doors at which a rule about requests finds too many failed, in what came since."""
    failures, requests, limit = found_in(FAILED, rule)
    counts = {failures: Counter[str](), requests: Counter[str]()}
    for name, value in now.items():
        metric, _, labels = name.partition('{door="')
        if metric in counts:
            counts[metric][labels.partition('"')[0]] += int(value - before.get(name, 0))
    return {
        door for door, n in counts[requests].items() if counts[failures][door] > float(limit) * n
    }


def is_lately(pages: Iterable[Page], rule: str, later_s: float = 0.0) -> bool:
    """True if a rule about the time since an event finds what it looks for, so much later."""
    metric, within_s = found_in(AGO, rule)
    ago_s = [page[metric] for page in pages if metric in page]
    return min(ago_s, default=math.inf) + later_s < float(within_s)


def found_in(form: re.Pattern[str], rule: str) -> tuple[str, ...]:
    found = form.fullmatch(rule)
    assert found, f"{rule} has another form"
    return found.groups()


def fires(pages: Iterable[Page], rule: str) -> bool:
    """True if a simple rule finds now what it looks for."""
    how, metric, label, value, of_leader, or_nothing, compares, limit = found_in(SIMPLE, rule)
    name = metric + (f'{{{label}="{value}"}}' if label else "")
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
    with LocalCluster(datanodes=4, gateways=1, settings=QUICK) as cluster:
        yield cluster


@pytest.mark.plain("the port of a gateway has no TLS, which those of nodes have")
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


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyCluster]:
    """Three DataNodes whose disks a test breaks, and mends before it ends."""
    settings: Settings = {
        "namenode": {**QUICK["namenode"], "recovery_timeout": "1s"},
        "datanode": {
            "heartbeat_interval": "200ms",
            "volume_hung_after": "1s",
            "scrub_period": "500ms",
        },
    }
    path = tmp_path_factory.mktemp("faulty") / "cluster"
    with FaultyCluster(3, 1, path, settings=settings) as cluster:
        yield cluster


@contextmanager
def told(cluster: LocalCluster, rules: dict[str, str], alert: str) -> Iterator[None]:
    """The body of the `with` makes a fault, waits until its alert fires, and mends the fault."""
    wait_fires(cluster, rules, alert, fires=False)
    yield
    wait_fires(cluster, rules, alert, fires=False)


def wait_fires(
    cluster: LocalCluster, rules: dict[str, str], alert: str, *, fires: bool = True
) -> None:
    what = f"{alert} to {'fire' if fires else 'end'}"
    wait_until(lambda: (alert in firing(cluster, rules)) == fires, 60, what)


def test_a_disk_that_hangs_is_told_until_it_answers(
    faulty: FaultyCluster, rules: dict[str, str]
) -> None:
    node = faulty.datanodes[0]
    with told(faulty, rules, "VolumeHung"):
        faulty.break_disk(node, Fault(CALLS, path=f"{node.volumes[0]}/", delay_s=HELD))
        wait_fires(faulty, rules, "VolumeHung")
        assert node.alive
        faulty.mend_disk(node)


def test_a_damaged_replica_is_told_until_its_file_is_gone(
    faulty: FaultyCluster, rules: dict[str, str]
) -> None:
    """There is no other one to put in its place."""
    with Client(faulty.url) as fs, told(faulty, rules, "BlocksDamaged"):
        with fs.create("/damaged", replication=1) as out:
            out.write(bytes(MIB))
        (replica,) = wait_until(lambda: replicas(faulty), what="its replica")
        flip(replica, MIB // 2)
        wait_fires(faulty, rules, "BlocksDamaged")
        fs.delete("/damaged")


def replicas(cluster: LocalCluster) -> list[Path]:
    """The block files of finalized replicas."""
    folders = [node.volumes[0] / "current" for node in cluster.datanodes]
    files = (file for folder in folders for file in folder.iterdir())
    return [file for file in files if file.suffix != ".meta"]


def test_a_block_that_too_few_members_can_end_is_told_until_they_are_back(
    faulty: FaultyCluster, rules: dict[str, str]
) -> None:
    """Between two tries, too: nothing is under way then, and the alert must not begin again."""
    config = ClientConfig(retry_for_s=1.0)
    live = 'paxosblock_namenode_datanodes{state="live"}'
    wait_until(lambda: scraped(faulty.namenode)[live] == 3, what="all to be there for the block")
    with Client(faulty.url, config) as fs, told(faulty, rules, "RecoveriesStuck"):
        out = fs.create("/stuck")
        out.write(b"three members have it")
        out.hflush()
        _, *away = faulty.datanodes
        for node in away:
            node.pause()  # else the block may be ended with one of them, as the other is gone
        for node in away:
            node.kill()
        wait_until(lambda: "DataNodeDead" in firing(faulty, rules), what="their death to be known")
        with pytest.raises(NotReadyError):
            fs.take_over("/stuck")
        assert "RecoveriesStuck" in firing(faulty, rules)
        for node in away:
            node.start()
        with suppress(PaxosBlockError):
            out.close()
    with Client(faulty.url) as fs:
        wait_until(lambda: not fs.stat("/stuck").open, what="the file to be closed")
        assert fs.stat("/stuck").size == len(b"three members have it")
        fs.delete("/stuck")


def test_little_room_is_told_until_there_is_more(
    faulty: FaultyCluster, rules: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_little(little: bool) -> None:
        rule = rules["LittleRoom"]
        wait_until(lambda: little_is_left(scraped_all(faulty), rule) == little, 60, rule)

    def start_again() -> None:
        for node in faulty.datanodes:
            node.stop()
            node.start()

    wait_little(False)
    size = scraped(faulty.namenode)["paxosblock_namenode_capacity_bytes"]
    monkeypatch.setenv("PAXOSBLOCK_DATANODE_RESERVED_SPACE", f"{size:.0f}B")
    start_again()
    wait_little(True)
    monkeypatch.delenv("PAXOSBLOCK_DATANODE_RESERVED_SPACE")
    start_again()
    wait_little(False)


def test_votes_that_take_long_are_told_until_they_are_quick_again(
    faulty: FaultyCluster, rules: dict[str, str]
) -> None:
    def slow(name: str) -> bool:
        before = scraped_all(faulty)
        with fs.create(name, replication=1, durability="disk") as out:
            out.write(b"a chunk")
            out.hsync()
        return takes_long(before, scraped_all(faulty), rules["SlowVotes"])

    with Client(faulty.url) as fs:
        assert not slow("/quick")
        for node in faulty.datanodes:
            faulty.break_disk(node, Fault(SYNCS, path="/rbw/blk_", delay_s=1.2))
        assert slow("/slow")
        for node in faulty.datanodes:
            faulty.mend_disk(node)
        assert not slow("/quick-again")
        for name in ("/quick", "/slow", "/quick-again"):
            fs.delete(name)


@pytest.mark.plain("the port of a gateway has no TLS, which those of nodes have")
def test_requests_that_fail_are_told_by_door_until_they_do_not(
    rules: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_RETRY_FOR", "0s")
    with LocalCluster(datanodes=1, gateways=1, settings=QUICK) as cluster:
        (gateway,) = cluster.gateways
        s3 = s3_client(f"http://{gateway.member.s3_listen}")

        def told() -> set[str]:
            before = scraped(gateway)
            with suppress(ClientError):
                s3.list_buckets()
            for path in ("", "nobody-made-this"):  # the refusal of the second is no failure
                with suppress(urllib.error.HTTPError):
                    urllib.request.urlopen(
                        url_of(gateway.address, f"webhdfs/v1/{path}?op=GETFILESTATUS")
                    ).close()
            return failing(before, scraped(gateway), rules["DoorFails"])

        assert told() == set()
        cluster.namenode.kill()
        assert told() == {"s3", "webhdfs"}
        cluster.namenode.start()
        wait_until(lambda: not told(), what="the NameNode to answer the gateway")


def test_a_damaged_map_is_told_while_it_is_and_for_an_hour_or_until_the_next_start(
    rules: dict[str, str], tmp_path: Path
) -> None:
    with LocalCluster(1, 3, tmp_path / "cluster", settings=QUICK) as cluster:
        leader = cluster.wait_leader()
        victim = next(node for node in cluster.namenodes if node is not leader)
        with Client(cluster.url) as fs:
            for number in range(FOLDERS):
                fs.mkdirs(path_of(number))
            rule = rules["TableDamaged"]

            def told(later_s: float = 0.0) -> bool:
                return is_lately(scraped_all(cluster), rule, later_s)

            assert not told()
            victim.stop()
            assert flip_bits(victim) > 5
            victim.start()

            def told_by_now() -> bool:
                with suppress(OSError):  # it ends connections as it takes a map from another one
                    return told()
                return False

            wait_until(told_by_now, 60, "TableDamaged to fire")
            wait_whole(victim)
            assert told()
            assert not told(later_s=3600.0)
            victim.stop()
            victim.start()
            assert not told()


def test_a_member_that_falls_behind_is_told_until_it_has_caught_up(rules: dict[str, str]) -> None:
    """One that leads shows the lag of the member that is furthest behind."""
    with rig() as member:
        metrics = NodeMetrics("namenode")
        observe(metrics, member.store, None)

        def shown() -> Page:
            return samples(metrics.render().decode())

        def behind() -> bool:
            return fires([shown()], rules["FollowerBehind"])

        one, other = member.peers
        member.append([entry(1)] * 10_001)
        assert shown()["paxosblock_namenode_raft_uncommitted_entries"] == 10_001
        assert not behind()
        member.become_candidate()
        member.vote(one)
        member.acknowledge(one)
        assert behind()
        member.acknowledge(other)
        assert not behind()


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


def scraped_all(cluster: LocalCluster) -> list[Page]:
    """The pages of the nodes that run."""
    return [scraped(node) for node in cluster.nodes if node.alive]


def firing(cluster: LocalCluster, rules: dict[str, str]) -> set[str]:
    """The alerts that find what they look for, of those that have a simple rule."""
    pages = scraped_all(cluster)
    return {alert for alert, rule in rules.items() if SIMPLE.fullmatch(rule) and fires(pages, rule)}


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
