"""URLs and addresses of clusters."""

from __future__ import annotations

import pytest

from paxosblock.client.names.url import ClusterUrl, cluster_addresses, parse_url
from paxosblock.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "namenodes", "path"),
    [
        ("paxosblock://a:1", ("a:1",), "/"),
        ("paxosblock://a:1/", ("a:1",), "/"),
        ("paxosblock://a/logs/x", ("a:9870",), "/logs/x"),
        ("paxosblock://a,b:7,c/logs", ("a:9870", "b:7", "c:9870"), "/logs"),
        ("paxosblock://[::1]:5/x", ("[::1]:5",), "/x"),
        ("paxosblock://[::1]/x", ("[::1]:9870",), "/x"),
        ("a:1,b:2", ("a:1", "b:2"), "/"),
        ("paxosblock://a:1/x?at=@7", ("a:1",), "/.snapshot/@7/x"),
        ("paxosblock://a:1/?at=@7", ("a:1",), "/.snapshot/@7"),
    ],
)
def test_a_url_names_nodes_and_a_path(url: str, namenodes: tuple[str, ...], path: str) -> None:
    assert parse_url(url) == ClusterUrl(namenodes, path)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("hdfs://a:1/", "starts with paxosblock://"),
        ("paxosblock:///x", "names no NameNode"),
        ("paxosblock://", "names no NameNode"),
        ("paxosblock://a:port/", "'port' is no port"),
        ("paxosblock://a:0/", "'0' is no port"),
        ("paxosblock://a:65536/", "'65536' is no port"),
        ("paxosblock://:9870/", "is no HOST:PORT"),
        ("paxosblock://::1/", "is no HOST:PORT"),
        ("paxosblock://user@a:1/", "is no HOST:PORT"),
        ("paxosblock://a b:1/", "is no HOST:PORT"),
    ],
)
def test_a_wrong_url_is_one_line_that_says_what_is_wrong(url: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        parse_url(url)
    assert "\n" not in str(caught.value)


def test_addresses_come_from_a_url_a_list_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert cluster_addresses("paxosblock://a:1/x") == ("a:1",)
    assert cluster_addresses(["a:1", "b"]) == ("a:1", "b:9870")
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", "c:3,d")
    assert cluster_addresses(None) == ("c:3", "d:9870")


def test_without_a_url_and_without_the_variable_nothing_is_guessed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PAXOSBLOCK_NAMENODES", raising=False)
    with pytest.raises(ConfigError, match="PAXOSBLOCK_NAMENODES"):
        cluster_addresses(None)
    with pytest.raises(ConfigError, match="names no NameNode"):
        cluster_addresses([])
