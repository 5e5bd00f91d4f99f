"""README.md and docs/tutorial.md, word by word, in an environment that is empty: `make newcomer`.

A new environment gets the package from this checkout by the words of the pages, and a shell that
knows nothing of ours types the rest of them. The ports of a new cluster must be free.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.revisions import checkout
from tests.services.test_tutorial import Shell, Step, pattern, steps

OURS: Final = ("PAXOSBLOCK", "PYTHON", "VIRTUAL_ENV")
"""The beginnings of variables that a newcomer does not have."""


def environment(bin_folder: Path) -> dict[str, str]:
    """Return the variables of a newcomer who has activated an environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return kept | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}


@contextmanager
def shell_in(folder: Path, bin_folder: Path) -> Iterator[Shell]:
    """Yield a shell in which a cluster is taken down at the end, if it was not."""
    shell = Shell(folder, environment(bin_folder))
    try:
        yield shell
    finally:
        shell.run("paxosblock cluster down")
        shell.close()


class Newcomer:
    """One who has a checkout, an environment with nothing in it, and a folder of their own."""

    def __init__(self, shell: Shell, checkout: Path, folder: Path) -> None:
        self._shell, self._checkout, self._folder = shell, checkout, folder

    def read(self, page: str) -> None:
        """Do what a page says. Raises SystemExit where it shows something else than there is."""
        text = (self._checkout / page).read_text(encoding="utf-8")
        # README says in a block what the tutorial says in a sentence: how to install a checkout.
        if said := re.search(r"`(pip install '\.[^`]+)`,\s+then\s+`([^`]+)`", text):
            for source in said.groups():
                self._type(page, Step(text.count("\n", 0, said.start()) + 1, source))
        for step in steps(text):
            if not step.source.startswith("pip install paxosblock "):  # from an index
                self._type(page, step)

    def _type(self, page: str, step: Step) -> None:
        source = step.source
        if step.python:
            (self._folder / "step.py").write_text(source)
            source = "python step.py"
        where = self._checkout if "pip install" in source else self._folder
        began_s = time.monotonic()
        printed = self._shell.run(f"cd '{where}'\n{source}\ncode=$?")
        took_s = time.monotonic() - began_s
        sys.stdout.write(f"{took_s:6.1f} s  {page}:{step.line}  {source}\n")
        sys.stdout.flush()
        compared = re.sub(r"^\w+: waiting: .*\n", "", printed, flags=re.MULTILINE)
        failed = self._shell.run("echo $code").strip() != "0"
        as_shown = re.fullmatch(pattern(step.output), compared) if step.output else not failed
        if "Traceback" in printed or not as_shown:
            raise SystemExit(f"{page}, at line {step.line}: {source}\nprinted:\n{printed}")


def main() -> None:
    """Read both pages, each in an environment of its own."""
    with tempfile.TemporaryDirectory() as place:
        ours = checkout("HEAD", Path(place, "checkout"))
        for page in ("README.md", "docs/tutorial.md"):
            folder = Path(place, Path(page).stem)
            subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
            (folder / "notes.txt").write_text("what a newcomer has to note\n")
            with shell_in(folder, folder / "env" / "bin") as shell:
                Newcomer(shell, ours, folder).read(page)


if __name__ == "__main__":
    main()
