"""How fast does Spark write, read and stream, beside the local disk?"""

from __future__ import annotations

import asyncio
import os
import shutil

from paxosblock.bench.suite import Bench, SkipError, case
from paxosblock.units import GIB


@case("spark", usual=False, room_bytes=12 * GIB)
async def spark(bench: Bench) -> None:
    """How fast does Spark write, read and stream, beside the local disk?"""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise SkipError("it needs Java")
    try:
        from paxosblock.bench import spark_work  # noqa: PLC0415 - loads PySpark
    except ImportError as error:
        raise SkipError("it needs `pip install 'paxosblock[spark]'`") from error
    cluster = await bench.cluster()
    await asyncio.to_thread(spark_work.answer, bench, cluster.url)
