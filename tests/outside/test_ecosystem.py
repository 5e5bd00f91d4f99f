"""The libraries that people use on top of fsspec: each reads and writes through it."""

from __future__ import annotations

import threading

import dask
import dask.dataframe
import duckdb
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from upath import UPath

from paxosblock.client.fsspec import PaxosBlockFileSystem
from paxosblock.local.cluster import LocalCluster
from tests.outside.programs import run

COLOURS = ["red", "green", "blue"]


def table(rows: int = 300) -> pa.Table:
    """Numbers, words of three kinds, and some missing values."""
    return pa.table(
        {
            "number": pa.array(range(rows), pa.int64()),
            "half": pa.array([None if i % 7 == 0 else i / 2 for i in range(rows)], pa.float64()),
            "colour": pa.array([COLOURS[i % 3] for i in range(rows)]),
        }
    )


@pytest.fixture
def url(cluster: LocalCluster, home: str) -> str:
    """The URL of a directory that only this test uses."""
    return cluster.url + home


@pytest.fixture
def arrow_fs(fs: PaxosBlockFileSystem) -> pyarrow.fs.FileSystem:
    return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs))


# -- pandas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["frame.csv", "frame.csv.gz"])
def test_pandas_writes_and_reads_csv_by_url(url: str, name: str) -> None:
    frame = table().to_pandas()
    options = {"replication": 2, "durability": "memory"}
    frame.to_csv(f"{url}/{name}", index=False, storage_options=options)
    found = pd.read_csv(f"{url}/{name}", storage_options=options)
    pd.testing.assert_frame_equal(found, frame)


def test_storage_options_of_pandas_reach_the_file(fs: PaxosBlockFileSystem, url: str) -> None:
    table().to_pandas().to_csv(f"{url}/a.csv", storage_options={"replication": 2})
    assert fs.info(f"{url}/a.csv")["replication"] == 2


def test_pandas_writes_and_reads_parquet_by_url(url: str) -> None:
    frame = table().to_pandas()
    frame.to_parquet(f"{url}/frame.parquet")
    found = pd.read_parquet(f"{url}/frame.parquet", columns=["number", "colour"])
    pd.testing.assert_frame_equal(found, frame[["number", "colour"]])


def test_pandas_appends_to_a_csv_file(url: str) -> None:
    frame = table(30).to_pandas()
    frame[:10].to_csv(f"{url}/frame.csv", index=False)
    frame[10:].to_csv(f"{url}/frame.csv", index=False, header=False, mode="a")
    pd.testing.assert_frame_equal(pd.read_csv(f"{url}/frame.csv"), frame)


def test_a_frame_that_cannot_be_written_leaves_the_old_file(
    fs: PaxosBlockFileSystem, url: str
) -> None:
    class Refuses:
        def __str__(self) -> str:
            raise ZeroDivisionError

    fs.pipe_file(f"{url}/frame.csv", b"old")
    with pytest.raises(ZeroDivisionError):
        pd.DataFrame({"a": [1, Refuses()]}).to_csv(f"{url}/frame.csv")
    assert fs.cat_file(f"{url}/frame.csv") == b"old"


# -- pyarrow --------------------------------------------------------------------------------------


def test_pyarrow_writes_a_table_and_reads_the_columns_and_rows_asked_for(
    arrow_fs: pyarrow.fs.FileSystem, home: str
) -> None:
    pq.write_table(table(), f"{home}/t.parquet", filesystem=arrow_fs, row_group_size=50)
    found = pq.read_table(
        f"{home}/t.parquet",
        filesystem=arrow_fs,
        columns=["number"],
        filters=[("colour", "=", "red"), ("number", "<", 10)],
    )
    assert found["number"].to_pylist() == [0, 3, 6, 9]


def test_a_pyarrow_dataset_in_hive_partitions_is_written_filtered_and_replaced(
    arrow_fs: pyarrow.fs.FileSystem, fs: PaxosBlockFileSystem, home: str
) -> None:
    def write(data: pa.Table) -> None:
        ds.write_dataset(
            data,
            f"{home}/set",
            format="parquet",
            filesystem=arrow_fs,
            partitioning=ds.partitioning(pa.schema([("colour", pa.string())]), flavor="hive"),
            existing_data_behavior="delete_matching",
        )

    write(table())
    assert sorted(fs.ls(f"{home}/set", detail=False)) == sorted(
        f"{home}/set/colour={colour}" for colour in COLOURS
    )
    dataset = ds.dataset(f"{home}/set", filesystem=arrow_fs, partitioning="hive")
    red = dataset.to_table(filter=pc.field("colour") == "red")
    assert sorted(red["number"].to_pylist()) == list(range(0, 300, 3))
    write(table(3))
    dataset = ds.dataset(f"{home}/set", filesystem=arrow_fs, partitioning="hive")
    assert dataset.count_rows() == 3


