"""The log of a node: one line per event, whatever happens in it."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest

from paxosblock.config import NameNodeConfig, load_config
from paxosblock.errors import ConfigError
from paxosblock.host import logs
from paxosblock.host.logs import LineForm, RotatedFile, facts, log_event, set_up_logs
from tests.waiting import wait_until

log = logging.getLogger("paxosblock.test")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # set_up_logs would close pytest's own
    stream = io.StringIO()
    set_up_logs("dn-1", out=stream)
    yield stream
    root.handlers[0].close()
    root.handlers, root.level = handlers, level


def after_the_time(stream: io.StringIO) -> str:
    logging.getLogger().handlers[0].flush()
    return re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", "", stream.getvalue())


def test_a_file_that_is_long_is_put_aside_and_the_oldest_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "log"
    for number in range(7):
        out = RotatedFile(file, 10, 3)  # also one that is opened again goes on
        out.write(f"line {number}\n")
        out.flush()
        out.close()
    found = {each.name: each.read_text() for each in tmp_path.iterdir()}
    assert found == {
        "log": "line 6\n",
        "log.1": "line 4\nline 5\n",
        "log.2": "line 2\nline 3\n",
    }


def test_one_file_alone_begins_from_the_front(tmp_path: Path) -> None:
    out = RotatedFile(tmp_path / "log", 5, 1)
    for text in ("first", "other", "x"):
        out.write(text)
        out.flush()
    out.close()
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"log": "x"}


def test_a_file_that_cannot_be_written_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none/log': No such file or directory"):
        RotatedFile(tmp_path / "none" / "log", 10, 3)


def test_an_event_is_a_line_with_time_level_node_message_and_facts(written: io.StringIO) -> None:
    log.info("block recovered", extra=facts(block=7, generation=3))
    assert after_the_time(written) == "info dn-1 block recovered block=7 generation=3\n"


def test_a_fact_that_would_blur_the_line_is_quoted(written: io.StringIO) -> None:
    log.info("refused", extra=facts(path="/a b", reason='say "no"', empty="", name="é"))
    assert after_the_time(written) == (
        'info dn-1 refused path="/a b" reason="say \\"no\\"" empty="" name=é\n'
    )


def test_a_line_break_cannot_fake_a_second_event(written: io.StringIO) -> None:
    log.warning("first\nsecond", extra=facts(path="/x\r\n\u2028y"))
    assert after_the_time(written) == ('warning dn-1 first\\nsecond path="/x\\r\\n\\u2028y"\n')


def test_a_traceback_stays_on_the_line_of_its_event(written: io.StringIO) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("request failed", extra=facts(block=7))
    line = after_the_time(written)
    assert line.startswith('error dn-1 request failed block=7 traceback="Traceback (most recent')
    assert line.endswith('ValueError: broken"\n')
    assert line.count("\n") == 1


def test_events_below_the_level_are_not_written(written: io.StringIO) -> None:
    log.debug("detail")
    assert written.getvalue() == ""


def test_an_unknown_level_is_refused_with_the_levels_there_are() -> None:
    with pytest.raises(
        ConfigError,
        match=r'^--log-level = \'loud\': expected one of "debug", "info", "warning", "error"$',
    ):
        load_config(NameNodeConfig, None, {}, {"log_level": "loud"})


def test_a_fact_that_is_none_is_not_told(written: io.StringIO) -> None:
    log.info("works again", extra=facts(address="nn:1", reason=None))
    assert after_the_time(written) == "info dn-1 works again address=nn:1\n"


def record(level: int, message: str, **told: object) -> logging.LogRecord:
    made = logging.LogRecord("x", level, "", 0, message, (), None)
    vars(made).update(facts(**told))
    return made


def test_a_line_tells_for_whom_it_is_after_its_own_facts() -> None:
    stream, asked = io.StringIO(), {"user": "ann", "address": "10.0.0.1", "request": "7f"}
    handler = logs.BatchHandler(stream, lambda: asked)
    handler.setFormatter(logs.LineFormatter("nn-1"))
    for told in ({"path": "/a"}, {"address": "dn:9864"}):
        handler.emit(record(logging.INFO, "did", **told))
    asked = {}
    handler.emit(record(logging.INFO, "did"))
    handler.close()
    assert [line.partition(" did")[2] for line in stream.getvalue().splitlines()] == [
        " path=/a user=ann address=10.0.0.1 request=7f",
        " address=dn:9864 user=ann request=7f",
        "",
    ]


def test_a_line_of_json_has_the_same_facts() -> None:
    hostile = 'a"b\n\u2028\udc80é'
    told = record(logging.WARNING, "refused", path=hostile, times=3, node="dn-2", left=None)
    line = logs.JsonFormatter("nn-1").format(told)
    assert line.splitlines() == [line]
    found = json.loads(line)
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "warning",
        "node": "nn-1",
        "message": "refused",
        "path": hostile,
        "times": 3,
        "node_": "dn-2",
    }


@pytest.mark.parametrize(
    ("level", "priority"),
    [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3)],
)
@pytest.mark.parametrize("form", list(LineForm))
def test_the_journal_of_systemd_is_told_the_priority(
    level: int, priority: int, form: LineForm, tmp_path: Path
) -> None:
    program = (
        "import logging, sys; from paxosblock.host.logs import *; "
        f"set_up_logs('dn-1', LogLevel.DEBUG, form=LineForm('{form.value}')); "
        f"logging.getLogger().log({level}, 'said'); logging.shutdown()"
    )
    said = {}
    for name, inode in (("journal", 0), ("other", 1)):
        file = tmp_path / name
        file.touch()
        stream = f"{file.stat().st_dev}:{file.stat().st_ino + inode}"
        with file.open("w") as out:
            environment = os.environ | {logs.JOURNAL_VARIABLE: stream}
            subprocess.run(
                [sys.executable, "-c", program], stderr=out, env=environment, check=True, timeout=60
            )
        said[name] = file.read_text()
    assert said["journal"].startswith(f"<{priority}>")
    assert said["journal"].count("\n") == 1
    assert not said["other"].startswith("<")


def test_standard_error_goes_on_in_the_next_file(tmp_path: Path) -> None:
    file = tmp_path / "log"
    program = (
        "import os, sys; from pathlib import Path; from paxosblock.host.logs import RotatedFile; "
        f"out = RotatedFile(Path({os.fspath(file)!r}), 5, 3); "
        "print('one', file=sys.stderr); out.write('two, and long'); out.flush(); "
        "print('three', file=sys.stderr, flush=True)"
    )
    with file.open("a") as out:
        os.fchmod(out.fileno(), 0o640)
        subprocess.run([sys.executable, "-c", program], stderr=out, check=True, timeout=60)
    assert Path(f"{file}.1").read_text() == "one\ntwo, and long"
    assert file.read_text() == "three\n"
    assert file.stat().st_mode & 0o777 == 0o640


class FullDisk(io.StringIO):
    """A stream to a disk that is full until there is room."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


