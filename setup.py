"""What a package index shows, as far as pyproject.toml cannot say it: links that lead somewhere.

The README's links are relative, for a checkout. An index knows no checkout, so a build turns them
into addresses below `PROJECT_URL`, at the tag of the version, and gives the project's addresses;
without `PROJECT_URL` it leaves their words alone. `make dist PROJECT_URL=...` makes what is to be
published.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
RELATIVE_LINK = re.compile(r"(!?)\[([^\]]+)\]\((?!https?://|#)([^)\s]+)\)")


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
    long_description=index_page((ROOT / "README.md").read_text(encoding="utf-8"), tree),
    long_description_content_type="text/markdown",
    project_urls=project_urls(address, tree) if address and tree else {},
)
