"""Headless Chromium for tests and pictures of the pages: Debian's, driven by Playwright.

`make bootstrap` brings Playwright and axe-core, and no browser, which comes from the system:
`apt-get install chromium`. Nothing is loaded from elsewhere.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from paxosblock.host.user import claimed_user

CHROMIUM: Final = shutil.which("chromium") or ""
PATIENCE_MS: Final = 60_000
"""Milliseconds that a page may take on a machine that others use."""
_AXE: Final = "axe_playwright_python"
_QUIET: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
)
_PARTS: Final = {"playwright": "playwright", _AXE: "axe-playwright-python", "chromium": "chromium"}


def missing() -> str:
    """Return what is not on this machine, and is needed to open a page; empty if all is there."""
    here = {name for name in ("playwright", _AXE) if importlib.util.find_spec(name)}
    here |= {"chromium"} if CHROMIUM else set()
    return ", ".join(package for name, package in _PARTS.items() if name not in here)


def axe_core() -> str:
    """Return the program that checks whether all people can use a page."""
    found = importlib.util.find_spec(_AXE)
    assert found is not None
    assert found.origin is not None
    return (Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8")


@contextmanager
def chromium() -> Iterator[Any]:
    """Start a browser for this block; the thread can run no other event loop meanwhile."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it may be missing

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=list(_QUIET), timeout=PATIENCE_MS
        )
        yield browser
        browser.close()


@contextmanager
def window(browser: Any, *, named: bool = True, **options: Any) -> Iterator[Any]:
    """Open a page for this block, as the user who may see all, or as one without a name.

    `options` are Playwright's. What the page's policy for content forbids, axe-core may do.
    """
    headers: Mapping[str, str] = {"Access-User": claimed_user()} if named else {}
    context = browser.new_context(bypass_csp=True, extra_http_headers=headers, **options)
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield context.new_page()
    finally:
        context.close()
