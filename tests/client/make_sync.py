"""Makes `client/blocking/sync.py`: each method of `AsyncClient`, for programs without asyncio.

    python -m tests.client.make_sync      (`make generate`)

Signatures and docstrings are those of the asynchronous methods; what each does is to run its
namesake on another thread. `test_sync_is_made.py` compares the file with what this makes.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[2] / "paxosblock" / "client"
TARGET: Final = PACKAGE / "blocking" / "sync.py"

HEAD: Final = '''"""`Client`: the same as `AsyncClient`, for programs that do not run on asyncio.

Made by `make generate` from `async_client.py` and `block_verbs.py`: change those.
"""

from __future__ import annotations

'''
OURS: Final = """from paxosblock.client.blocking.sync_base import ClientBase, DataNodeBase
from paxosblock.client.blocking.sync_files import FileReader, FileWriter
"""
CLIENT: Final = '''

class Client(ClientBase):
    """A client of one cluster: `with Client(url) as fs`.

    It may be used from several threads; one file object at a time from one. After a fork the child
    process gets connections of its own, but cannot use files that were opened before.

    Every method raises a `PaxosBlockError`; see `paxosblock.errors` for what each one tells.
    """
'''
DATANODE: Final = '''

class DataNode(DataNodeBase):
    """The calls of the seed to one DataNode. Made by `Client.datanode`."""
'''
SOURCES: Final = ("async_client.py", "block_verbs.py")
IN_THE_BASE: Final = {"close", "config", "retry_for"}

WORDS: Final = (
    ("async with ", "with "),
    ("AsyncIterator", "Iterator"),
    ("AsyncFileReader", "FileReader"),
    ("AsyncFileWriter", "FileWriter"),
    ("AsyncDataNode", "DataNode"),
    ("AsyncClient", "Client"),
)
"""Words that have another name where nothing is awaited."""

WRAPPED: Final = ("FileWriter", "FileReader", "DataNode")
"""Objects that live on the other thread, each behind one of the caller's."""

Method = ast.FunctionDef | ast.AsyncFunctionDef


def made() -> str:
    """Return the text of the module."""
    client, verbs = map(_source, SOURCES)
    body = CLIENT + "".join(_methods(client, "Client"))
    body += DATANODE + "".join(_methods(verbs, "DataNode"))
    imports = sorted({line for source in (client, verbs) for line in _imports(source, body)})
    return _tidy(HEAD + "".join(imports) + OURS + body)


def _source(name: str) -> str:
    text = (PACKAGE / name).read_text(encoding="utf-8")
    for there, here in WORDS:
        text = text.replace(there, here)
    return text


def _methods(source: str, name: str) -> Iterator[str]:
    """The public methods of a class, with the comments between them that divide it."""
    lines = source.splitlines()
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    (found,) = (node for node in classes if node.name == name)
    for node in found.body:
        if isinstance(node, Method) and node.name[0] != "_" and node.name not in IN_THE_BASE:
            above = lines[min(each.lineno for each in (node, *node.decorator_list)) - 3]
            yield f"\n{above}\n" if above.startswith("    # -- ") else ""
            yield _method(node, lines)


def _method(node: Method, lines: list[str]) -> str:
    first, head = node.body[0], lines[node.lineno - 1 : node.body[0].lineno - 1]
    head[0] = head[0].replace("async def", "def")
    docstring = lines[first.lineno - 1 : first.end_lineno]
    return "\n" + "\n".join([*head, *docstring, *_work(node)]) + "\n"


def _work(node: Method) -> tuple[str, ...]:
    """Run the namesake with the same arguments, and put what lives there behind one of ours."""
    assert node.returns is not None
    returned, asked = ast.unparse(node.returns), f"self._fs.{node.name}"
    plain = [argument.arg for argument in node.args.args[1:]]
    given = [*plain, *(f"{each.arg}={each.arg}" for each in node.args.kwonlyargs)]
    if returned.startswith("Iterator["):
        return (f"        return self._iterate({asked}({', '.join(given)}))",)
    run = isinstance(node, ast.AsyncFunctionDef)
    call = f"self._run({', '.join([asked, *given])})" if run else f"{asked}({', '.join(given)})"
    if returned not in WRAPPED:
        return (f"        return {call}",)
    # In this order: after a fork there is another thread once the client was asked for.
    wrapped = f"        return {returned}(self, self._background, there)"
    return (f"        there = {call}", wrapped)


def _imports(source: str, body: str) -> Iterator[str]:
    """Yield imports of the names in the signatures, from where the source has them."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    used -= {"FileReader", "FileWriter", "DataNode"}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Import):
            yield from (f"import {each.name}\n" for each in node.names if each.name in used)
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                if each.name in used:
                    yield f"from {node.module} import {each.name}\n"


def _tidy(text: str) -> str:
    """As `make format` leaves it."""
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        arguments = [*command, "--stdin-filename", str(TARGET), "-"]
        text = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments],
            input=text,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    return re.sub(r"\n{2,}(    # -- )", r"\n\n\1", text)


if __name__ == "__main__":
    TARGET.write_text(made(), encoding="utf-8")
