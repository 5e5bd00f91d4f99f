"""Spans of OpenTelemetry, with its SDK set up in a process of its own; and none in any other."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import ended

PROGRAM = """
import asyncio, json, logging, sys
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from paxosblock import Client
from paxosblock.api.namenode import STAT, PathRequest
from paxosblock.config import NameNodeConfig
from paxosblock.errors import NotFoundError
from paxosblock.net.calls import control
from paxosblock.net.calls.call_server import asked
from paxosblock.namenode import namenode_server

kept, requests = InMemorySpanExporter(), set()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)

class Seen(logging.Handler):
    def emit(self, record):
        requests.add(asked().get("request", ""))

def use(address):
    with trace.get_tracer("app").start_as_current_span("job"), Client(address) as fs:
        fs.mkdirs("/made")
        try:
            control.call(address, STAT, PathRequest("/gone"), 30.0)
        except NotFoundError:
            pass

async def main():
    logging.getLogger().addHandler(Seen())
    logging.getLogger().setLevel(logging.DEBUG)
    config = NameNodeConfig(heartbeat_interval_s=0.1)
    folder = Path(sys.argv[1])
    async with namenode_server.running(
        config, listen="127.0.0.1:0", path=folder, node_id="nn"
    ) as node:
        await asyncio.to_thread(use, node.address)

asyncio.run(main())
spans = [
    {
        "name": each.name,
        "kind": each.kind.name,
        "trace": f"{each.context.trace_id:032x}",
        "id": f"{each.context.span_id:016x}",
        "parent": each.parent and f"{each.parent.span_id:016x}",
        "told": dict(each.attributes),
        "status": each.status.status_code.name,
    }
    for each in kept.get_finished_spans()
]
print(json.dumps({"spans": spans, "requests": sorted(requests)}))
"""


@pytest.mark.skipif(find_spec("opentelemetry") is None, reason="the extra [test] brings its SDK")
def test_a_call_is_a_span_at_the_client_and_at_the_node_and_logs_name_its_trace(
    tmp_path: Path,
) -> None:
    done = ended([sys.executable, "-c", PROGRAM, str(tmp_path / "nn")])
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    spans: list[dict[str, Any]] = found["spans"]
    (job,) = (each for each in spans if each["name"] == "job")
    for method, status in (("mkdirs", "UNSET"), ("stat", "ERROR")):
        client, node = (
            next(each for each in spans if (each["name"], each["kind"]) == (method, kind))
            for kind in ("CLIENT", "SERVER")
        )
        assert (client["parent"], node["parent"]) == (job["id"], client["id"])
        assert client["trace"] == node["trace"] == job["trace"]
        assert client["status"] == node["status"] == status
        assert client["told"]["rpc.method"] == method
        if method == "mkdirs":  # the node's log has a line of it, as it changes something
            assert f"{client['trace']}-{client['id']}" in found["requests"]
        else:
            assert node["told"]["error.type"] == "NotFoundError"


def test_a_process_that_does_not_use_it_does_not_import_it() -> None:
    program = "import sys, paxosblock.net.calls.rpc, paxosblock.namenode.namenode_server\n"
    program += "print([each for each in sys.modules if 'opentelemetry' in each])"
    done = ended([sys.executable, "-c", program])
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
