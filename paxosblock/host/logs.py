"""Logs of a node: one line per event, `time level node message key=value ...`.

The facts of an event go into `extra`, so that they stay apart from its words::

    log.info("block recovered", extra=facts(block=7, generation=3))
"""

from __future__ import annotations

import functools
import json
import logging
import sys
import threading
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, Protocol, TextIO

from paxosblock.errors import ConfigError, OutcomeUnknownError, PaxosBlockError

LEVELS: Final = ("debug", "info", "warning", "error")

GATHER_S: Final = 0.02
"""Lines of this many seconds are written together."""
LINES_MAX: Final = 100_000
"""Lines that wait to be written."""

_FACTS: Final = "facts"


def facts(**values: object) -> dict[str, dict[str, object]]:
    """Return the `extra` of a log call: facts that are printed as `key=value` after the message."""
    return {_FACTS: values}


def log_event(log: logging.Logger, message: str, extra: dict[str, dict[str, object]]) -> None:
    """Log as `log.info(message, extra=extra)` does, for events that come by thousands in a second.

    What a record's usual way finds out of each call is the same for all of them.
    """
    if log.isEnabledFor(logging.INFO):
        record = logging.LogRecord.__new__(logging.LogRecord)
        created = time.time()
        vars(record).update(_usual(log.name, message), **extra)
        record.created, record.msecs = created, created % 1 * 1000
        log.handle(record)


@functools.lru_cache(256)
def _usual(name: str, message: str) -> dict[str, object]:
    """Return what all records of one event have in common."""
    return vars(logging.LogRecord(name, logging.INFO, "", 0, message, (), None))


def error_for_peer(error: BaseException, what: str, log: logging.Logger) -> PaxosBlockError:
    """Return the error that a peer is told when `what` failed with `error`.

    One that was not raised on purpose is our own mistake: it goes to `log`, and the peer is told
    so.
    """
    if isinstance(error, PaxosBlockError):
        return error
    log.error("%s failed", what, exc_info=error)
    return OutcomeUnknownError("internal error; the node's log tells more")


def set_up_logs(node: str, level: str = "info", stream: TextIO | None = None) -> None:
    """Send what this process, which runs `node`, logs to `stream` (default: standard error).

    `level` is one of `LEVELS`; anything else raises ConfigError.
    """
    if level not in LEVELS:
        raise ConfigError(f"log level {level!r}: expected one of {', '.join(LEVELS)}")
    handler = BatchHandler(stream or sys.stderr)
    handler.setFormatter(LineFormatter(node))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # A NameNode logs every change of a name; facts that no line shows need not be found out each
    # time: thread, process, and (the documented way to leave it out) the caller's place in the
    # source.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None


class TextOutput(Protocol):
    """The place that lines are written to: a text stream, or a `RotatedFile`."""

    def write(self, text: str, /) -> object:
        """Take text."""

    def flush(self) -> None:
        """Hand the text on to the operating system."""


class RotatedFile:
    """A file to which text is added, until it is long: then it becomes FILE.1, that FILE.2 and so
    on, and another one begins. It is opened again after an error, when there is text to write.
    """

    def __init__(self, file: Path, bytes_max: int, files: int) -> None:
        """Keep `files` files, the one that is being written among them.

        Raises:
            ConfigError: it cannot be written.
        """
        self._file, self._bytes_max, self._older = file, bytes_max, files - 1
        try:
            self._out: TextIO | None = self._opened()
        except OSError as error:
            raise ConfigError(f"'{file}': {error.strerror or error}") from error

    def write(self, text: str, /) -> None:
        """Add text. Raises OSError."""
        if self._out is None:
            self._out = self._opened()
        self._out.write(text)

    def flush(self) -> None:
        """Hand the text on to the operating system, and begin another file if it is time to.

        Raises:
            OSError: a disk is full or failed.
        """
        if (out := self._out) is not None:
            self._out = None
            out.flush()
            if out.tell() < self._bytes_max:
                self._out = out
                return
            out.close()
            self._rotate()

    def close(self) -> None:
        """Close it; text that comes later opens it again."""
        if self._out is not None:
            self._out.close()
            self._out = None

    def _opened(self) -> TextIO:
        return self._file.open("a", encoding="utf-8", errors="backslashreplace")

    def _rotate(self) -> None:
        names = [self._file, *(Path(f"{self._file}.{age}") for age in range(1, self._older + 1))]
        for younger, older in reversed([*pairwise(names)]):
            with suppress(FileNotFoundError):
                younger.replace(older)
        if not self._older:
            self._file.unlink()


