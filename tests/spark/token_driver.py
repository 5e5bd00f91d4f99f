"""A Spark job in a secure cluster, for `test_job_token.py`: it streams for longer than a token is
good, and leaves all that Spark shows of it: in plans, on pages, in its event log and its own log.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from pathlib import Path

from paxosblock import Client
from paxosblock.client.spark.job_token import PURPOSE
from paxosblock.config import ClientConfig
from tests.spark.conftest import session_builder

PAGES = ("", "environment/", "executors/", "jobs/", "stages/", "SQL/", "SQL/execution/?id=0")
FACTS = ("environment", "sql?details=true&planDescription=true", "jobs", "stages", "executors")
LIFE_S = 60
"""Seconds for which tokens are good, as the environment of this driver says."""


def main(url: str, cert: str, ca: str, folder: Path) -> None:
    """Write and read at `url`; leave all that is shown."""
    events = folder / "events"
    events.mkdir()
    session = (
        session_builder("a job with a token", Path.cwd())
        .config("spark.ui.enabled", "true")
        .config("spark.ui.port", "0")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", events.as_uri())
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("DEBUG")
    options = {"tlsCert": cert, "tlsCa": ca}
    rows = session.range(100).repartition(2)
    rows.write.format("paxosblock").options(**options).mode("append").save(f"{url}/rows")
    reading = session.read.format("paxosblock").options(**options).schema("id bigint")
    found = reading.load(f"{url}/rows")
    assert found.count() == 100
    found.explain("extended")
    stream = session.readStream.format("paxosblock").options(**options).schema("id bigint")
    query = (
        stream.load(f"{url}/rows")
        .writeStream.format("paxosblock")
        .options(**options)
        .option("checkpointLocation", os.fspath(folder / "checkpoint"))
        .start(f"{url}/streamed")
    )
    query.processAllAvailable()
    batches = 1
    with Client(url, ClientConfig(tls_cert=cert, tls_ca=ca)) as fs:
        notes = [each.note for each in fs.tokens() if each.note.purpose == PURPOSE]
        first = {each.serial for each in notes if each.until_s - each.issued_s <= LIFE_S}
        assert first
        while {each.note.serial for each in fs.tokens()} & first:
            add_rows(fs, f"/rows/part-more-{batches}")
            query.processAllAvailable()
            batches += 1
        add_rows(fs, "/rows/part-last")
        query.processAllAvailable()
    query.stop()
    assert reading.load(f"{url}/streamed").count() == reading.load(f"{url}/rows").count()
    sys.stdout.write("streamed as long as the first token was good, and longer\n")
    page = session.sparkContext.uiWebUrl
    name = session.sparkContext.applicationId
    shown = [f"{page}/{each}" for each in PAGES]
    shown += [f"{page}/api/v1/applications/{name}/{each}" for each in FACTS]
    for number, each in enumerate(shown):
        with urllib.request.urlopen(each) as answer:
            (folder / f"page-{number}").write_bytes(answer.read())
    session.stop()


def add_rows(fs: Client, path: str) -> None:
    """Write one file of the first job's once more."""
    one = next(each for each in fs.ls("/rows") if each.name.startswith("part-") and each.size)
    with fs.open(one.path) as file, fs.create(path + ".parquet") as out:
        out.write(file.read())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
