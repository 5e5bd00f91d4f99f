"""Work that nobody waits for."""

from __future__ import annotations

import asyncio
import logging

import pytest

from paxosblock.errors import NotReadyError
from paxosblock.namenode import background
from paxosblock.namenode.background import Background


@pytest.mark.parametrize("error", [NotReadyError("not yet"), ValueError("a mistake of ours")])
async def test_repeated_work_survives_its_errors_and_ends_with_the_node(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "RETRY_S", 0)
    work, times, thrice = Background(), 0, asyncio.Event()

    async def fail_first() -> None:
        nonlocal times
        times += 1
        if times == 1:
            raise error
        if times == 3:
            thrice.set()

    work.repeat("counting", fail_first, 0)
    await asyncio.wait_for(thrice.wait(), 10)
    await work.close()
    ended_after = times
    await asyncio.sleep(0)
    assert times == ended_after
    (line,) = (record for record in caplog.records if record.levelno >= logging.WARNING)
    assert "counting" in f"{line.getMessage()} {line.__dict__}"