class BatchHandler(logging.Handler):
    """Writes lines in batches, in a thread of its own: a busy node logs thousands in a second, and
    its event loop does not wait for them.

    While no program reads what is written, as with a pipe, `LINES_MAX` lines wait; when one reads
    again, a line says how many more there were.
    """

    def __init__(self, stream: TextOutput) -> None:
        """Write to `stream`, which stays open when this closes."""
        super().__init__()
        self._stream = stream
        self._waiting: list[logging.LogRecord] = []
        self._dropped = 0
        self._some = threading.Event()
        self._closing = threading.Event()
        self._writing = threading.Lock()
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()

    def handle(self, record: logging.LogRecord) -> bool:
        """Take a line that no filter keeps back; `emit` needs no lock."""
        passes = not self.filters or bool(self.filter(record))
        if passes:
            self.emit(record)
        return passes

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line, which is written within `GATHER_S` or so."""
        if len(self._waiting) >= LINES_MAX:
            self._dropped += 1
            return
        self._waiting.append(record)
        if not self._some.is_set():
            self._some.set()

    def flush(self) -> None:
        """Write all that waits."""
        with self._writing:
            records = self._waiting[:]
            lines = [self._line(record) for record in records]
            if dropped := self._dropped:
                self._dropped -= dropped
                text = f"{dropped} lines were dropped while nobody read them"
                late = logging.LogRecord(__name__, logging.WARNING, "", 0, text, (), None)
                lines.append(self._line(late))
            try:
                if lines:
                    self._stream.write("".join(lines))
                    self._stream.flush()
            except Exception:
                self.handleError(records[-1])
            finally:
                del self._waiting[: len(records)]  # what came meanwhile stays

    def _line(self, record: logging.LogRecord) -> str:
        """Return its line; "" for one that cannot be formatted, so that the others are not lost
        with it.
        """
        try:
            return f"{self.format(record)}\n"
        except Exception:
            self.handleError(record)
            return ""

    def close(self) -> None:
        """Write what waits, and end the thread."""
        if not self._closing.is_set():
            self._closing.set()
            self._some.set()
            self._thread.join()
        super().close()

    def _write(self) -> None:
        while not self._closing.is_set():
            self._some.wait()
            self._closing.wait(GATHER_S)
            self._some.clear()
            self.flush()
        self.flush()


class LineFormatter(logging.Formatter):
    """Formats one line per event, whatever is in it: a line break in a fact cannot fake a second
    event.
    """

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """`record` as one line; a traceback follows as the fact `traceback`, escaped."""
        known: dict[str, object] = getattr(record, _FACTS, {})
        if record.exc_info:
            known = {**known, "traceback": self.formatException(record.exc_info)}
        pairs = "".join([f" {key}={_quoted(value)}" for key, value in known.items()])
        message = one_line(record.getMessage())
        return f"{_time(record)} {record.levelname.lower()} {self._node} {message}{pairs}"


def _time(record: logging.LogRecord) -> str:
    """UTC, to the millisecond, so that the lines of several nodes can be merged."""
    return f"{_second(int(record.created))}.{int(record.msecs):03d}Z"


@functools.lru_cache(1)
def _second(since_epoch: int) -> str:
    """A busy node logs thousands of lines in the same second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since_epoch))


def one_line(text: str) -> str:
    """Return a text as it can stand in a line: what is no printable character is escaped."""
    return text if text.isprintable() else json.dumps(text)[1:-1]


def _quoted(value: object) -> str:
    text = str(value)
    if text.isprintable() and '"' not in text:
        if text and not (" " in text or "=" in text):
            return text
        if "\\" not in text:
            return f'"{text}"'
    return json.dumps(text, ensure_ascii=not text.isprintable())