def test_a_full_disk_costs_lines_and_says_so_later(capsys: pytest.CaptureFixture[str]) -> None:
    stream = FullDisk()
    handler = logs.BatchHandler(stream)
    for number in range(3):
        handler.emit(record(logging.INFO, f"line {number}"))
    handler.flush()
    stream.full = False
    handler.flush()
    handler.emit(record(logging.INFO, "line 3"))
    handler.close()
    assert stream.getvalue().splitlines() == [
        "3 lines were lost: No space left on device",
        "line 3",
    ]
    assert capsys.readouterr().err == ""


def test_an_event_of_thousands_makes_the_line_that_any_other_makes(written: io.StringIO) -> None:
    for path in ("/a", "/b c"):
        log_event(log, "mkdirs", facts(path=path, percent="%s"))
    assert after_the_time(written).splitlines()[0] == "info dn-1 mkdirs path=/a percent=%s"
    before, after = written.getvalue().splitlines()
    assert after.endswith(' info dn-1 mkdirs path="/b c" percent=%s')
    assert abs(seconds(before) - seconds(after)) < 60


def seconds(line: str) -> float:
    """The time of a line, in seconds since the epoch."""
    return datetime.fromisoformat(line.split(" ", 1)[0]).timestamp()


def test_an_event_of_thousands_has_a_time_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        log.info("mkdirs", extra=facts(path="/a"))
        log_event(log, "mkdirs", facts(path="/b"))
        log_event(log, "mkdirs", facts(path="/c"))
    usual, *others = caplog.records
    for before, record in pairwise((usual, *others)):
        assert record.created >= before.created
        assert record.msecs == pytest.approx(record.created % 1 * 1000, abs=1)
    assert [record.getMessage() for record in others] == ["mkdirs"] * 2
    assert [vars(record)["facts"] for record in others] == [{"path": "/b"}, {"path": "/c"}]
    assert vars(others[0]).keys() == vars(usual).keys()


