"""Fetches peers from where their makers publish them, by the ordinary clients of Maven and of Go.

Everything goes to a cache of the user (`$XDG_CACHE_HOME/paxosblock/peers`), once; none of it
belongs to this project. If this machine lacks something that a peer needs, a `SkipError` says so in
one line.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.host import progress
from benchmarks.suite import SkipError

LOADS: Final = Path(__file__).parent / "load"
FETCH_TIMEOUT_S: Final = 900.0
GO_AT: Final = "/usr/local/go/bin/go"
"""Go's own packages put it there, and PATH often lacks that folder."""

_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>benchmarks</groupId><artifactId>peer</artifactId><version>1</version>
<packaging>pom</packaging>
<dependencies>
{dependencies}
</dependencies>
</project>
"""
_DEPENDENCY: Final = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}"
    "</dependency>"
)
_ALONE: Final = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


LOG4J2: Final = """<Configuration><Appenders><Console name="c" target="SYSTEM_ERR">
<PatternLayout pattern="%d %p %c: %m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="c"/></Root></Loggers></Configuration>
"""
"""The configuration of log4j 2 by which a peer of Java says on stderr what went wrong."""


@dataclass(frozen=True, slots=True)
class Jars:
    """A peer of Java: its jars as Maven finds them, and our load on it, compiled beside them."""

    name: str
    version: str
    coordinates: tuple[str, ...]
    """Such as "org.apache.hadoop:hadoop-hdfs:3.4.2"."""
    load: str = ""
    """The class with our load's `main`; its file and Load.java are compiled. None by default."""
    alone: tuple[str, ...] = ()
    """Coordinates of jars that come without those that they need."""

    @property
    def sources(self) -> list[Path]:
        """Return the files of our load."""
        return [LOADS / "Load.java", LOADS / f"{self.load}.java"] if self.load else []

    @property
    def pom(self) -> str:
        """Return the POM for Maven."""
        wanted = [(each, "") for each in self.coordinates] + [(each, _ALONE) for each in self.alone]
        lines = (_DEPENDENCY.format(*each.split(":"), but) for each, but in wanted)
        return _POM.format(dependencies="\n".join(lines))

    def fetched(self, cache: Path | None = None) -> Path:
        """Return the folder with `lib` and `classes`, which is made when it is not there.

        Raises:
            SkipError: a tool is missing, or the repository did not answer.
        """
        parts = (self.pom.encode(), *(source.read_bytes() for source in self.sources))
        target = (cache or cache_folder()) / f"{self.name}-{self.version}-{digest(parts)}"
        if not target.exists():
            maven = need(self.name, "mvn")
            javac = need(self.name, "javac") if self.sources else ""
            progress(f"{self.name}: fetching {self.version} with mvn, once")
            with _making(target) as made:
                (made / "pom.xml").write_text(self.pom)
                self._run([maven, "-B", "-q", "dependency:copy-dependencies"], made)
                (made / "target" / "dependency").rename(made / "lib")
                if sources := [os.fspath(source) for source in self.sources]:
                    compiled = ["-cp", f"{made}/lib/*", "-d", f"{made}/classes"]
                    self._run([javac, *compiled, *sources], made)
        return target

    def _run(self, command: Sequence[str], folder: Path) -> None:
        run(f"{self.name} {self.version}", command, folder)


@dataclass(frozen=True, slots=True)
class GoPrograms:
    """Peers of Go: servers, or our load on them, or both, built as one module."""

    name: str
    loads: tuple[str, ...]
    """The files of our load beside `main.go`."""
    requirements: tuple[str, ...]
    """Such as "go.etcd.io/etcd/server/v3@v3.6.16"."""
    programs: Mapping[str, str]
    """The package of each program, "." is our load."""

    def fetched(self, cache: Path | None = None) -> Path:
        """Return the folder with the programs; made and raising as `Jars.fetched`."""
        sources = [LOADS / "main.go", *(LOADS / each for each in self.loads)]
        parts = (
            *(text.encode() for text in (*self.requirements, *self.programs)),
            *(source.read_bytes() for source in sources),
        )
        target = (cache or cache_folder()) / f"go-{digest(parts)}"
        if not target.exists():
            go = need(self.name, "go", GO_AT)
            progress(f"{self.name}: fetching and building with go, once; this takes minutes")
            with _making(target) as made:
                for source in sources:
                    shutil.copy(source, made)
                for command in (
                    ["mod", "init", "paxosblock/peers"],
                    *([["get", *self.requirements]] if self.requirements else []),
                    *(
                        ["build", "-o", os.fspath(made / "bin" / program), package]
                        for program, package in self.programs.items()
                    ),
                ):
                    run(self.name, [go, *command], made)
        return target / "bin"


def cache_folder() -> Path:
    """Return where all of them are kept."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(root) / "paxosblock" / "peers"


def digest(parts: Sequence[bytes]) -> str:
    """Return a short name for these contents: what is made of others is made anew."""
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def need(peer: str, tool: str, otherwise: str = "") -> str:
    """Return the path of a program. Raises SkipError: it is not installed."""
    found = shutil.which(tool) or shutil.which(otherwise)
    if found is None:
        raise SkipError(f"{peer} needs `{tool}`, which is not installed")
    return found


def run(name: str, command: Sequence[str], folder: Path) -> str:
    """Run one step in a folder; return its output. Raises SkipError, with what it said."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=FETCH_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise SkipError(f"{name}: {_step(command)} took over {FETCH_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        words = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        reason = next((line for line in words if "ERROR" in line), words[-1] if words else "")
        raise SkipError(f"{name}: {_step(command)} failed: {reason.strip() or done.returncode}")
    return done.stdout


def _step(command: Sequence[str]) -> str:
    return f"`{Path(command[0]).name} {next((x for x in command[1:] if x[0] != '-'), '')}`".strip()


@contextlib.contextmanager
def _making(target: Path) -> Iterator[Path]:
    """Yield a folder that gets its name once it is whole: a fetch that was cut off leaves none."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="making-", dir=target.parent) as name:
        made = Path(name) / "made"
        made.mkdir()
        yield made
        if not target.exists():
            made.rename(target)
