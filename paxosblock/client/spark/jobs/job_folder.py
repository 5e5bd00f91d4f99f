"""The folder of a job's unfinished files, which is removed when the job ends in any way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Final

from paxosblock.client.blocking.sync import Client
from paxosblock.client.names.walk import join
from paxosblock.client.spark.attempts import TEMPORARY
from paxosblock.errors import DirectoryNotEmptyError

JOB_TTL_S: Final = 7 * 24 * 3600.0
"""Seconds until the folder of a job that was killed is deleted; longer than any job takes."""


def unfinished(home: str, job: str) -> str:
    """Return the folder of the files of `job` until they get their places in `home`."""
    return join(home, f"{TEMPORARY}/{job}")


@contextlib.contextmanager
def unfinished_folder(fs: Client, home: str, job: str) -> Iterator[str]:
    """Make the folder, and delete it at the end: tasks that still run can then create nothing."""
    folder = unfinished(home, job)
    fs.mkdirs(folder, ttl_s=JOB_TTL_S)
    try:
        yield folder
    finally:
        fs.delete(folder, recursive=True)
        with contextlib.suppress(DirectoryNotEmptyError):  # another job is at work then
            fs.delete(str(PurePosixPath(folder).parent))
