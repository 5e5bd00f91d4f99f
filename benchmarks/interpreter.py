"""The build of this Python: `make` and the suite prefer one that was optimised by profiles.

    python benchmarks/interpreter.py    # prints it; exit code 1 if it was built without profiles

Python's code that calls other Python code, as a NameNode's does, takes a quarter to a half longer
on one that was built without (benchmarks/README.md). `make` runs this file on each Python it finds,
before anything is installed, so it imports the standard library alone.
"""

from __future__ import annotations

import platform
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SYSTEM_PREFIX: Final = "/usr"
"""The Python of a distribution. Debian's rules build with profiles and LTO, and take both out of
what `sysconfig` tells, so that other programs are not built so."""

PROFILED, LINKED = "--enable-optimizations", "--with-lto"

HINT: Final = (
    f"this Python was built without {PROFILED}: on one with it calls cost a NameNode less; "
    "`make PYTHON=/path/to/python3 VENV=.venv-fast bench` takes another one"
)


@dataclass(frozen=True, slots=True)
class Build:
    """The build of a Python, as it tells it."""

    name: str
    """Such as "CPython 3.13.5"."""
    profiled: bool
    """Compiled with profiles of its own work; of a distribution's it is taken for granted."""
    linked: bool
    """Optimised across its files when linked, as it says."""
    distribution: bool
    """Made by the distribution of the machine."""
    free_threaded: bool

    @property
    def how(self) -> str:
        """Return how it was made, as a record tells it."""
        if self.distribution:
            made = "the distribution's"
        else:
            profiled = "with profiles" if self.profiled else "without profiles"
            made = f"built {profiled}, {'with LTO' if self.linked else 'without LTO'}"
        return f"free-threaded, {made}" if self.free_threaded else made

    def __str__(self) -> str:
        """Return it in a line."""
        return f"{self.name}, {self.how}"

    @property
    def hint(self) -> str:
        """Return what to do for higher figures; nothing if it was built with profiles."""
        return "" if self.profiled else HINT


def this_build() -> Build:
    """Return how the Python that runs this was built."""
    name = f"{platform.python_implementation()} {platform.python_version()}"
    return build_of(name, sys.base_prefix, sysconfig.get_config_vars())


def build_of(name: str, prefix: str, told: Mapping[str, object]) -> Build:
    """Return how a Python was built that lies below `prefix` and tells these variables."""
    options = str(told.get("CONFIG_ARGS") or "")
    return Build(
        name=name,
        profiled=PROFILED in options or prefix == SYSTEM_PREFIX,
        linked=f"{LINKED}=no" not in options and LINKED in options,
        distribution=prefix == SYSTEM_PREFIX,
        free_threaded=bool(told.get("Py_GIL_DISABLED")),
    )


def main() -> int:
    """Print how this Python was built; return 1 if it is slower than it need be."""
    build = this_build()
    sys.stdout.write(f"{build}\n")
    return 0 if build.profiled else 1


if __name__ == "__main__":
    sys.exit(main())
