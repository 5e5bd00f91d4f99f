"""The fsspec file system `paxosblock://host:port[,host:port]/path`.

fsspec finds it by itself, so that pandas, dask, pyarrow, polars and duckdb can use such URLs; see
docs/fsspec.md.
"""

from __future__ import annotations

from paxosblock.client.fsspec.filesystem import PaxosBlockFileSystem

__all__ = ["PaxosBlockFileSystem"]
