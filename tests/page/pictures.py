"""Takes the pictures of the status page for the documents: `make pictures`.

They are of a real cluster, so no two runs make the same bytes, and no test compares them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from paxosblock import Client, LocalCluster
from tests.page.browser import chromium, missing, window

PICTURES: Final = Path(__file__).parents[2] / "docs" / "pictures"
SIZE: Final = {"width": 900, "height": 580}
SETTINGS: Final = {"namenode": {"datanode_stale_after": "1s", "datanode_dead_after": "3s"}}


def main() -> None:
    """Write the pictures of a cluster that has lost a DataNode while a file was being written."""
    if missing():
        sys.exit(f"make pictures: not on this machine: {missing()}")
    with (
        LocalCluster(datanodes=3, racks=2, settings=SETTINGS) as cluster,
        Client(cluster.url) as fs,
        chromium() as browser,
    ):
        cluster.wait_registered()
        for number in range(40):
            with fs.create(f"/results/part-{number:05}") as file:
                file.write(b"a row\n" * 100_000)
        with (
            fs.create("/log/today") as held,
            window(browser, viewport=SIZE, color_scheme="light") as page,
        ):
            held.write(b"a line\n")
            held.flush()
            cluster.datanodes[1].kill()
            held.write(b"another line\n")
            held.flush()
            namenode = f"http://{cluster.namenode.address}"
            page.goto(f"{namenode}/")
            page.get_by_role("heading", name="Health: dead node").wait_for()
            _save(page, "status-page")
            page.goto(f"{namenode}/files?path=/log/today")
            page.locator("tbody th a").first.click()
            page.locator("svg.life").wait_for()
            _save(page, "block-life")


def _save(page: Any, name: str) -> None:
    page.screenshot(path=str(PICTURES / f"{name}.png"))


if __name__ == "__main__":
    main()