def test_events_of_thousands_below_the_level_or_that_a_filter_drops_are_not_written(
    written: io.StringIO,
) -> None:
    logging.getLogger().handlers[0].addFilter(lambda record: record.getMessage() != "dropped")
    log_event(log, "dropped", facts())
    log.info("dropped")
    log.setLevel("WARNING")
    try:
        log_event(log, "mkdirs", facts(path="/a"))
    finally:
        log.setLevel("NOTSET")
    log.info("kept")
    assert after_the_time(written) == "info dn-1 kept\n"


class SlowReader(io.StringIO):
    """A stream whose reader reads nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.writing = threading.Event()
        self.reads = threading.Event()
        self.writes: list[int] = []

    def write(self, text: str) -> int:
        self.writing.set()
        assert self.reads.wait(60)
        self.writes.append(text.count("\n"))
        return super().write(text)


@pytest.fixture
def slow() -> Iterator[tuple[logging.Logger, SlowReader, logs.BatchHandler]]:
    stream, logger = SlowReader(), logging.Logger("slow")
    handler = logs.BatchHandler(stream)
    logger.addHandler(handler)
    yield logger, stream, handler
    stream.reads.set()
    handler.close()


Slow = tuple[logging.Logger, SlowReader, logs.BatchHandler]


def test_who_logs_does_not_wait_and_no_line_is_lost_or_out_of_order(slow: Slow) -> None:
    logger, stream, handler = slow
    for number in range(5000):
        logger.info("%d", number)
        if number == 2500:
            stream.reads.set()
    handler.close()
    assert stream.getvalue().split() == [str(number) for number in range(5000)]
    assert len(stream.writes) < 100, "lines are written together"


def test_a_line_that_comes_while_others_are_written_does_not_wait_for_the_next_one(
    slow: Slow,
) -> None:
    logger, stream, _ = slow
    logger.info("first")
    wait_until(stream.writing.is_set)
    logger.info("second")
    stream.reads.set()
    wait_until(lambda: stream.getvalue().split() == ["first", "second"])


def test_while_nobody_reads_only_so_many_lines_wait_and_the_rest_is_counted(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LINES_MAX", 10)
    logger, stream, handler = slow
    for number in range(25):
        logger.info("%d", number)
    stream.reads.set()
    handler.close()
    lines = stream.getvalue().splitlines()
    assert lines[:10] == [str(number) for number in range(10)]
    assert lines[10:] == ["15 lines were dropped while nobody read them"]


def test_a_line_is_written_though_no_other_follows(slow: Slow) -> None:
    logger, stream, _ = slow
    stream.reads.set()
    logger.info("alone")
    wait_until(lambda: stream.getvalue() == "alone\n")


def test_a_line_that_cannot_be_formatted_costs_no_other(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logger, stream, handler = slow
    stream.reads.set()
    for words in (("one",), ("%d", "none"), ("two",)):
        logger.info(*words)
    handler.close()
    assert stream.getvalue().split() == ["one", "two"]


def test_arguments_come_into_the_message_in_each_way_that_logging_has(written: io.StringIO) -> None:
    log.info("%s of %d", "one", 2)
    log.info("%(one)s of %(two)d", {"one": 1, "two": 2})
    log.info("100 %")
    assert re.findall("dn-1 (.*)", after_the_time(written)) == ["one of 2", "1 of 2", "100 %"]