def test_pyarrow_finds_the_file_system_by_uri(url: str, home: str) -> None:
    found, path = pyarrow.fs.FileSystem.from_uri(f"fsspec+{url}/t.parquet")
    assert path == f"{home}/t.parquet"
    pq.write_table(table(5), path, filesystem=found)
    assert found.get_file_info(path).size == found.open_input_file(path).size()


def test_pyarrow_moves_copies_appends_and_deletes(
    arrow_fs: pyarrow.fs.FileSystem, home: str
) -> None:
    arrow_fs.create_dir(f"{home}/a/b")
    with arrow_fs.open_output_stream(f"{home}/a/b/one", compression=None) as out:
        out.write(b"one")
    arrow_fs.move(f"{home}/a/b/one", f"{home}/two")
    arrow_fs.copy_file(f"{home}/two", f"{home}/three")
    with arrow_fs.open_append_stream(f"{home}/three") as out:
        out.write(b" more")
    with arrow_fs.open_input_stream(f"{home}/three") as file:
        assert file.read() == b"one more"
    arrow_fs.delete_file(f"{home}/two")
    arrow_fs.delete_dir(f"{home}/a")
    selector = pyarrow.fs.FileSelector(home, recursive=True)
    assert [(each.path, each.size) for each in arrow_fs.get_file_info(selector)] == [
        (f"{home}/three", 8)
    ]


def test_pyarrow_is_told_of_missing_files_as_python_would(
    arrow_fs: pyarrow.fs.FileSystem, home: str
) -> None:
    missing = arrow_fs.get_file_info(f"{home}/missing")
    assert missing.type is pyarrow.fs.FileType.NotFound
    with pytest.raises(FileNotFoundError):
        arrow_fs.open_input_file(f"{home}/missing")


# -- polars ---------------------------------------------------------------------------------------


def test_polars_writes_and_reads_an_open_file(fs: PaxosBlockFileSystem, home: str) -> None:
    frame = pl.from_arrow(table())
    assert isinstance(frame, pl.DataFrame)
    with fs.open(f"{home}/frame.parquet", "wb") as out:
        frame.write_parquet(out)
    with fs.open(f"{home}/frame.parquet") as file:
        assert pl.read_parquet(file).equals(frame)


def test_polars_scans_a_dataset(arrow_fs: pyarrow.fs.FileSystem, home: str) -> None:
    for part in range(3):
        pq.write_table(table(10), f"{home}/{part}.parquet", filesystem=arrow_fs)
    lazy = pl.scan_pyarrow_dataset(ds.dataset(home, filesystem=arrow_fs))
    assert lazy.filter(pl.col("number") > 7).select("number").collect().height == 6


# -- duckdb ---------------------------------------------------------------------------------------


@pytest.fixture
def duck(fs: PaxosBlockFileSystem) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.register_filesystem(fs)
    return connection


def test_duckdb_copies_to_hive_partitions_and_reads_them_by_glob(
    duck: duckdb.DuckDBPyConnection, fs: PaxosBlockFileSystem, url: str, home: str
) -> None:
    data = table()  # noqa: F841 - duckdb finds it by its name
    duck.sql(f"COPY (FROM data) TO '{url}/set' (FORMAT parquet, PARTITION_BY (colour))")
    assert len(fs.glob(f"{home}/set/colour=*/*.parquet")) == 3
    found = duck.sql(
        f"SELECT colour, count(*), sum(number) FROM read_parquet('{url}/set/*/*.parquet', "
        "hive_partitioning = true) WHERE colour != 'red' GROUP BY colour ORDER BY colour"
    )
    assert found.fetchall() == [("blue", 100, 15050), ("green", 100, 14950)]


def test_duckdb_reads_a_url_without_a_host_from_the_cluster_it_was_given(
    duck: duckdb.DuckDBPyConnection, fs: PaxosBlockFileSystem, home: str
) -> None:
    fs.pipe_file(f"{home}/a.csv", b"number,colour\n1,red\n2,blue\n")
    found = duck.sql(f"SELECT colour FROM 'paxosblock://{home}/a.csv' WHERE number = 2")
    assert found.fetchall() == [("blue",)]


def test_a_program_ends_while_duckdb_has_files_open(url: str) -> None:
    """It did not: they were closed when no other thread ran any more, and waited for one."""
    script = """
import duckdb, fsspec, sys
fs, path = fsspec.url_to_fs(sys.argv[1])
fs.pipe_file(f"{path}/a.csv", b"a,b\\n1,2\\n")
duckdb.register_filesystem(fs)
print(duckdb.sql(f"SELECT * FROM '{sys.argv[1]}/a.csv'").fetchall())
"""
    assert run(script, url) == "[(1, 2)]\n"


# -- dask -----------------------------------------------------------------------------------------


