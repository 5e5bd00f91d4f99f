"""Chaos: real node processes under every ordinary bad day; nothing acknowledged may be lost.

    python -m tests.services.chaos --seed 7 --seconds 120 --namenodes 3

A campaign is a loop of rounds. In each, failures (`failures.py`) begin and end, one after the other
at the DataNodes, one after the other at the NameNodes, under writers (`writers.py`) that write all
the time, stay open and idle, are killed, or close, and under appenders (`appenders.py`) that share
a file and cut it. While a failure lasts that the cluster is built
to bear, the writers must go on, and what idle writers flushed must be readable. A DataNode may be
lost for good, with its disks, and an empty one comes; or its blocks are damaged. Then all failures
end, and the cluster must become whole by itself (`checks.py`): every file readable byte for byte,
at least as long as its last flush, every block of every file with all its replicas, each of them
read, no node in need of a restart. The seed decides the failures; the operating system decides how
they fall, so a seed names a campaign, not a replay.
"""
