"""Write docs/settings.md and docs/metrics.md: `make generate`.

The settings are read from the source, the metrics from nodes that run: a NameNode of three, a
DataNode and a gateway are asked for what they count.
"""

from __future__ import annotations

import ast
import re
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Final

from paxosblock import ClientConfig, LocalCluster
from paxosblock.base.settings import as_written, settings_of
from paxosblock.config import ENVIRONMENT_PREFIX, SECTIONS, Config
from tests.gateway.gateways import gateway_of
from tests.make_api import REPOSITORY, class_of, told

SETTINGS: Final = REPOSITORY / "docs" / "settings.md"
METRICS: Final = REPOSITORY / "docs" / "metrics.md"

SETTINGS_HEAD: Final = """# Settings

Made by `make generate` from the code; a test compares them.

A node reads them from the file of `--config`, a client and the `fs` verbs from the environment:

```toml
[namenode]
lease_soft_limit = "60s"        # or PAXOSBLOCK_NAMENODE_LEASE_SOFT_LIMIT=60s
block_size = "128MiB"
```

The environment wins over the file, and a flag or argument over both. Durations and sizes carry
their unit (`ms`, `s`, `min`, `h`, `d`; `B`, `KiB`, `MiB`, `GiB`); a setting that is not here is an
error that names the nearest one. A file may hold the sections of all kinds.

`PAXOSBLOCK_NAMENODES=host:port,...` names the cluster that a command or `Client` speaks of. In
Python a client's settings are keywords of `Client`, fields of `paxosblock.ClientConfig` and
`storage_options` of fsspec, which also takes `namenodes` and `staging_ttl`: all by one name, which
ends in `_s` where a number means seconds. The options of Spark are in [spark.md](spark.md).
"""

METRICS_HEAD: Final = """# Metrics

Made by `make generate` from what running nodes answer; a test compares them.

`GET /metrics` of a node, in Prometheus' text format: `curl http://127.0.0.1:9870/metrics`. Which
of them to watch, and what to do then: [operations.md](operations.md#what-to-watch). Counters only
grow, from the start of the process on. The names that begin with `process_` are those of
prometheus_client: memory, processor time and descriptors of the process.
"""


def settings_page() -> str:
    """Return the page of all settings."""
    pieces = [SETTINGS_HEAD]
    for config in SECTIONS:
        pieces += _section(config)
    return "\n".join(pieces)


def _section(config: type[Config]) -> Iterator[str]:
    name = config.section
    prefix = f"{ENVIRONMENT_PREFIX}_{name.upper()}_"
    yield f"## {name}\n"
    yield f"In a file as `[{name}]`, in the environment as `{prefix}<SETTING>` in capitals.\n"
    in_python = config is ClientConfig
    columns = ["setting", *["in Python"] * in_python, "default", "expected", "meaning"]
    yield f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}"
    meanings, defaults = _meanings(config), config()
    made = {  # what each machine finds out for itself
        field.name: f"{getattr(field.default_factory, '__name__', '')}()"
        for field in fields(config)
        if field.default_factory is not MISSING
    }
    for setting in settings_of(config).values():
        default = made.get(setting.attribute) or as_written(
            setting, getattr(defaults, setting.attribute)
        )
        names = [f"`{setting.name}`", *[f"`{setting.attribute}`"] * in_python]
        row = [*names, f"`{default}`", setting.kind.expected, meanings[setting.attribute]]
        yield f"| {' | '.join(row)} |"
    yield ""


def _meanings(config: type[Config]) -> dict[str, str]:
    """Return the docstring of each field of a class, and of those it inherits."""
    bodies = [
        class_of("config.py", each.__name__).body
        for each in config.__mro__
        if issubclass(each, Config) and each is not Config
    ]
    return {
        ast.unparse(field.target): told(after)
        for body in bodies
        for field, after in zip(body, [*body[1:], None], strict=True)
        if isinstance(field, ast.AnnAssign)
    }


def metrics_page() -> str:
    """Return the page of all metrics: the counts of one of three NameNodes, a DataNode and a
    gateway."""
    pieces = [METRICS_HEAD]
    folder = tempfile.TemporaryDirectory()
    with (
        folder,
        LocalCluster(datanodes=1, namenodes=3) as cluster,
        gateway_of(cluster, Path(folder.name)) as gateway,
    ):
        nodes = {
            "NameNode": cluster.namenode.address,
            "DataNode": cluster.datanodes[0].address,
            "Gateway": gateway.address,
        }
        for title, address in nodes.items():
            with urllib.request.urlopen(f"http://{address}/metrics") as answer:
                pieces += _node(title, answer.read().decode())
    return "\n".join(pieces)


def _node(title: str, text: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| metric | kind | meaning |\n|---|---|---|"
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    for name, about in re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE):
        if kinds[name] != "gauge" or not name.endswith("_created"):
            yield f"| `{name}` | {kinds[name]} | {about} |"
    yield ""


def main() -> None:
    """Write both pages."""
    SETTINGS.write_text(settings_page(), encoding="utf-8")
    METRICS.write_text(metrics_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
