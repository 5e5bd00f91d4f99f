"""Makes `client/blocking/sync.py`: each method of `AsyncClient` and of what it returns, for
programs without asyncio.

    python -m tests.client.make_sync      (`make generate`)

Signatures and docstrings are those of the asynchronous methods; what each does is to run its
namesake on another thread. What a base class in `blocking/` has is not made.
`test_sync_is_made.py` compares the file with what this makes.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[2] / "paxosblock" / "client"
TARGET: Final = PACKAGE / "blocking" / "sync.py"

HEAD: Final = '''"""`Client`: the same as `AsyncClient`, for programs that do not run on asyncio.

Made by `make generate` from the asynchronous classes: change those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

'''
OURS: Final = """from paxosblock.client.blocking.sync_base import ClientBase, Mirror
from paxosblock.client.blocking.sync_files import FileReaderBase, FileWriterBase
"""


@dataclass(frozen=True, slots=True)
class Made:
    """A class that is made of `Async<name>` in `source`; `base` and its file in `blocking/`."""

    name: str
    source: str
    base: str
    base_file: str
    says: str = ""
    """Its docstring, if it differs from that of the asynchronous class."""
    parts: tuple[tuple[str, str], ...] = ()
    """Bases of the asynchronous class, and their files: their methods are made, too."""

    @property
    def parents(self) -> str:
        return f"Mirror[Async{self.name}]" if self.base == "Mirror" else self.base


CLASSES: Final = (
    Made(
        "Client", "async_client.py", "ClientBase", "sync_base.py",
        """A client of one cluster: `with Client(url) as fs`.

    It may be used from several threads; one file object at a time from one. After a fork the child
    process gets connections of its own, but cannot use files that were opened before.

    Every method raises a `PaxosBlockError`; see `paxosblock.errors` for what each one tells.
    """,
        (
            ("AsyncCopies", "copies/copy_calls.py"),
            ("AsyncSnapshots", "names/snapshot_verbs.py"),
            ("AsyncWatching", "names/watch_verbs.py"),
        ),
    ),
    Made("BlockVerbs", "block_verbs.py", "Mirror", "sync_base.py"),
    Made("DataNode", "datanode_verbs.py", "Mirror", "sync_base.py"),
    Made(
        "FileReader", "reading/file_reader.py", "FileReaderBase", "sync_files.py",
        """A file as it was when it was opened; made by `Client.open`.

    Its length is linearizable: everything that was flushed before `open` was called is there. What
    is written later is not (see `Client.follow`). While its length is `undecided`, `size` waits for
    it, and so does what needs it, for the client's `retry_for_s`; then it raises UnavailableError.

    Iterating gives lines, as with any Python file; `pieces` gives the bytes as they come.
    """,
    ),
    Made(
        "FileWriter", "writing/file_writer.py", "FileWriterBase", "sync_files.py",
        """A file that this client writes; made by `Client.create` and `Client.append`.

    What was written is safe once `hflush`, `hsync` or `close` has returned. `write` may return
    while its chunk is still on its way to the other thread: an error of it is raised by the next
    call. Leaving `with` by an exception calls `abort`, which drops what was not flushed.
    """,
    ),
)  # fmt: skip

WORDS: Final = (
    ("async with ", "with "),
    ("await fs.", "fs."),
    ("AsyncIterator", "Iterator"),
    *((f"Async{made.name}", made.name) for made in CLASSES),
)
"""Words that have another name where nothing is awaited."""

WRAPPED: Final = frozenset(made.name for made in CLASSES)
"""Objects that live on the other thread, each behind one of the caller's."""
OF_EVERY_FILE: Final = {"closed"}
"""Names that Python's own base of files has."""

Method = ast.FunctionDef | ast.AsyncFunctionDef


def made() -> str:
    """Return the text of the module."""
    files = [
        *(made.source for made in CLASSES),
        *(name for made in CLASSES for _, name in made.parts),
    ]
    sources = {name: _source(name) for name in files}
    body = "".join("".join(_class(made, sources[made.source])) for made in CLASSES)
    imports = {line for source in sources.values() for line in _imports(source, body)}
    imports |= {
        f"from paxosblock.client.{made.source[:-3].replace('/', '.')} import Async{made.name}\n"
        for made in CLASSES[1:]
    }
    for_writers = {line for line in imports if ".client.writing." in line}
    now, typing = "".join(sorted(imports - for_writers)), "    ".join(["", *sorted(for_writers)])
    return _tidy(HEAD + now + OURS + "if TYPE_CHECKING:\n" + typing + body)


def _source(name: str) -> str:
    text = (PACKAGE / name).read_text(encoding="utf-8")
    for there, here in WORDS:
        text = text.replace(there, here)
    return text


def _class(made: Made, source: str) -> Iterator[str]:
    """The class with the public methods that its base does not have, and the comments between them
    that divide it."""
    lines, found = source.splitlines(), _found(source, made.name)
    base = _found((TARGET.parent / made.base_file).read_text(encoding="utf-8"), made.base)
    there = {node.name for node in base.body if isinstance(node, Method)} | OF_EVERY_FILE
    yield f"\n\nclass {made.name}({made.parents}):\n"
    first = found.body[0]
    own = "\n".join(lines[first.lineno - 1 : first.end_lineno])
    yield f'    """{made.says.lstrip(chr(34))}"""\n' if made.says else f"{own}\n"
    if made.base.startswith("File"):
        yield f"\n    _async: Async{made.name}\n"
    yield from _methods(found, lines, there)
    for name, file in made.parts:
        part = _source(file)
        yield from _methods(_found(part, name), part.splitlines(), there)


def _methods(found: ast.ClassDef, lines: list[str], there: set[str]) -> Iterator[str]:
    for node in found.body:
        if isinstance(node, Method) and node.name[0] != "_" and node.name not in there:
            above = lines[min(each.lineno for each in (node, *node.decorator_list)) - 3]
            yield f"\n{above}\n" if above.startswith("    # -- ") else ""
            yield _method(node, lines)


def _found(source: str, name: str) -> ast.ClassDef:
    classes = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    (found,) = (node for node in classes if node.name == name)
    return found


def _method(node: Method, lines: list[str]) -> str:
    first, head = node.body[0], lines[node.lineno - 1 : node.body[0].lineno - 1]
    head[0] = head[0].replace("async def", "def")
    docstring = lines[first.lineno - 1 : first.end_lineno]
    shown = ["    @property"] if _is_property(node) else []
    return "\n" + "\n".join([*shown, *head, *docstring, *_work(node)]) + "\n"


def _is_property(node: Method) -> bool:
    return "property" in map(ast.unparse, node.decorator_list)


def _work(node: Method) -> tuple[str, ...]:
    """Run the namesake with the same arguments, and put what lives there behind one of ours."""
    assert node.returns is not None
    returned, asked = ast.unparse(node.returns), f"self._async.{node.name}"
    plain = [argument.arg for argument in node.args.args[1:]]
    plain += [] if node.args.vararg is None else [f"*{node.args.vararg.arg}"]
    given = [*plain, *(f"{each.arg}={each.arg}" for each in node.args.kwonlyargs)]
    if returned.startswith("Iterator["):
        return (f"        return self._iterate({asked}({', '.join(given)}))",)
    run = isinstance(node, ast.AsyncFunctionDef)
    call = f"self._run({', '.join([asked, *given])})" if run else f"{asked}({', '.join(given)})"
    if _is_property(node):
        call = asked
    if returned not in WRAPPED:
        return (f"        return {call}",)
    # In this order: after a fork there is another thread once the client was asked for.
    wrapped = f"        return {returned}(self, self._background, there)"
    return (f"        there = {call}", wrapped)


def _imports(source: str, body: str) -> Iterator[str]:
    """Yield imports of the names in the signatures, from where the source has them."""
    used = {node.id for node in ast.walk(ast.parse(body)) if isinstance(node, ast.Name)}
    used -= WRAPPED
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