def test_dask_writes_and_reads_parquet(url: str) -> None:
    frame = table().to_pandas()
    with dask.config.set(scheduler="threads", num_workers=2):
        dask.dataframe.from_pandas(frame, npartitions=3).to_parquet(f"{url}/frame")
        found = dask.dataframe.read_parquet(f"{url}/frame").compute()
    pd.testing.assert_frame_equal(
        found.reset_index(drop=True), frame, check_dtype=False, check_index_type=False
    )


def test_dask_counts_rows_by_what_the_parquet_files_say(url: str) -> None:
    with dask.config.set(scheduler="threads", num_workers=2):
        dask.dataframe.from_pandas(table().to_pandas(), npartitions=3).to_parquet(f"{url}/frame")
        assert len(dask.dataframe.read_parquet(f"{url}/frame")) == len(table())


def test_dask_reads_csv_by_blocks_that_cut_lines(fs: PaxosBlockFileSystem, url: str) -> None:
    frame = table(1000).to_pandas()
    frame.to_csv(f"{url}/frame.csv", index=False)
    with dask.config.set(scheduler="threads", num_workers=2):
        parts = dask.dataframe.read_csv(f"{url}/frame.csv", blocksize=1000)
        assert parts.npartitions > 10
        assert parts["number"].sum().compute() == sum(range(1000))
        parts.to_csv(f"{url}/parts/*.csv", index=False)
    assert len(fs.glob(f"{url}/parts/*.csv")) == parts.npartitions


@pytest.mark.slow
def test_dask_works_in_processes_of_its_own(url: str) -> None:
    """The file system travels by its arguments."""
    frame = table(100).to_pandas()
    with dask.config.set(scheduler="processes", num_workers=2):
        dask.dataframe.from_pandas(frame, npartitions=2).to_parquet(f"{url}/frame")
        found = dask.dataframe.read_parquet(f"{url}/frame")["number"].sum().compute()
    assert found == sum(range(100))


# -- joblib ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [0, ("gzip", 3)])
def test_joblib_dumps_and_loads_values_with_arrays(
    fs: PaxosBlockFileSystem, home: str, compress: object
) -> None:
    with fs.open(f"{home}/model", "wb") as out:
        joblib.dump({"weights": np.arange(100_000), "name": "a"}, out, compress=compress)
    with fs.open(f"{home}/model", "rb") as file:
        found = joblib.load(file)
    assert found["name"] == "a"
    assert (found["weights"] == np.arange(100_000)).all()


def squared(fs: PaxosBlockFileSystem, path: str) -> str:
    """Write the square of the number in a file beside it; runs in a process of joblib's."""
    with fs.open(path, "rb") as file, fs.open(f"{path}.squared", "wb") as out:
        joblib.dump(joblib.load(file) ** 2, out)
    return f"{path}.squared"


@pytest.mark.slow
def test_processes_of_joblib_get_the_file_system(fs: PaxosBlockFileSystem, home: str) -> None:
    for number in range(4):
        with fs.open(f"{home}/{number}", "wb") as out:
            joblib.dump(number, out)
    work = (joblib.delayed(squared)(fs, f"{home}/{number}") for number in range(4))
    found = []
    for path in joblib.Parallel(n_jobs=2)(work):
        with fs.open(path, "rb") as file:
            found.append(joblib.load(file))
    assert found == [0, 1, 4, 9]


# -- UPath ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:UPath 'paxosblock' filesystem not explicitly implemented")
def test_a_upath_is_used_like_a_path(url: str) -> None:
    """universal_pathlib takes any file system of fsspec, and warns once that it knows not all."""
    top = UPath(url)
    page = top / "notes" / "one.txt"
    page.parent.mkdir()
    page.write_text("first")
    with page.open("a") as out:
        out.write(" second")
    assert page.read_text() == "first second"
    assert (page.name, page.suffix, page.stat().st_size) == ("one.txt", ".txt", 12)
    assert list(top.iterdir()) == [page.parent]
    assert list(top.rglob("*.txt")) == list(top.glob("*/one.txt")) == [page]
    moved = page.rename(top / "two.txt")
    assert moved.is_file()
    assert not page.exists()
    with pytest.raises(FileNotFoundError, match="no such file"):
        page.read_bytes()
    page.parent.rmdir()
    moved.unlink()
    assert list(top.iterdir()) == []
    # Its text leaves the cluster out, as for every host that UPath does not know.
    assert moved.fs.unstrip_protocol(moved.path) == f"{url}/two.txt"


# -- several threads ------------------------------------------------------------------------------


def test_threads_share_a_file_system(fs: PaxosBlockFileSystem, home: str) -> None:
    def work(number: int) -> None:
        for step in range(5):
            with fs.open(f"{home}/{number}-{step}", "wb") as out:
                out.write(f"{number} {step}".encode())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = fs.cat(fs.ls(home, detail=False))
    assert found == {f"{home}/{n}-{s}": f"{n} {s}".encode() for n in range(4) for s in range(5)}
