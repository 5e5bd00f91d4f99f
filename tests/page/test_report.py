"""The last line of `admin report --json` is what the page shows."""

from __future__ import annotations

import json
import urllib.request

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.status import ClusterStatus
from paxosblock.cli.main import run


@pytest.mark.plain(
    "it shows what a caller without a name sees, whom a node with certificates refuses"
)
def test_the_last_line_of_the_report_is_the_page_and_the_others_are_as_before(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with LocalCluster(datanodes=3) as cluster, Client(cluster.url, replication=1) as fs:
        cluster.wait_registered()
        with fs.create("/a") as file:
            file.write(b"bytes")
        address = cluster.namenode.address
        with urllib.request.urlopen(f"http://{address}/page.json") as answer:
            page = json.load(answer)
        assert run(["admin", "report", "--json", "--namenodes", address]) == 0
        lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    namenode, *datanodes, report = lines
    assert namenode.keys() == {"namenode", "standing", "behind"}
    assert [each["node"] for each in datanodes] == ["datanode-0", "datanode-1", "datanode-2"]
    assert {each["node"] for each in report["datanodes"]} == {each["node"] for each in datanodes}
    assert report.keys() == page.keys()
    assert set(ClusterStatus.__struct_fields__) < report.keys()
    assert (report["files"], report["health"]["level"]) == (1, "healthy")
    # The command is of the user who runs the cluster, the page's caller is nobody.
    assert (report["unwhole"]["findings"], page["unwhole"]) == ([], None)
