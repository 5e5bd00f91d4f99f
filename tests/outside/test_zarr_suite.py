"""zarr's own tests of a store, over `FsspecStore`, and an array that is written and read by URL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.core.buffer import Buffer, cpu
from zarr.storage import FsspecStore
from zarr.testing.store import StoreTests

from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.local.cluster import LocalCluster


class TestStore(StoreTests):  # type: ignore[misc] # its types are not read
    """Keys are files; what the suite looks at beside the store it asks the file system."""

    store_cls = FsspecStore
    buffer_cls = cpu.Buffer

    @pytest.fixture
    async def store_kwargs(self, cluster: LocalCluster, home: str) -> AsyncIterator[dict[str, Any]]:
        fs = PaxosBlockFileSystem(cluster.addresses, asynchronous=True, durability="memory")
        yield {"fs": fs, "path": home}
        await fs.aclose()

    async def set(self, store: FsspecStore, key: str, value: Buffer) -> None:
        await store.fs._pipe_file(f"{store.path}/{key}", value.to_bytes())

    async def get(self, store: FsspecStore, key: str) -> Buffer:
        return cpu.Buffer.from_bytes(await store.fs._cat_file(f"{store.path}/{key}"))

    def test_store_repr(self, store: FsspecStore) -> None:
        assert str(store) == f"<FsspecStore(PaxosBlockFileSystem, {store.path})>"

    def test_store_supports_writes(self, store: FsspecStore) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: FsspecStore) -> None:
        assert store.supports_listing


def test_zarr_writes_and_reads_an_array_by_url(cluster: LocalCluster, home: str) -> None:
    url = f"{cluster.url}{home}/field.zarr"
    values = np.arange(10_000).reshape(100, 100)
    written = zarr.create_array(url, shape=values.shape, chunks=(30, 30), dtype=values.dtype)
    written[:] = values
    written[5, :] = 7
    read = zarr.open_array(url, mode="r")
    values[5, :] = 7
    assert (read[:] == values).all()
    assert (read[25:35, 60] == values[25:35, 60]).all()
