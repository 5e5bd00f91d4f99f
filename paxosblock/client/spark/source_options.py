"""The options of the data source: what users write, parsed once, on the driver.

One table for all four uses. To add an option, add a field to `SparkOptions` and a line to
`OPTIONS`; docs/spark.md lists the same names, which a test compares.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeVar

import msgspec

from paxosblock.base.encoding import json_decoder
from paxosblock.base.replacement import OnFailure, Replacement
from paxosblock.base.settings import did_you_mean
from paxosblock.base.units import DURATIONS, MIB, parse_duration, parse_size
from paxosblock.client.names.as_of import as_of, moment
from paxosblock.client.names.own_hosts import same_hosts
from paxosblock.client.names.url import SCHEME, cluster_addresses, parse_url
from paxosblock.client.spark.job_token import NO_TOKEN, JobToken
from paxosblock.config import ClientConfig, load_config
from paxosblock.errors import ConfigError, InvalidRequestError
from paxosblock.protocol.types import Durability


class Use(enum.Flag):
    """A use of the data source; an option that has no effect there is refused."""

    READ = enum.auto()
    WRITE = enum.auto()
    STREAM_READ = enum.auto()
    STREAM_WRITE = enum.auto()

    READS = READ | STREAM_READ
    WRITES = WRITE | STREAM_WRITE
    ALL = READS | WRITES

    @property
    def label(self) -> str:
        """Such as "streaming write"; "read" where Spark does not tell which."""
        return _LABELS[self]


_LABELS: Final = {
    Use.READ: "batch read",
    Use.WRITE: "batch write",
    Use.STREAM_READ: "streaming read",
    Use.STREAM_WRITE: "streaming write",
    Use.READS: "read",
}


class FileFormat(enum.Enum):
    """The format of the files. The value is what users write."""

    PARQUET = "parquet"
    ARROW = "arrow"
    """Arrow IPC streams; a file may hold several, one after the other."""
    CSV = "csv"
    TEXT = "text"
    """One string column, a line per row."""
    BINARY = "binary"
    """One binary column, its values one after the other."""


class Layout(enum.Enum):
    """The place of the rows of a micro-batch."""

    FILES = "files"
    """New files in the directory `path`."""
    APPEND = "append"
    """The end of the one file `path`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkOptions:
    """The options that a user gave. Planners and tasks get them pickled."""

    path: str
    """The absolute path in the cluster: a directory, or the file of the layout `append`."""
    namenodes: tuple[str, ...]
    """host:port of each NameNode."""
    file_format: FileFormat = FileFormat.PARQUET
    compression: str = ""
    """A codec, "none", or "" for the format's own choice."""
    row_group_bytes: int = 64 * MIB
    """Arrow bytes that one row group of a parquet file is made of; a task holds so much."""
    header: bool = False
    """csv: the first line of each file names the columns."""
    sep: str = ","
    """csv: the character between two fields."""
    multi_line: bool = False
    """csv: quoted values may hold line ends; each file is read by one task."""
    split_bytes: int = 128 * MIB
    """The most that one task reads of a file, approximately."""
    paths: tuple[str, ...] = ()
    """All paths that a batch reads, if `load` got a list; `path` is the first of them."""
    path_column: str = ""
    """The column that holds the path of the file that a row is from; "": none."""
    merge_schema: bool = False
    """parquet, arrow: the columns are those of all files; a column that a file lacks is null."""
    pushdown: bool = False
    """parquet: leave out row groups whose statistics do not meet the query's filters."""
    max_bytes_per_trigger: int = 0
    """The amount that a micro-batch reads, approximately; 0: all there is."""
    max_files_per_trigger: int = 0
    """Number of new files of a directory that a micro-batch reads; 0: all there are."""
    layout: Layout = Layout.FILES
    job_ttl_s: float = DURATIONS["d"] / DURATIONS["s"]
    """Seconds for which the files of a job that was never ended stay; longer than any job may
    take."""
    replication: int = 0
    """Replicas of each block; 0: as the client is configured."""
    durability: Durability | None = None
    """The safety of a task's rows when it ends; None: as the client is configured."""
    on_failure: OnFailure | None = None
    """The fate of a block that loses a DataNode; None: as the client is configured."""
    replace_on_failure: Replacement | None = None
    """The policy by which DataNodes that failed are replaced; None: as the client is configured."""
    retry_for_s: float = -1.0
    """Seconds a call is repeated while no node answers; negative: as the client is configured."""

    access_file: str = ""
    """The file with the cluster's access secret, on each machine; "": as the client is configured.
    """
    tls_cert: str = ""
    """The file with the user's certificate, on each machine; "": as the client is configured."""
    tls_ca: str = ""
    """The file with the authorities of the cluster's certificates, on each machine; "": as the
    client is configured."""
    tls_key: str = ""
    """The file with the certificate's key, on each machine; "": as the client is configured."""
    token: JobToken = NO_TOKEN
    """The token with which tasks come. No option names it."""

    @property
    def roots(self) -> tuple[str, ...]:
        """Return what a batch reads: every path or pattern that was named."""
        return self.paths or (self.path,)

    @property
    def client_config(self) -> ClientConfig:
        """Return the configuration of clients: this process's environment, then these options.

        Raises ConfigError when the environment holds a setting that makes no sense.
        """
        return load_config(
            ClientConfig,
            flags={
                "replication": self.replication or None,
                "durability": self.durability and self.durability.value,
                "on_failure": self.on_failure and self.on_failure.value,
                "replace_on_failure": self.replace_on_failure and self.replace_on_failure.value,
                "access_file": self.access_file or None,
                "tls_cert": self.tls_cert or None,
                "tls_ca": self.tls_ca or None,
                "tls_key": self.tls_key or None,
                "retry_for": f"{self.retry_for_s:f}s" if self.retry_for_s >= 0 else None,
            },
        )


