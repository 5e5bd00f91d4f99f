"""The pages of settings and metrics are what the code says."""

from __future__ import annotations

from paxosblock.base.settings import settings_of
from paxosblock.config import SECTIONS
from tests.make_reference import METRICS, SETTINGS, metrics_page, settings_page


def test_the_page_of_settings_is_what_the_code_makes() -> None:
    page = settings_page()
    assert SETTINGS.read_text(encoding="utf-8") == page, "run: make generate"
    for config in SECTIONS:
        section = page.partition(f"\n## {config.section}\n")[2].partition("\n## ")[0]
        assert [name for name in settings_of(config) if f"| `{name}` | `" not in section] == []


def test_the_page_of_metrics_is_what_running_nodes_answer() -> None:
    assert METRICS.read_text(encoding="utf-8") == metrics_page(), "run: make generate"
