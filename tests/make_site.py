"""Build the site of the documents into build/site: `make site`. Needs no network.

The documents stand beside what they describe. They are put together as they stand, with the source
files that they link to, so that every link works; one that does not is an error.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.make_api import REPOSITORY

SOURCE: Final = REPOSITORY / "build" / "site-source"
SITE: Final = REPOSITORY / "build" / "site"
LINK: Final = re.compile(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")


def stage(target: Path) -> None:
    """Copy every document, and what documents link to, to the same place below `target`."""
    tracked = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    documents = [Path(name) for name in tracked.stdout.splitlines()]
    wanted = set(documents)
    for document in documents:
        text = (REPOSITORY / document).read_text(encoding="utf-8")
        found = ((REPOSITORY / document.parent / link).resolve() for link in LINK.findall(text))
        wanted |= {path.relative_to(REPOSITORY) for path in found if path.is_file()}
    for path in wanted:
        (target / path.parent).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / path, target / path)


def main() -> int:
    """Build it; return the exit code."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    stage(SOURCE)
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
    code = subprocess.run(build, cwd=REPOSITORY, check=False).returncode
    if code == 0:
        sys.stdout.write(f"{SITE / 'index.html'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
