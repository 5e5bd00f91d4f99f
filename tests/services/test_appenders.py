"""Processes that append to one file, cut it and are killed: `make chaos` does so for longer."""

from __future__ import annotations

import random

from paxosblock import Client, LocalCluster
from tests.services.chaos.appenders import Log


def test_what_appenders_were_told_is_there_though_they_cut_the_file_and_are_killed() -> None:
    with LocalCluster(datanodes=3) as cluster, Client(cluster.url) as fs:
        fs.create("/log").close()
        log = Log(cluster.url, "/log", cluster.path, random.Random(1))
        try:
            log.start(2)
            for node in (cluster.datanodes[0], cluster.namenode):
                log.wait_progress()
                log.kill_one()
                node.kill()
                node.start()
            log.end_well(fs)
        finally:
            log.end(kill=True)
        assert log.counts["records verified"] > 0
        assert log.counts["appenders killed"] == 2
