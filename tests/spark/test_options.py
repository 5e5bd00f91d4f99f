"""Options: what users write, what it means, and one clear line for what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paxosblock.base.replacement import OnFailure, Replacement
from paxosblock.base.units import MIB
from paxosblock.client.spark.source_options import (
    OPTIONS,
    FileFormat,
    Layout,
    SparkOptions,
    Use,
    parse_options,
)
from paxosblock.errors import ConfigError
from paxosblock.protocol.types import Durability

HERE = {"path": "/a", "namenodes": "nn:1"}
CSV = HERE | {"fileFormat": "csv"}


def test_a_path_and_namenodes_are_enough() -> None:
    assert parse_options(HERE, Use.WRITE) == SparkOptions(path="/a", namenodes=("nn:1",))


def test_names_of_options_are_the_same_in_any_case() -> None:
    written = {"PATH": "/a", "nameNodes": "nn:1", "HEADER": "true", "fileformat": "CSV"}
    options = parse_options(written, Use.WRITE)
    assert (options.header, options.file_format) == (True, FileFormat.CSV)


def test_a_url_as_the_path_names_the_namenodes_too() -> None:
    options = parse_options({"path": "paxosblock://a:1,b:2/x//y/"}, Use.READ)
    assert (options.path, options.namenodes) == ("/x/y", ("a:1", "b:2"))


def test_the_environment_names_the_namenodes_where_nothing_else_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", "env:5")
    assert parse_options({"path": "/a"}, Use.READ).namenodes == ("env:5",)


def test_every_option_is_read() -> None:
    written = HERE | {
        "fileFormat": "csv",
        "compression": "ZSTD",
        "header": "TRUE",
        "sep": "\\t",
        "layout": "append",
        "jobTtl": "2h",
        "replication": "2",
        "durability": "memory",
        "onFailure": "rebuild",
        "replaceOnFailure": "Always",
        "retryFor": "1500ms",
    }
    assert parse_options(written, Use.STREAM_WRITE) == SparkOptions(
        path="/a",
        namenodes=("nn:1",),
        file_format=FileFormat.CSV,
        compression="zstd",
        header=True,
        sep="\t",
        layout=Layout.APPEND,
        job_ttl_s=7200.0,
        replication=2,
        durability=Durability.MEMORY,
        on_failure=OnFailure.REBUILD,
        replace_on_failure=Replacement.ALWAYS,
        retry_for_s=1.5,
    )


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [("1000", 1000), ("40KB", 40_960), ("128m", 128 * MIB), ("64K", 65_536)],
)
def test_sizes_are_written_as_in_spark(written: str, size_bytes: int) -> None:
    options = parse_options(HERE | {"rowGroupBytes": written}, Use.WRITE)
    assert options.row_group_bytes == size_bytes


def test_a_list_of_paths_is_read_from_the_cluster_that_one_of_them_names() -> None:
    options = parse_options({"paths": '["paxosblock://a:1/x", "/y/"]'}, Use.READ)
    assert (options.roots, options.namenodes) == (("/x", "/y"), ("a:1",))


def test_a_time_in_the_past_is_read_at_its_path() -> None:
    options = parse_options(HERE | {"asOf": "@7"}, Use.READ)
    assert options == SparkOptions(path="/.snapshot/@7/a", namenodes=("nn:1",))
    written = {"paths": '["paxosblock://a:1/x/*", "/y/"]', "asOf": "1970-01-01T00:00:05+00:00"}
    assert parse_options(written, Use.READS).roots == (
        "/.snapshot/@t5.000/x/*",
        "/.snapshot/@t5.000/y",
    )


def test_options_reach_the_client_and_the_rest_stays_as_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_WINDOW", "7")
    written = HERE | {"replication": "2", "durability": "memory", "retryFor": "2s"}
    config = parse_options(written, Use.WRITE).client_config
    assert (config.replication, config.durability) == (2, Durability.MEMORY)
    assert (config.retry_for_s, config.window) == (2.0, 7)
    written = HERE | {"onFailure": "rebuild", "replaceOnFailure": "never"}
    config = parse_options(written, Use.WRITE).client_config
    assert (config.on_failure, config.replace_on_failure) == (
        OnFailure.REBUILD,
        Replacement.NEVER,
    )
    assert parse_options(HERE, Use.WRITE).client_config.replication == 3


def test_what_spark_adds_by_itself_is_let_pass() -> None:
    written = HERE | {"checkpointLocation": "/c", "queryName": "q"}
    assert parse_options(written, Use.STREAM_WRITE).path == "/a"


def test_a_url_names_the_cluster_of_the_option_by_any_of_its_nodes() -> None:
    written = {"path": "paxosblock://localhost:1/x", "namenodes": "127.0.0.1:1,b:1"}
    options = parse_options(written, Use.READ)
    assert (options.path, options.namenodes) == ("/x", ("127.0.0.1:1", "b:1"))


@pytest.mark.parametrize(
    ("written", "use", "message"),
    [
        ({"namenodes": "nn:1"}, Use.WRITE, "option 'path' is missing, a path in the"),
        ({"path": "a", "namenodes": "nn:1"}, Use.WRITE, "'path' = 'a': expected an absolute path"),
        ({"path": "/a"}, Use.WRITE, "no cluster given"),
        (
            {"path": "paxosblock://a:1/x", "namenodes": "b:1"},
            Use.READ,
            "the path 'paxosblock://a:1/x' and b:1 (option 'namenodes', or another path) name diff",
        ),
        ({"path": "hdfs://a:1/x"}, Use.READ, "expected an absolute path"),
        (HERE | {"rowGroupByte": "1"}, Use.WRITE, "did you mean 'rowGroupBytes'?"),
        (
            HERE | {"owner": "me", "provider": "paxosblock", "location": "/a", "option.path": "/a"},
            Use.READS,
            "no tables: a table of Spark's catalog does not tell a Python source its path",
        ),
        (HERE | {"asOf": "soon"}, Use.READ, "option 'asOf' = 'soon': 'soon': no time: write it as"),
        (HERE | {"asOf": "2h"}, Use.WRITE, "'asOf' has no effect on a batch write"),
        (HERE | {"asOf": "2h"}, Use.STREAM_READ, "'asOf' has no effect on a streaming read"),
        (HERE | {"layout": "files"}, Use.WRITE, "'layout' has no effect on a batch write"),
        (HERE | {"header": "true"}, Use.READ, "option 'header' has no effect on parquet files"),
        (
            CSV | {"rowGroupBytes": "1MiB"},
            Use.WRITE,
            "option 'rowGroupBytes' has no effect on csv files",
        ),
        ({"paths": '["paxosblock://a:1/x","paxosblock://b:1/x"]'}, Use.READ, "different clusters"),
        (HERE | {"paths": '["/a","/b"]'}, Use.READ, "options 'path' and 'paths': name one"),
        ({"paths": "/a,/b", "namenodes": "nn:1"}, Use.READ, "expected a JSON list of paths"),
        ({"paths": "[]", "namenodes": "nn:1"}, Use.READ, "expected at least one path"),
        (
            {"paths": '["/a","/b"]', "namenodes": "nn:1"},
            Use.STREAM_READ,
            "option 'paths' has no effect on a streaming read",
        ),
        (
            HERE | {"path": "/x/{a/b,c}"},
            Use.READ,
            "'/x/{a/b,c}': {a/b,c} spans directories; give a list of paths instead",
        ),
        (CSV | {"mergeSchema": "true"}, Use.READ, "'mergeSchema' has no effect on csv files"),
        (HERE | {"jobTtl": "1d"}, Use.READS, "'jobTtl' has no effect on a read"),
        (HERE | {"fileFormat": "orc"}, Use.WRITE, "expected one of parquet, arrow, csv"),
        (
            HERE | {"fileFormat": "csv", "header": "yes"},
            Use.WRITE,
            "'header' = 'yes': expected true or false",
        ),
        (CSV | {"sep": "||"}, Use.WRITE, "expected one ASCII character"),
        (HERE | {"rowGroupBytes": "0"}, Use.WRITE, "expected a size above zero"),
        (HERE | {"rowGroupBytes": "1 kg"}, Use.WRITE, "unknown unit 'kg'"),
        (HERE | {"jobTtl": "5"}, Use.WRITE, "has no unit"),
        (HERE | {"replication": "0"}, Use.WRITE, "expected a whole number from 1 on"),
        (HERE | {"durability": "tape"}, Use.WRITE, "expected one of disk, memory"),
        (HERE | {"onFailure": "maybe"}, Use.WRITE, "expected one of seal, rebuild"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_option(
    written: dict[str, str], use: Use, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PAXOSBLOCK_NAMENODES", raising=False)
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        parse_options(written, use)
    assert "\n" not in str(caught.value)


def test_the_documentation_lists_the_options_that_there_are(repository: Path) -> None:
    text = (repository / "docs" / "spark.md").read_text(encoding="utf-8")
    documented = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert {option.name for option in OPTIONS} == documented