E = TypeVar("E", bound=enum.Enum)


def _member(kind: type[E]) -> Callable[[str], E]:
    def parse(text: str) -> E:
        found = [member for member in kind if member.value == text.strip().lower()]
        if not found:
            raise ConfigError("expected one of " + ", ".join(str(each.value) for each in kind))
        return found[0]

    return parse


def _flag(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise ConfigError("expected true or false")


def _list(text: str) -> tuple[str, ...]:
    """Parse a JSON list, which is what Spark makes of `load` with a list."""
    try:
        paths = json_decoder(tuple[str, ...]).decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError('expected a JSON list of paths, such as ["/a", "/b"]') from error
    if not paths:
        raise ConfigError("expected at least one path")
    return paths


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError("expected a whole number from 1 on")
    return int(text)


def _size(text: str) -> int:
    """Parse a size in bytes: the name says bytes, so a bare number is enough."""
    size = parse_size(f"{text}B" if text.isascii() and text.isdigit() else text)
    if size < 1:
        raise ConfigError('expected a size above zero, such as "64MiB"')
    return size


def _duration(text: str) -> float:
    duration = parse_duration(text)
    if duration <= 0:
        raise ConfigError('expected a duration above zero, such as "1d"')
    return duration


def _moment(text: str) -> str:
    try:
        return moment(text.strip())
    except InvalidRequestError as error:
        raise ConfigError(str(error)) from None


def _separator(text: str) -> str:
    sign = {"\\t": "\t"}.get(text, text)
    if len(sign) != 1 or not sign.isascii() or sign in '"\r\n':
        raise ConfigError("expected one ASCII character, not a quote and not a line end")
    return sign


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name as the documentation spells it (case does not matter), the field of
    `SparkOptions`, the uses it has an effect on, its parser, which raises ConfigError, and the
    formats it has an effect on."""

    name: str
    attribute: str
    uses: Use
    parse: Callable[[str], Any]
    formats: frozenset[FileFormat] = frozenset(FileFormat)


_PARQUET: Final = frozenset({FileFormat.PARQUET})
_COLUMNAR: Final = frozenset({FileFormat.PARQUET, FileFormat.ARROW})
_CSV: Final = frozenset({FileFormat.CSV})

OPTIONS: Final = (
    Option("path", "path", Use.ALL, str),
    Option("paths", "paths", Use.READ, _list),
    Option("asOf", "as_of", Use.READ, _moment),
    Option("namenodes", "namenodes", Use.ALL, cluster_addresses),
    Option("fileFormat", "file_format", Use.ALL, _member(FileFormat)),
    Option("compression", "compression", Use.WRITES, lambda text: text.strip().lower()),
    Option("rowGroupBytes", "row_group_bytes", Use.WRITES, _size, _PARQUET),
    Option("header", "header", Use.ALL, _flag, _CSV),
    Option("sep", "sep", Use.ALL, _separator, _CSV),
    Option("multiLine", "multi_line", Use.READS, _flag, _CSV),
    Option("splitBytes", "split_bytes", Use.READS, _size),
    Option("mergeSchema", "merge_schema", Use.READS, _flag, _COLUMNAR),
    Option(
        "pathColumn", "path_column", Use.READS, str, frozenset(FileFormat) - {FileFormat.BINARY}
    ),
    Option("pushdown", "pushdown", Use.READ, _flag, _PARQUET),
    Option("maxBytesPerTrigger", "max_bytes_per_trigger", Use.STREAM_READ, _size),
    Option("maxFilesPerTrigger", "max_files_per_trigger", Use.STREAM_READ, _count),
    Option("layout", "layout", Use.STREAM_WRITE, _member(Layout)),
    Option("jobTtl", "job_ttl_s", Use.WRITES, _duration),
    Option("replication", "replication", Use.WRITES, _count),
    Option("durability", "durability", Use.WRITES, _member(Durability)),
    Option("onFailure", "on_failure", Use.WRITES, _member(OnFailure)),
    Option("replaceOnFailure", "replace_on_failure", Use.WRITES, _member(Replacement)),
    Option("accessFile", "access_file", Use.ALL, str),
    Option("tlsCert", "tls_cert", Use.ALL, str),
    Option("tlsCa", "tls_ca", Use.ALL, str),
    Option("tlsKey", "tls_key", Use.ALL, str),
    Option("retryFor", "retry_for_s", Use.ALL, _duration),
)

_BY_NAME: Final = {option.name.lower(): option for option in OPTIONS}

OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Options that Spark itself takes and passes on."""
_OF_TABLES: Final = frozenset({"owner", "provider"})
"""Found among the properties of a table whose schema Spark asks for, and nowhere else."""
_NO_TABLES: Final = (
    "a table of Spark's catalog does not tell a Python source its path when it is read; "
    "CREATE TEMPORARY VIEW ... USING paxosblock OPTIONS (path '...') does"
)
_BRACES_ACROSS_NAMES: Final = re.compile(r"\{[^{}]*/[^{}]*\}")


def parse_options(written: Mapping[str, str], use: Use) -> SparkOptions:
    """Parse the options of one use of the data source.

    `path` may be a URL `paxosblock://host:port/path`, which names the NameNodes too; without either
    the environment variable PAXOSBLOCK_NAMENODES of the driver does.

    Raises:
        ConfigError: an option is unknown, has no effect for this use or on files of this format, or
            its value is wrong; no path; no NameNodes. The message starts with the option's name.
            Or Spark is about to make a table.
    """
    if {name.lower() for name in written} >= _OF_TABLES:
        raise ConfigError(f"no tables: {_NO_TABLES}")
    known = list(_known(written, use))
    values = {option.attribute: _parsed(option, text) for option, text in known}
    paths, namenodes = _targets(values)
    if use & Use.READS:
        _refuse_braces_across_names(paths)
    several = paths if len(paths) > 1 else ()
    options = SparkOptions(path=next(iter(paths)), paths=several, namenodes=namenodes, **values)
    for option, _ in known:
        if options.file_format not in option.formats:
            found = options.file_format.value
            raise ConfigError(f"option {option.name!r} has no effect on {found} files")
    return options


def _known(written: Mapping[str, str], use: Use) -> Iterable[tuple[Option, str]]:
    for name, text in written.items():
        if name.lower() in OF_SPARK:
            continue
        option = _BY_NAME.get(name.lower())
        if option is None:
            _refuse_unknown(name, use)
        if not use & option.uses:
            raise ConfigError(f"option {option.name!r} has no effect on a {use.label}")
        yield option, text


def _refuse_unknown(name: str, use: Use) -> NoReturn:
    usable = [option.name for option in OPTIONS if use & option.uses]
    raise ConfigError(f"unknown option {name!r}{did_you_mean(name, usable)}")


def _parsed(option: Option, text: str) -> Any:
    try:
        return option.parse(text)
    except ConfigError as error:
        raise ConfigError(f"option {option.name!r} = {text!r}: {error}") from error


def _targets(values: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Take the paths in the cluster, at least one, and the NameNodes out of `values`."""
    path, several = str(values.pop("path", "")), values.pop("paths", ())
    if path and several:
        raise ConfigError("options 'path' and 'paths': name one of them")
    namenodes: tuple[str, ...] | None = values.pop("namenodes", None)
    at = values.pop("as_of", None)
    found = []
    for each in several or (path,):
        target, namenodes = _target(each, namenodes)
        found.append(as_of(target, at))
    assert namenodes is not None, "one path was looked at, even if it was empty"
    return tuple(found), namenodes


def _refuse_braces_across_names(paths: Iterable[str]) -> None:
    for path in paths:
        if found := _BRACES_ACROSS_NAMES.search(path):
            raise ConfigError(
                f"'{path}': {found[0]} spans directories; give a list of paths instead"
            )


def _target(path: str, namenodes: tuple[str, ...] | None) -> tuple[str, tuple[str, ...]]:
    """Return the path in the cluster and the NameNodes, each from the option that has it."""
    if path.startswith(SCHEME):
        url = parse_url(path)
        if namenodes is not None and not same_hosts(url.namenodes, namenodes):
            raise ConfigError(
                f"the path {path!r} and {', '.join(namenodes)} (option 'namenodes', or another "
                "path) name different clusters"
            )
        path, namenodes = url.path, namenodes or url.namenodes
    if not path:
        raise ConfigError(f"option 'path' is missing, a path in the cluster; {_NO_TABLES}")
    if not path.startswith("/"):
        raise ConfigError(f"option 'path' = {path!r}: expected an absolute path")
    path = "/" + "/".join(name for name in path.split("/") if name)
    return path, cluster_addresses(None) if namenodes is None else namenodes
