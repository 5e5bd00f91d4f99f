"""Table formats: which of their libraries reach a cluster, as docs/fsspec.md says."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pyiceberg.catalog
import pyiceberg.io.fsspec
import pytest

from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.local.cluster import LocalCluster


def test_pyiceberg_keeps_its_tables_in_the_cluster(
    cluster: LocalCluster,
    fs: PaxosBlockFileSystem,
    home: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"{cluster.url}{home}",
        "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
    }
    rows = pa.table({"id": [1, 2, 3]})
    monkeypatch.setitem(pyiceberg.io.fsspec.SCHEME_TO_FS, "paxosblock", lambda _: fs)
    first = pyiceberg.catalog.load_catalog("events", **properties)
    first.create_namespace("events")
    first.create_table("events.days", schema=rows.schema)
    first.load_table("events.days").append(rows)
    first.load_table("events.days").append(rows)
    found = pyiceberg.catalog.load_catalog("events", **properties).load_table("events.days")
    assert sorted(found.scan().to_arrow()["id"].to_pylist()) == [1, 1, 2, 2, 3, 3]
    assert found.location().startswith(f"{cluster.url}{home}/")


def test_delta_rs_knows_only_its_own_stores(cluster: LocalCluster, home: str) -> None:
    with pytest.raises(Exception, match="Unknown scheme: paxosblock"):
        deltalake.write_deltalake(f"{cluster.url}{home}/days", pa.table({"id": [1]}))
