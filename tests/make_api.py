"""Write docs/api.md from the docstrings and signatures of what users import: `make generate`.

Everything is read as source text, so that a page is the same on every version of Python.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parent.parent
TARGET: Final = REPOSITORY / "docs" / "api.md"
COLUMNS: Final = 100

PARTS: Final = (
    ("paxosblock", "client/blocking/sync.py", ("Client",)),
    ("paxosblock", "local/cluster.py", ("LocalCluster",)),
    ("paxosblock", "local/node_process.py", ("Node",)),
    ("paxosblock", "client/blocking/sync.py", ("FileWriter", "FileReader")),
    ("`fs.blocks`", "client/blocking/sync.py", ("BlockVerbs", "DataNode")),
    ("paxosblock", "base/replacement.py", ("WriteOptions",)),
    ("paxosblock", "client/writing/receipt.py", ("FlushReceipt", "BlockReceipt")),
    ("paxosblock", "client/reading/locations.py", ("BlockLocation",)),
    ("paxosblock", "api/namenode.py", ("FileStatus", "Listing")),
    ("paxosblock", "api/subtree.py", ("ContentSummary", "Summed")),
    ("paxosblock", "client/reading/file_checksum.py", ("FileChecksum",)),
    ("paxosblock", "api/transaction.py", None),
    ("paxosblock", "api/user_tokens.py", ("TokenIssued", "TokenNote", "ListedToken", "TokenRight")),
    ("paxosblock", "errors.py", None),
)
"""The module where a user gets it, its file, and its classes there (None: all that are public)."""

INHERITED: Final = {
    "Client": ("client/blocking/sync_base.py", "ClientBase"),
    "FileWriter": ("client/blocking/sync_files.py", "FileWriterBase"),
    "FileReader": ("client/blocking/sync_files.py", "FileReaderBase"),
}
"""Classes whose methods stand with those of another one, as users see them there."""

HEAD: Final = """# The Python API

Made by `make generate` from the docstrings; a test compares them.
`from paxosblock import ...` gives every class of this page, all errors, what methods take and
return, and `AsyncClient`. That has the methods of `Client` as coroutines (`await fs.stat(path)`,
`async with fs.open(path) as file`, `async for`), with the same arguments. A `Client` can be
pickled: Spark, dask and ray send it to other machines, where it makes connections of its own.

What each error lets a program conclude: [errors.md](errors.md). Other libraries:
[fsspec.md](fsspec.md), [spark.md](spark.md). The settings of a client, fields of
`paxosblock.ClientConfig`: [settings.md](settings.md#client). Each is a keyword, too:
`Client(url, retry_for_s=5)`.
"""

MADE_BY_OTHERS: Final = frozenset({"FileWriter", "FileReader", "BlockVerbs", "DataNode", "Node"})
"""Classes that no user makes."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def made() -> str:
    """Return the page."""
    pieces = [HEAD]
    for home, file, wanted in PARTS:
        for node in _classes(file):
            if _is_wanted(node.name, wanted):
                pieces += _class(node, home)
    return "\n".join(pieces)


def _classes(file: str) -> Iterator[ast.ClassDef]:
    text = (REPOSITORY / "paxosblock" / file).read_text(encoding="utf-8")
    tree = _AsWritten(text).visit(ast.parse(text))
    return (node for node in tree.body if isinstance(node, ast.ClassDef))


class _AsWritten(ast.NodeTransformer):
    """Keeps numbers as the source has them: permissions in octal."""

    def __init__(self, text: str) -> None:
        self._text = text

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if type(node.value) is not int:
            return node
        return ast.Name(ast.get_source_segment(self._text, node) or "", ast.Load())


def class_of(file: str, name: str) -> ast.ClassDef:
    (node,) = (node for node in _classes(file) if node.name == name)
    return node


def _is_wanted(name: str, wanted: tuple[str, ...] | None) -> bool:
    return name in wanted if wanted is not None else not name.startswith("_")


def _class(node: ast.ClassDef, home: str) -> Iterator[str]:
    bases = ", ".join(name for base in node.bases if (name := ast.unparse(base))[0] != "_")
    yield f"## {node.name}\n"
    yield f"{_origin(home)}{f'; a `{bases}`' if bases and node.name not in INHERITED else ''}\n"
    yield f"{_text(node)}\n"
    yield from _fields(node)
    body = (
        [*class_of(*INHERITED[node.name]).body, *node.body] if node.name in INHERITED else node.body
    )
    for function in body:
        is_made = isinstance(function, Function) and function.name == "__init__"
        if is_made and node.name in MADE_BY_OTHERS:
            continue
        if isinstance(function, Function) and _is_described(function):
            yield from _method(function, node.name)


def _is_described(function: Function) -> bool:
    return not function.name.startswith("_") or (
        function.name == "__init__" and bool(ast.get_docstring(function))
    )


def _origin(home: str) -> str:
    return f"from `{home}`" if " " not in home else home


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """Annotated fields, each with the string below it, as a list."""
    rows = []
    for statement, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target)[0] != "_":
            text = told(after)
            row = f"- `{ast.unparse(statement)}`{text and f': {text}'}"
            rows += textwrap.wrap(row, COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
    if rows:
        yield "\n".join(rows) + "\n"


def told(after: ast.stmt | None) -> str:
    """Return the string below a field, on one line; "" where there is none."""
    match after:
        case ast.Expr(ast.Constant(str(text))):
            return " ".join(text.split())
    return ""


def _method(node: Function, owner: str) -> Iterator[str]:
    decorators = {ast.unparse(each) for each in node.decorator_list}
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    if "property" in decorators:
        yield f"### `{node.name}{returned.replace(' -> ', ': ')}`\n"
    else:
        made = node.name == "__init__"
        arguments = re.sub(r"^(self|cls)(, )?", "", ast.unparse(node.args))
        yield f"### `{owner if made else node.name}({arguments}){'' if made else returned}`\n"
    yield f"{_text(node)}\n"


def _text(node: Function | ast.ClassDef) -> str:
    """A docstring as Markdown: sections become lists, what follows `::` becomes code."""
    return "\n".join(_markdown((ast.get_docstring(node) or "").splitlines()))


def _markdown(lines: Iterable[str]) -> Iterator[str]:
    section = code = False
    for line in lines:
        heading = re.fullmatch(r"(Args|Raises|Returns|Yields):", line)
        if code and line and not line.startswith(" "):
            code = False
            yield "```\n"
        if heading:
            section = True
            yield f"**{heading[1]}**\n"
        elif line.rstrip() == "::":
            code = True
            yield "```python"
        elif section and re.match(r" {4}\S", line):
            yield _entry(line.strip())
        elif section and line.startswith(" " * 8):
            yield f"  {line.strip()}"
        else:
            section = section and not line.strip()
            yield line.removeprefix("    ") if code else line
    if code:
        yield "```"


def _entry(line: str) -> str:
    """`name: text` as an entry of a list, the names as code; anything else as it is."""
    found = re.match(r"([\w, *]+): (.*)", line)
    return f"- `{found[1]}`: {found[2]}" if found else line


def main() -> None:
    """Write the page."""
    TARGET.write_text(made(), encoding="utf-8")


if __name__ == "__main__":
    main()
