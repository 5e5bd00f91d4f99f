"""Logs of a node: one line per event, `time level node message key=value ...`.

The facts of an event go into `extra`, so that they stay apart from its words::

    log.info("block recovered", extra=facts(block=7, generation=3))

An error is what costs data or service unless an operator acts, a warning what may come to that, as
a node that is dead. At level info a node tells what changes names, and what is not usual; what is
done for each file that is written, read or removed, step by step, is for debug.
"""

from __future__ import annotations

import enum
import functools
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol, TextIO

from paxosblock.errors import ConfigError, OutcomeUnknownError, PaxosBlockError


class LogLevel(enum.Enum):
    """The least of what a node logs."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LineForm(enum.Enum):
    """The form of a line."""

    TEXT = "text"
    JSON = "json"


JOURNAL_VARIABLE: Final = "JOURNAL_STREAM"
"""By it systemd names the device and inode of the journal's end of standard error."""
GATHER_S: Final = 0.02
"""Lines of this many seconds are written together, unless a handler says otherwise."""
LINES_MAX: Final = 100_000
"""Lines that wait to be written."""

_STANDARD: Final = (1, 2)
"""The descriptors of standard output and error."""

_FACTS: Final = "facts"
_ASKED: Final = "asked"
_NO_FACTS: Final[Mapping[str, object]] = MappingProxyType({})

Asked = Callable[[], Mapping[str, object]]
"""Returns the facts of the caller that asked for what is being done at this moment."""


def facts(**values: object) -> dict[str, dict[str, object]]:
    """Return the `extra` of a log call: facts that are printed as `key=value` after the message.

    One that is None is none.
    """
    return {_FACTS: values}


def log_event(
    log: logging.Logger,
    message: str,
    extra: dict[str, dict[str, object]],
    level: int = logging.INFO,
) -> None:
    """Log as `log.log(level, message, extra=extra)` does, for events that come by thousands in a
    second.

    What a record's usual way finds out of each call is the same for all of them.
    """
    if log.isEnabledFor(level):
        record = logging.LogRecord.__new__(logging.LogRecord)
        vars(record).update(_usual(log.name, message, level), **extra)
        stamp(record)
        log.handle(record)


def stamp(record: logging.LogRecord) -> None:
    """Say that a record is of this moment."""
    created = time.time()
    record.created, record.msecs = created, created % 1 * 1000


@functools.lru_cache(256)
def _usual(name: str, message: str, level: int) -> dict[str, object]:
    """Return what all records of one event have in common."""
    return vars(logging.LogRecord(name, level, "", 0, message, (), None))


def error_for_peer(error: BaseException, what: str, log: logging.Logger) -> PaxosBlockError:
    """Return the error that a peer is told when `what` failed with `error`.

    One that was not raised on purpose is our own mistake: it goes to `log`, and the peer is told
    so.
    """
    if isinstance(error, PaxosBlockError):
        return error
    log.error("%s failed", what, exc_info=error)
    return OutcomeUnknownError("internal error; the node's log tells more")


def set_up_logs(
    node: str,
    level: LogLevel = LogLevel.INFO,
    out: TextOutput | None = None,
    form: LineForm = LineForm.TEXT,
    asked: Asked | None = None,
    *,
    batched: bool = True,
) -> None:
    """Send what this process, which runs `node`, logs to `out`; None: to standard error, with the
    priorities of systemd's journal if it is that.

    `asked` tells for whom a line is; it is called where that is logged. A process that forks others
    has one thread, so its lines are not `batched`: they are written where they are logged.
    """
    handler: logging.Handler
    if batched:
        handler = BatchHandler(out or sys.stderr, asked)
    else:
        handler = logging.StreamHandler(out or sys.stderr)
    formatter = JsonFormatter(node) if form is LineForm.JSON else LineFormatter(node)
    journal = out is None and _is_journal(sys.stderr)
    handler.setFormatter(JournalFormatter(formatter) if journal else formatter)
    logging.basicConfig(level=level.value.upper(), handlers=[handler], force=True)
    # A NameNode logs every change of a name; facts that no line shows need not be found out each
    # time: thread, process, and (the documented way to leave it out) the caller's place in the
    # source.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None


def _is_journal(stream: TextIO) -> bool:
    """True if systemd's journal reads `stream` (systemd.exec(5), JOURNAL_STREAM)."""
    with suppress(OSError, ValueError):
        seen = os.fstat(stream.fileno())
        return os.environ.get(JOURNAL_VARIABLE) == f"{seen.st_dev}:{seen.st_ino}"
    return False


