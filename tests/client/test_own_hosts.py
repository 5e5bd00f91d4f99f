"""The hosts of a URL that are this cluster."""

from __future__ import annotations

import pytest

from paxosblock.client.names.own_hosts import OwnHosts, is_url, members_of, same_hosts
from paxosblock.errors import InvalidRequestError


class Asked:
    """Members as NameNodes would tell them, and how often they were asked."""

    def __init__(self, *members: str) -> None:
        self.members = members
        self.times = 0

    def __call__(self, addresses: tuple[str, ...]) -> tuple[str, ...]:
        self.times += 1
        return self.members


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("a:1", "paxosblock://a:1/x"),
        ("a:9870", "paxosblock://a/x"),
        ("A.example:1", "paxosblock://a.EXAMPLE.:1/x"),
        ("a:1,b:2", "paxosblock://b:2/x"),
        ("a:1,b:2", "paxosblock://b:2,a:1/x"),
        ("127.0.0.1:1", "paxosblock://localhost:1/x"),
        ("localhost:1", "paxosblock://[::1]:1/x"),
    ],
)
def test_a_host_that_the_cluster_was_named_by_is_its_own_and_nobody_is_asked(
    given: str, url: str
) -> None:
    ask = Asked()
    assert OwnHosts(tuple(given.split(",")), ask).path(url) == "/x"
    assert not ask.times


def test_another_member_is_the_cluster_too_and_is_asked_for_once() -> None:
    ask = Asked("a:1", "b:1", "c:1")
    own = OwnHosts(("a:1",), ask)
    assert own.path("paxosblock://b:1,c:1/x") == "/x"
    assert own.path("paxosblock://c:1/x") == "/x"
    assert ask.times == 1


@pytest.mark.parametrize(
    "url", ["paxosblock://other:1/x", "paxosblock://a:2/x", "paxosblock://a:1,other:1/x"]
)
def test_a_host_that_is_none_of_the_clusters_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="is no NameNode of the cluster a:1") as refused:
        OwnHosts(("a:1",), Asked("a:1", "b:1")).path(url)
    assert str(refused.value).startswith(f"'{url}': ")
    assert "\n" not in str(refused.value)


def test_nobody_answers_means_that_no_other_host_is_known() -> None:
    assert members_of(("127.0.0.1:9",)) == ()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("paxosblock://a:1/x", True),
        ("paxosblock://a", True),
        ("paxosblock:///x", False),
        ("/x", False),
        ("x", False),
    ],
)
def test_a_url_without_a_host_names_no_cluster(written: str, *, expected: bool) -> None:
    assert is_url(written) == expected


def test_hosts_are_compared_as_they_are_written() -> None:
    assert same_hosts(["localhost:1"], ["127.0.0.1:1", "b:1"])
    assert not same_hosts(["a:1", "c:1"], ["a:1", "b:1"])
