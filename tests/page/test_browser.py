"""The pages in headless Chromium: no message on its console, no violation that axe-core finds, no
scrolling sideways on a narrow screen, dark and light, by keyboard, and live without a reload."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.host.user import claimed_user
from paxosblock.page.site import PageAnswer
from tests.page.browser import axe_core, chromium, missing, window
from tests.page.trouble import pages_of_trouble

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"not on this machine: {missing()}"),
    pytest.mark.plain("people without a name, whom a node with certificates refuses"),
]

NAMES = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)<\\script>",
    "line\nbreak",
    "esc\x1b[31m",
    "gpj.\u202eexe",
    "a&b?c=d#e%2f",
    "n" * 255,
)


@dataclass
class Seen:
    """A cluster with files of all kinds of names, a browser, and pages of a cluster in trouble."""

    namenode: str
    datanode: str
    gateway: str
    browser: Any
    axe: str
    trouble: dict[str, PageAnswer]

    @property
    def pages(self) -> dict[str, str]:
        """The address of each page, by its name."""
        drawn = {f"{name} in trouble": f"{self.namenode}/{name}" for name in self.trouble}
        return drawn | {
            "overview": f"{self.namenode}/",
            "directory": f"{self.namenode}/files?path=/d",
            "file": f"{self.namenode}/files?path={quote('/d/' + NAMES[0])}",
            "first bytes": f"{self.namenode}/preview?path={quote('/d/' + NAMES[0])}",
            "writers": f"{self.namenode}/writers",
            "unwhole": f"{self.namenode}/unwhole",
            "login": f"{self.namenode}/login",
            "error": f"{self.namenode}/files?path=/nope",
            "datanode": f"{self.datanode}/",
            "gateway": f"{self.gateway}/",
        }

    def draw_trouble(self, page: Any) -> None:
        """Let the addresses of `trouble` lead to pages that no node had to break for."""
        for name, answer in self.trouble.items():

            def drawn(route: Any, *, answer: PageAnswer = answer) -> None:
                route.fulfill(body=answer.body, content_type=answer.content_type)

            page.route(f"**/{name}", drawn)


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    trouble = asyncio.run(pages_of_trouble())
    with LocalCluster(datanodes=2, gateways=1) as cluster, Client(cluster.url, replication=2) as fs:
        for name in NAMES:
            with fs.create(f"/d/{name}") as file:
                file.write(b"bytes")
        with fs.create("/d/open") as held, chromium() as browser:
            held.write(b"more")
            held.flush()
            shown = cluster.namenode, cluster.datanodes[0], cluster.gateways[0]
            namenode, datanode, gateway = (f"http://{node.address}" for node in shown)
            yield Seen(namenode, datanode, gateway, browser, axe_core(), trouble)


ALL: dict[str, Any] = {"resultTypes": ["violations"]}
OF_LOOKS = ALL | {"runOnly": ["color-contrast", "scrollable-region-focusable", "target-size"]}
"""Rules whose verdict is another one in other colours and on a narrow screen."""


@pytest.mark.parametrize(
    ("scheme", "width", "rules"), [("light", 1280, ALL), ("dark", 400, OF_LOOKS)]
)
def test_each_page_is_quiet_accessible_and_fits(
    seen: Seen, scheme: str, width: int, rules: dict[str, Any]
) -> None:
    size = {"width": width, "height": 900}
    with window(seen.browser, color_scheme=scheme, viewport=size) as page:
        messages = list[str]()
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: messages.append(dialog.message))
        seen.draw_trouble(page)
        for name, address in seen.pages.items():
            page.goto(address)
            page.evaluate(seen.axe)
            found = page.evaluate("rules => axe.run(rules)", rules)
            told = [(each["id"], each["nodes"][0]["html"]) for each in found["violations"]]
            assert told == [], name
            assert len(found["passes"]) > (20 if rules is ALL else 0), name
            assert page.evaluate("document.documentElement.scrollWidth") == width, name
            # Chromium says itself that the page that is not there is not there.
            said = [each for each in messages if "404 (Not Found)" not in each]
            assert said == [], name


def test_names_are_shown_and_none_of_them_acts(seen: Seen) -> None:
    with window(seen.browser) as page:
        page.on("dialog", lambda dialog: pytest.fail(f"a name acted: {dialog.message}"))
        page.goto(seen.pages["directory"])
        shown = page.locator("tbody th a").all_inner_texts()
        assert {NAMES[0], "line\\nbreak", "esc\\x1b[31m", "gpj.\\u202eexe", NAMES[-1]} <= set(shown)
        for place, link in enumerate(shown):
            page.goto(seen.pages["directory"])
            page.locator("tbody th a").nth(place).click()
            assert page.locator("h1").inner_text().startswith("File"), link
            assert page.locator("h1 .path").inner_text() == f"/d/{link}"


def test_a_file_is_kept_under_a_name_that_means_nothing(seen: Seen) -> None:
    with window(seen.browser) as page:
        page.goto(seen.pages["file"])
        with page.expect_download() as kept:
            page.get_by_role("link", name="download").click()
        name = kept.value.suggested_filename
        assert not set(name) & set('<>"/\n')
        assert Path(kept.value.path()).read_bytes() == b"bytes"


def test_the_keyboard_reaches_the_content_and_every_link_of_each_page(seen: Seen) -> None:
    acts = "main a, main input, main button, main [tabindex]"
    with window(seen.browser) as page:
        seen.draw_trouble(page)
        for name, address in seen.pages.items():
            page.goto(address)
            page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
            page.keyboard.press("Enter")
            assert page.evaluate("document.activeElement.id") == "main", name
            wanted = page.evaluate(
                f"Array.from(document.querySelectorAll('{acts}'), (one, n) => one.dataset.n = n)"
            )
            reached = []
            for _ in wanted:
                page.keyboard.press("Tab")
                reached.append(page.evaluate("Number(document.activeElement.dataset.n)"))
            assert reached == wanted, name


def test_the_page_is_fetched_again_and_rests_while_it_is_paused(seen: Seen) -> None:
    """In the browser's time, which the test turns on by itself."""
    with window(seen.browser) as page:
        page.clock.install()
        page.goto(seen.pages["overview"])
        old = "document.querySelector('h1').textContent = 'old'"
        new = "document.querySelector('h1').textContent.startsWith('Health')"
        page.evaluate(old)
        page.clock.run_for(2000)
        page.wait_for_function(new)
        page.get_by_role("button", name="Pause").click()
        page.evaluate(old)
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        page.clock.run_for(20_000)
        assert (page.locator("h1").inner_text(), asked) == ("old", [])
        page.get_by_role("button", name="Go on").click()
        page.clock.run_for(2000)
        page.wait_for_function(new)


def test_a_page_whose_node_is_gone_says_that_it_is_old(seen: Seen) -> None:
    with window(seen.browser) as page:
        page.clock.install()
        page.goto(seen.pages["overview"])
        page.context.set_offline(True)
        page.clock.run_for(2000)
        page.get_by_text(re.compile("what you see is old")).wait_for()
        assert page.locator("h2").first.inner_text() == "Numbers"
        page.context.set_offline(False)
        page.clock.run_for(2000)
        page.wait_for_function("!document.body.textContent.includes('what you see is old')")


def test_a_person_logs_in_by_the_form(seen: Seen) -> None:
    with window(seen.browser, named=False) as page:
        page.goto(seen.pages["login"])
        page.get_by_label("User whose files are shown").fill(claimed_user())
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/")
        assert claimed_user() in page.locator(".who").inner_text()
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert page.evaluate("document.cookie") == ""


def test_without_scripts_the_page_is_complete(seen: Seen) -> None:
    with window(seen.browser, java_script_enabled=False) as page:
        page.goto(seen.pages["overview"])
        assert page.locator("h2").all_inner_texts()[:3] == ["Numbers", "NameNodes", "DataNodes"]
        assert page.get_by_role("button").count() == 0