class TextOutput(Protocol):
    """The place that lines are written to: a text stream, or a `RotatedFile`."""

    def write(self, text: str, /) -> object:
        """Take text."""

    def flush(self) -> None:
        """Hand the text on to the operating system."""


class RotatedFile:
    """A file to which text is added, until it is long: then it becomes FILE.1, that FILE.2 and so
    on, and another one begins. It is opened again after an error, when there is text to write.

    Standard output or error of this process that goes to the same file goes on in the other one,
    too.
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
        before = self._file.stat()
        names = [self._file, *(Path(f"{self._file}.{age}") for age in range(1, self._older + 1))]
        for younger, older in reversed([*pairwise(names)]):
            with suppress(FileNotFoundError):
                younger.replace(older)
        if not self._older:
            self._file.unlink()
        self._out = self._opened()
        os.fchmod(self._out.fileno(), before.st_mode & 0o777)
        for descriptor in _STANDARD:
            with suppress(OSError):  # it may be closed
                if os.path.samestat(os.fstat(descriptor), before):
                    os.dup2(self._out.fileno(), descriptor)


class BatchHandler(logging.Handler):
    """Writes lines in batches, in a thread of its own: a busy node logs thousands in a second, and
    its event loop does not wait for them.

    While no program reads what is written, as with a pipe, `LINES_MAX` lines wait; when one reads
    again, a line says how many more there were. Another says how many could not be written, as to a
    disk that was full.
    """

    def __init__(
        self, stream: TextOutput, asked: Asked | None = None, *, gather_s: float = GATHER_S
    ) -> None:
        """Write to `stream`, which stays open when this closes, beside each line what `asked` tells
        where it is logged; the lines of `gather_s` seconds are written together.
        """
        super().__init__()
        self._gather_s = gather_s
        self._stream, self._asked = stream, asked
        self._lost, self._why_lost = 0, ""
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
        """Take a line, which is written within `gather_s` or so."""
        if len(self._waiting) >= LINES_MAX:
            self._dropped += 1
            return
        if self._asked is not None:
            vars(record)[_ASKED] = self._asked()
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
                lines.append(self._said(f"{dropped} lines were dropped while nobody read them"))
            if self._lost and lines:
                lines.insert(0, self._said(f"{self._lost} lines were lost: {self._why_lost}"))
            try:
                if lines:
                    self._stream.write("".join(lines))
                    self._stream.flush()
                    self._lost = 0
            except OSError as error:
                self._lost += len(records)
                self._why_lost = error.strerror or str(error)
            except Exception:
                self.handleError(records[-1])
            finally:
                del self._waiting[: len(records)]  # what came meanwhile stays

    def _said(self, text: str) -> str:
        """Return a line of its own about the others."""
        return self._line(logging.LogRecord(__name__, logging.WARNING, "", 0, text, (), None))

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
            self._closing.wait(self._gather_s)
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
        known = _known(self, record)
        pairs = "".join([f" {key}={_quoted(value)}" for key, value in known.items()])
        message = one_line(record.getMessage())
        return f"{_time(record)} {record.levelname.lower()} {self._node} {message}{pairs}"


class JsonFormatter(logging.Formatter):
    """Formats an event as one line of JSON: an object with its time, level, node and message, and
    each fact beside them; one that is called like these has a `_` behind its name.
    """

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """`record` as an object; a traceback is the fact `traceback`."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "node": self._node,
            "message": record.getMessage(),
        }
        for key, value in _known(self, record).items():
            plain = value if isinstance(value, (bool, int, float)) else str(value)
            line[f"{key}_" if key in line else key] = plain
        text = json.dumps(line, ensure_ascii=False)
        return text if text.isprintable() else json.dumps(line)


class JournalFormatter(logging.Formatter):
    """Puts before the line of another formatter what tells systemd's journal its priority
    (sd-daemon(3))."""

    def __init__(self, of_line: logging.Formatter) -> None:
        super().__init__()
        self._of_line = of_line

    def format(self, record: logging.LogRecord) -> str:
        """`record` as a line, with `<4>` for a warning, and so on."""
        level = record.levelno
        urgent = 3 if level >= logging.ERROR else 4 if level >= logging.WARNING else 6
        return f"<{7 if level < logging.INFO else urgent}>{self._of_line.format(record)}"


def _known(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, object]:
    """Return the facts of an event: its own, then whose request it belongs to."""
    told = vars(record)
    asked: Mapping[str, object] = told.get(_ASKED, _NO_FACTS)
    known = {**told.get(_FACTS, _NO_FACTS)}
    for key, value in asked.items():
        known.setdefault(key, value)
    if record.exc_info:
        known["traceback"] = formatter.formatException(record.exc_info)
    return {key: value for key, value in known.items() if value is not None}


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
