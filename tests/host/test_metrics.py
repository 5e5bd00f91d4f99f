"""The text of `GET /metrics`: names, units and labels as a Prometheus server reads them."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paxosblock.base.durations import BOUNDS_S, Durations
from paxosblock.host.metrics import PAGES_TOGETHER, NodeMetrics


def samples(metrics: NodeMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample by name and labels, read back by Prometheus' own parser."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def test_a_counter_is_named_by_role_and_ends_in_total() -> None:
    metrics = NodeMetrics("datanode")
    metrics.counter("chunks", "Chunks voted for.", ["answer"]).labels(answer="vote").inc(3)
    assert samples(metrics)["paxosblock_datanode_chunks_total", (("answer", "vote"),)] == 3


def test_an_observed_value_is_asked_for_at_each_look() -> None:
    replicas: list[int] = []
    metrics = NodeMetrics("datanode")
    metrics.observe("replicas", "Replicas on this node.", lambda: len(replicas))
    assert samples(metrics)["paxosblock_datanode_replicas", ()] == 0
    replicas.append(1)
    assert samples(metrics)["paxosblock_datanode_replicas", ()] == 1


def test_durations_are_a_histogram_whose_counts_include_the_shorter_ones() -> None:
    durations = Durations()
    for took_s in (0.0001, BOUNDS_S[0], 0.003, 100.0):
        durations.note(took_s)
    assert [durations.within_s(share) for share in (0.5, 0.75, 0.99)] == [BOUNDS_S[0], 0.005, None]
    metrics = NodeMetrics("datanode")
    metrics.histogram("vote", "Votes.", ("storage",), lambda: [(("a",), durations)])
    found = samples(metrics)
    name, of = "paxosblock_datanode_vote_seconds", ("storage", "a")
    assert found[f"{name}_bucket", (("le", str(BOUNDS_S[0])), of)] == 2
    assert found[f"{name}_bucket", (("le", "0.005"), of)] == 3
    assert found[f"{name}_bucket", (("le", str(BOUNDS_S[-1])), of)] == 3
    assert found[f"{name}_bucket", (("le", "+Inf"), of)] == 4
    assert found[f"{name}_count", (of,)] == 4
    assert found[f"{name}_sum", (of,)] == pytest.approx(100.0001 + BOUNDS_S[0] + 0.003)


def test_levels_are_gauges_for_each_value_of_a_label() -> None:
    counts = {"live": 2, "dead": 1}
    metrics = NodeMetrics("namenode")
    metrics.levels("nodes", "Nodes.", ("state",), lambda: [((k,), v) for k, v in counts.items()])
    assert samples(metrics)["paxosblock_namenode_nodes", (("state", "dead"),)] == 1
    counts["dead"] = 0
    assert samples(metrics)["paxosblock_namenode_nodes", (("state", "dead"),)] == 0


def test_two_nodes_in_one_process_count_apart() -> None:
    first, second = NodeMetrics("datanode"), NodeMetrics("datanode")
    first.counter("reads", "Reads served.").inc()
    second.counter("reads", "Reads served.")
    assert samples(first)["paxosblock_datanode_reads_total", ()] == 1
    assert samples(second)["paxosblock_datanode_reads_total", ()] == 0


def test_the_node_tells_its_memory() -> None:
    assert samples(NodeMetrics("datanode"))["process_resident_memory_bytes", ()] > 1_000_000


def test_a_page_that_is_asked_for_again_and_again_is_rendered_a_few_times_only() -> None:
    looks = 0

    def look() -> float:
        nonlocal looks
        looks += 1
        return looks

    metrics = NodeMetrics("datanode")
    metrics.observe("looks", "Looks.", look)
    pages = [metrics.page() for _ in range(1000)]
    assert PAGES_TOGETHER <= looks < 500  # one more for each second that this took
    assert pages[1] != pages[0]
    assert pages[-1].count(b"looks")
