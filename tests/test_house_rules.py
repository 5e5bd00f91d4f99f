"""House rules that no tool checks: each test names the rule, and a failure names the lines.

Everything here reads source text; nothing is imported.
"""

from __future__ import annotations

import ast
import gc
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
ROLES = ("client", "datanode", "namenode")
PACKAGE = ("paxosblock", "pyspark_paxosblock")
EVERYTHING = (*PACKAGE, "tests", "examples", "benchmarks")

LONGEST_FUNCTION = 60
LONGEST_FILE = 900
MADE_BY_A_COMMAND = {"paxosblock/client/blocking/sync.py"}
"""One reads the source of these."""

PROTOCOL_IMPORTS = {
    "__future__",
    "bisect",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "msgspec",
    "msgspec.structs",
    "struct",
    "typing",
}
"""And itself. No clock, no disk, no network, no randomness: a pure core can do without."""

MAY_SLEEP = "tests/waiting.py"

ASKS_THE_WALL_CLOCK = "paxosblock/namenode/catalog/catalog.py"
"""For the times that people see, and ends of directories and sessions (CATALOG.md). Elections,
leases and time-outs go by clocks that do not jump."""

WALL_CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today"}

BARE_CLAUSE = re.compile(r"(?:What|Whether|Which|How|Who|Whom|Whose|Where|When|Why)\b[^?]*$")
"""Docstrings say "Return ...", "True if ..." or name a thing; a question is a sentence too."""

STUMBLES = re.compile(r"\b(?:those who|of which|anew|(?:is|are) to be)\b", re.IGNORECASE)
NAMES_NO_ACTOR = re.compile(r"\b(?:nobody|somebody|anybody|whoever)\b", re.IGNORECASE)
"""The reader of a system of many processes must know which one acts: "no member", "another writer",
"the caller"."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the repository's root, its text and its syntax tree."""

    name: str
    text: str
    tree: ast.Module

    def at(self, node: ast.stmt | ast.expr) -> str:
        return f"{self.name}:{node.lineno}"

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @cached_property
    def comments(self) -> tuple[tuple[int, str], ...]:
        """Line numbers and texts of the comments; a `#` inside a string is none."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return tuple(
            (token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT
        )

    def prose(self) -> Iterator[tuple[int, str]]:
        """Lines and texts of docstrings and comments, each on one line; comments on lines that
        follow each other are one text, as a sentence goes on in them."""
        for node in self.nodes:
            match node:
                case ast.Expr(value=ast.Constant(value=str(said))):
                    yield node.lineno, " ".join(said.split())
        begin, end, words = 0, -1, list[str]()
        for line, comment in self.comments:
            if line != end + 1:
                yield begin, " ".join(words)
                begin, words = line, []
            end = line
            words += comment.lstrip("#").split()
        yield begin, " ".join(words)

    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))


@cache
def sources(*folders: str) -> tuple[Source, ...]:
    """The Python files below `folders`; links are not followed, so no file is read twice."""
    return tuple(
        _read(path) for folder in folders for path in sorted((REPOSITORY / folder).rglob("*.py"))
    )


@cache
def _read(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path.relative_to(REPOSITORY).as_posix(), text, ast.parse(text))


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """A million nodes of syntax trees, of which none holds one that holds it: to look for garbage
    among them again and again takes longer than to read the files."""
    gc.disable()
    yield
    sources.cache_clear()
    _read.cache_clear()
    gc.enable()


def imports(source: Source) -> Iterator[tuple[ast.stmt, str]]:
    """Every import statement with the module it names."""
    for node in source.nodes:
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node, node.module or "."


def called(node: ast.AST) -> str:
    """The dotted name that `node` calls, or "" when it is not a call of a name."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def texts() -> Iterator[Path]:
    """Everything a reader of the repository may open."""
    for folder in (*EVERYTHING, "docs"):
        for pattern in ("*.py", "*.md", "*.toml", "*.txt"):
            yield from sorted((REPOSITORY / folder).rglob(pattern))
    yield from sorted(REPOSITORY.glob("*.md"))
    yield from (REPOSITORY / name for name in ("pyproject.toml", "Makefile", ".ci/run"))


def test_the_protocol_imports_only_what_a_pure_function_needs() -> None:
    assert [
        f"{source.at(node)} imports {module}"
        for source in sources("paxosblock/protocol")
        for node, module in imports(source)
        if module not in PROTOCOL_IMPORTS and not is_within(module, "paxosblock.protocol")
    ] == []


def test_nobody_but_a_block_assigns_to_its_fields() -> None:
    """A replica, and what of it is durable, changes in one order (datanode/block.py)."""
    assert [
        f"{source.at(node)} {ast.unparse(node)}"
        for source in sources("paxosblock/datanode")
        if source.name != "paxosblock/datanode/block.py"
        for node in source.nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if ast.unparse(node.value) in ("block", "self._block")
    ] == []


