"""The timer beside a measurement tells how late it was, and ends with what it stands beside."""

from __future__ import annotations

import signal
import time

from benchmarks.late_timer import LateTimer
from tests.waiting import wait_until

STOPPED_S = 0.05


def test_a_timer_whose_process_was_stopped_tells_by_how_much_it_was_late() -> None:
    with LateTimer() as timer:
        timer.process.send_signal(signal.SIGSTOP)
        begun_s = time.monotonic()
        wait_until(lambda: time.monotonic() - begun_s > 2 * STOPPED_S)
        timer.process.send_signal(signal.SIGCONT)
        assert timer.take() > STOPPED_S
    assert timer.process.returncode == 0
