"""What pyproject.toml cannot say: links that lead somewhere on an index, and raftos in the wheel.

The README's links are relative, for a checkout. An index knows no checkout, so a build turns them
into addresses below `PROJECT_URL`, at the tag of the version, and gives the project's addresses;
without `PROJECT_URL` it leaves their words alone. `make dist PROJECT_URL=...` makes what is to be
published.

No metadata can name raftos, which NameNodes need: pip cannot resolve what it requires. So a
build puts its modules and their licence into the wheel, from the folder `RAFTOS` in which it is
installed; they are not in the repository. Without `RAFTOS` a wheel has none, and
`paxosblock setup raft` installs it.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
RELATIVE_LINK = re.compile(r"(!?)\[([^\]]+)\]\((?!https?://|#)([^)\s]+)\)")

RAFTOS_SHA256 = "95422e23c66a5f3e9892c5734e5ec142961a5ef2c67ace2974b75de8e0323b2c"
"""Of the modules and the licence in the sdist of raftos 0.2.6 that PyPI has: nothing else goes into
a wheel."""


class BuildWithRaftos(build_py):
    """Copies the modules of the package with its documents, and those of raftos beside them."""

    def run(self) -> None:
        """Copy; an editable install takes what its environment and the checkout have."""
        super().run()
        if self.editable_mode:
            return
        documents = Path(self.build_lib, "paxosblock", "documents")
        documents.mkdir(exist_ok=True)
        for page in sorted((ROOT / "docs").glob("*.md")):
            (documents / page.name).write_bytes(page.read_bytes())
        source = os.environ.get("RAFTOS")
        if source:
            target = Path(self.build_lib, "raftos")
            target.mkdir(exist_ok=True)
            for name, data in raftos_files(Path(source)).items():
                (target / name).write_bytes(data)


def raftos_files(site_packages: Path) -> dict[str, bytes]:
    """Return the modules of the raftos that is installed there and its licence, by name."""
    licences = site_packages.glob("raftos-*.dist-info/**/LICENSE")
    paths = [*site_packages.glob("raftos/*.py"), *licences]
    files = {path.name: path.read_bytes() for path in sorted(paths, key=lambda path: path.name)}
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(f"{name} {len(data)}\n".encode() + data)
    if digest.hexdigest() != RAFTOS_SHA256:
        raise SystemExit(f"RAFTOS={site_packages}: has not the files of raftos 0.2.6 as published")
    return files


def index_page(readme: str, tree: str | None) -> str:
    """Return the README with links below the address `tree`; with None, their words alone."""
    return RELATIVE_LINK.sub(rf"\1[\2]({tree}/\3)" if tree else r"\2", readme)


def project_urls(address: str, tree: str) -> dict[str, str]:
    """Return the addresses that an index shows beside the page, by label."""
    return {
        "Homepage": address,
        "Documentation": f"{tree}/docs/tutorial.md",
        "Changelog": f"{tree}/CHANGELOG.md",
        "Issues": f"{address}/issues",
    }


def project_address() -> str | None:
    """Return `PROJECT_URL` without a slash at its end; None when it is not set."""
    address = os.environ.get("PROJECT_URL", "").rstrip("/")
    if address and not re.fullmatch(r"https?://[^\s/]+/\S+", address):
        raise SystemExit(
            f"PROJECT_URL={address}: give the repository's address, https://HOST/OWNER/NAME"
        )
    return address or None


version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
address = project_address()
tree = f"{address}/blob/v{version}" if address else None
setup(
    cmdclass={"build_py": BuildWithRaftos},
    long_description=index_page((ROOT / "README.md").read_text(encoding="utf-8"), tree),
    long_description_content_type="text/markdown",
    project_urls=project_urls(address, tree) if address and tree else {},
)