def test_roles_are_imported_by_their_full_name() -> None:
    assert [
        f"{source.at(node)} imports {module}"
        for source in sources(*EVERYTHING)
        for node, module in imports(source)
        if any(is_within(module, role) for role in ROLES)
    ] == []


def test_a_function_fits_on_a_screen() -> None:
    assert [
        f"{source.at(function)} {function.name}: {length} lines"
        for source in sources(*EVERYTHING)
        for function in source.functions()
        if (length := (function.end_lineno or 0) - function.lineno + 1) > LONGEST_FUNCTION
    ] == []


def test_a_file_of_the_package_has_one_subject() -> None:
    assert [
        f"{source.name}: {length} lines"
        for source in sources(*PACKAGE)
        if (length := len(source.text.splitlines())) > LONGEST_FILE
        and source.name not in MADE_BY_A_COMMAND
    ] == []


def test_every_test_can_fail() -> None:
    assert [
        f"{source.at(function)} {function.name}"
        for source in sources("tests")
        for function in source.functions()
        if function.name.startswith("test_") and not any(map(_checks, ast.walk(function)))
    ] == []


def _checks(node: ast.AST) -> bool:
    helper = called(node).rpartition(".")[2]
    return isinstance(node, ast.Assert) or helper.startswith(
        ("assert", "check", "raises", "fail", "wait_until")
    )


def test_a_namenode_asks_the_wall_clock_in_one_place_as_it_may_jump_by_days() -> None:
    asking = {
        source.name
        for source in sources("paxosblock/namenode")
        for node in source.nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node).endswith(tuple(WALL_CLOCKS))
    }
    assert asking == {ASKS_THE_WALL_CLOCK}


def test_tests_wait_for_conditions_and_never_sleep() -> None:
    assert [
        source.at(node)
        for source in sources("tests")
        if source.name != MAY_SLEEP
        for node in source.nodes
        if isinstance(node, ast.Call) and _sleeps(node)
    ] == []


def _sleeps(call: ast.Call) -> bool:
    """`asyncio.sleep(0)` waits for no time: it lets the other tasks have one turn."""
    one_turn = [ast.unparse(argument) for argument in call.args] == ["0"]
    return called(call) in {"time.sleep", "asyncio.sleep", "sleep"} and not one_turn


def test_the_sequence_of_the_module_random_is_left_to_the_program_that_embeds_us() -> None:
    """A thread of ours that drew from it would make a run differ which its author had seeded."""
    assert [
        source.at(node)
        for source in sources("paxosblock")
        for node in source.nodes
        if isinstance(node, ast.Call)
        and called(node).startswith("random.")
        and called(node) != "random.Random"
    ] == []


def test_decoders_are_built_in_one_place_as_two_threads_must_not_build_the_same() -> None:
    building = ("msgpack.Decoder", "json.Decoder", "msgpack.decode", "json.decode", "convert")
    assert [
        source.at(node)
        for source in sources("paxosblock")
        for node in source.nodes
        if isinstance(node, ast.Call) and called(node) in {f"msgspec.{each}" for each in building}
    ] == []


def test_a_silenced_warning_says_why() -> None:
    silence = re.compile(r"#\s*(?:type:\s*ignore|noqa)\b")
    reasoned = re.compile(r"#\s*(?:type:\s*ignore\[[\w, -]+\]|noqa:\s*[A-Z0-9, ]+?)\s*[-#]\s*\w")
    assert [
        f"{source.name}:{number}"
        for source in sources(*EVERYTHING)
        for number, comment in source.comments
        if silence.search(comment) and not reasoned.search(comment)
    ] == []


def test_no_text_names_a_folder_of_somebodys_machine() -> None:
    machine = re.compile(r"""(?<![\w.}])(?:/work|/root|/home/\w+|/Users/\w+)(?![\w|])""")
    assert [
        f"{path.relative_to(REPOSITORY)}:{number}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if machine.search(line)
    ] == []


def test_every_module_says_what_it_is_for() -> None:
    assert [
        source.name for source in sources(*EVERYTHING) if not ast.get_docstring(source.tree)
    ] == []


def test_everything_public_in_the_package_says_what_it_is_for() -> None:
    assert [
        f"{source.at(node)} {node.name}"
        for source in sources(*PACKAGE)
        for node in source.tree.body
        if isinstance(node, Function | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ] == []


def test_docstrings_and_comments_say_who_acts_in_plain_english() -> None:
    assert [
        f"{source.name}:{line} {found[0]}"
        for source in sources(*PACKAGE)
        for line, text in source.prose()
        for rule in (STUMBLES, NAMES_NO_ACTOR)
        for found in rule.finditer(text)
    ] == []


def test_no_docstring_is_a_bare_clause() -> None:
    assert [
        f"{source.at(node)} {said}"
        for source in sources(*EVERYTHING)
        for node in source.nodes
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(said := node.value.value, str)
        and BARE_CLAUSE.match(said.strip().partition("\n\n")[0])
    ] == []
