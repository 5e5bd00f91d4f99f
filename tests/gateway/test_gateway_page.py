"""The status page of a gateway, and its figures by door."""

from __future__ import annotations

import re
from typing import Any

from paxosblock import LocalCluster
from paxosblock.net.port.page_door import PAGE_HEADERS
from tests.gateway.gateways import RunningGateway
from tests.waiting import wait_until

SENT = b"x" * 100_000


def doors_of(gateway: RunningGateway) -> dict[str, dict[str, Any]]:
    """The doors as the page has them, by name."""
    page = gateway.send("GET", "/page.json").json
    return {each["door"]: each for each in page["status"]["doors"]}


def test_the_page_of_a_gateway_tells_what_came_and_went_by_door(
    cluster: LocalCluster, gateways: tuple[RunningGateway, RunningGateway], home: str
) -> None:
    gateway, _ = gateways
    before = doors_of(gateway)
    assert gateway.write(f"{home}/f", SENT).status == 201
    assert gateway.ask("GET", f"{home}/f", "OPEN").body == SENT
    assert gateway.ask("GET", f"{home}/nope", "GETFILESTATUS").status == 404

    def told() -> bool:
        return bool(doors_of(gateway)["webhdfs"]["sent_bytes"] >= len(SENT))

    wait_until(told, what="the end of a download")
    after = doors_of(gateway)
    assert {*after} == {"webhdfs", "s3", "own"}
    assert after["s3"]["address"] == gateway.s3_url.removeprefix("http://")
    assert after["webhdfs"]["address"] == gateway.address
    assert after["webhdfs"]["refused"] - before["webhdfs"]["refused"] == 1
    assert after["webhdfs"]["requests"] - before["webhdfs"]["requests"] >= 3
    assert after["webhdfs"]["failed"] == 0
    assert after["webhdfs"]["received_bytes"] - before["webhdfs"]["received_bytes"] == len(SENT)
    page = gateway.send("GET", "/")
    assert page.status == 200
    assert PAGE_HEADERS.items() <= page.headers.items()
    text = re.sub(r"(<[^>]*>|\s)+", " ", page.body.decode())
    assert "Health: healthy" in text
    assert f"{cluster.namenode.address} alone" in text
    assert "log in" not in text
    assert home not in text, "it names no file"
    assert gateway.send("GET", "/page.css").headers["Content-Type"].startswith("text/css")
    metrics = gateway.send("GET", "/metrics").body.decode()
    assert re.search(r'gateway_request_seconds_bucket\{door="webhdfs",le="10.0"\} [1-9]', metrics)
    assert re.search(r'gateway_received_bytes_total\{door="webhdfs"\} [1-9]', metrics)


def test_a_page_of_another_site_and_what_is_no_page_get_nothing(gateway: RunningGateway) -> None:
    foreign = gateway.send("GET", "/page.json", headers={"Host": "evil.example"})
    assert foreign.status == 403
    assert "is no name of this node" in foreign.json["reason"]
    assert gateway.send("POST", "/").status == 405
    for path in ("/files", "/page", "/" + "%00" * 3000, "//", "/login"):
        assert gateway.send("GET", path).status == 404, path
    assert gateway.send("GET", "/?" + "x" * 10_000).status == 200
