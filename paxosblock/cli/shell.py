"""`paxosblock setup completion` and `man`: makes the command known to a shell and to `man`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from paxosblock.base.version import __version__
from paxosblock.cli.group import LazyGroup, LocalVerb
from paxosblock.cli.invocation import Invocation, UserError

NAME: Final = "paxosblock"


@dataclass(frozen=True, slots=True)
class _SupportedShell:
    """The place where a shell finds a user's completions, and a hint on what else it needs."""

    variable: str
    default: str
    file: str
    hint: str = ""

    @property
    def target(self) -> Path:
        return _user_folder(self.variable, self.default) / self.file


SHELLS: Final = {
    "bash": _SupportedShell("XDG_DATA_HOME", ".local/share", f"bash-completion/completions/{NAME}"),
    "zsh": _SupportedShell(
        "XDG_DATA_HOME",
        ".local/share",
        f"zsh/site-functions/_{NAME}",
        "; add that folder to fpath in ~/.zshrc, before compinit",
    ),
    "fish": _SupportedShell("XDG_CONFIG_HOME", ".config", f"fish/completions/{NAME}.fish"),
}


@click.command(cls=LocalVerb)
@click.argument("shell", required=False, type=click.Choice(list(SHELLS)))
@click.option("--print", "show", is_flag=True, help="Show the script, and write nothing.")
@click.pass_obj
def completion(invocation: Invocation, shell: str | None, *, show: bool) -> None:
    """Let the Tab key complete commands and options in shells started from now on.

    \b
      $ paxosblock setup completion
      completion for bash: ~/.local/share/bash-completion/completions/paxosblock

    SHELL is bash, zsh or fish; the default is the one that $SHELL names. The script goes where that
    shell looks for a user's completions.
    """
    from click.shell_completion import get_completion_class

    from paxosblock.cli.main import root

    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in SHELLS:
        raise click.UsageError(f"Which shell? One of {', '.join(SHELLS)}.")
    made = get_completion_class(shell)
    assert made is not None, "click knows all of them"
    source = made(root, {}, NAME, f"_{NAME.upper()}_COMPLETE").source()
    if show:
        click.echo(source)
        return
    target = SHELLS[shell].target
    _write(target, source)
    text = f"completion for {shell}: {target}{SHELLS[shell].hint}"
    invocation.say(text, {"shell": shell, "file": str(target)})


@click.command(cls=LocalVerb)
@click.option(
    "--to", "folder", type=click.Path(path_type=Path), help="Write the pages to this folder."
)
@click.pass_obj
def man(invocation: Invocation, *, folder: Path | None) -> None:
    """Install manual pages: one for each command, with the text of its --help.

    \b
      $ paxosblock setup man
      38 manual pages: ~/.local/share/man/man1; try: man paxosblock

    They go where `man` looks, or to the folder that --to names: beside a folder of PATH, which is
    ~/.local/bin or the one of this Python's environment. If neither is in PATH, a line says what to
    put into MANPATH.
    """
    from paxosblock.cli.main import root

    found = None if folder else _manual_of_path()
    usual = _user_folder("XDG_DATA_HOME", ".local/share") / "man"
    folder = folder or (found or usual) / "man1"
    count = 0
    for context in _commands(click.Context(root, info_name=NAME)):
        _write(folder / f"{context.command_path.replace(' ', '-')}.1", page(context))
        count += 1
    set_path = "" if found else f"MANPATH={folder.parent}: "  # behind the colon: the usual ones
    text = f"{count} manual pages: {folder}; try: {set_path}man {NAME}"
    invocation.say(text, {"pages": count, "folder": str(folder)})


def _manual_of_path() -> Path | None:
    """Return a folder of this user in which `man` looks because a folder of PATH is beside it."""
    in_path = os.environ.get("PATH", "").split(os.pathsep)
    for beside in (Path.home() / ".local", Path(sys.prefix)):
        if str(beside / "bin") in in_path and os.access(beside, os.W_OK):
            return beside / "share" / "man"
    return None


def page(context: click.Context) -> str:
    """Return the manual page of a command, in the language of man(7)."""
    command, path = context.command, context.command_path
    title = path.replace(" ", "-").upper()
    lines = [f'.TH "{title}" 1 "" "{NAME} {__version__}" "User Commands"']
    lines += [".SH NAME", rf"{_escaped(path)} \- {_escaped(command.get_short_help_str(200))}"]
    usage = " ".join(command.collect_usage_pieces(context))
    lines += [".SH SYNOPSIS", rf".B {_escaped(path)}", _escaped(usage)]
    lines += [".SH DESCRIPTION", *_paragraphs(command.help or "")]
    options = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and (record := parameter.get_help_record(context)) is not None
    ]
    lines += _entries("OPTIONS", options)
    if isinstance(command, LazyGroup):
        entries = [(name, entry.summary) for name, entry in command.entries.items()]
        lines += _entries("COMMANDS", entries)
        lines += [".PP", _escaped(f"Each has a page: {path.replace(' ', '-')}-{entries[0][0]}(1).")]
    return "\n".join(lines) + "\n"


def _commands(context: click.Context) -> Iterator[click.Context]:
    """Yield a context for a command and for each below it."""
    yield context
    command = context.command
    if isinstance(command, LazyGroup):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, "a group knows what it lists"
            yield from _commands(click.Context(below, parent=context, info_name=name))


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs of a help text; what click keeps as it is (after a backspace) stays so here."""
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.splitlines()
        kept = lines[0].strip() == "\b"
        yield ".PP"
        if kept:
            yield from (".nf", *map(_escaped, lines[1:]), ".fi")
        else:
            yield from map(_escaped, map(str.strip, lines))


def _entries(title: str, entries: list[tuple[str, str]]) -> Iterator[str]:
    if entries:
        yield f".SH {title}"
    for name, text in entries:
        yield from (".TP", rf"\fB{_escaped(name)}\fR", _escaped(text))


def _escaped(line: str) -> str:
    r"""Return a line that means itself: no `\` of its own, no `-` that becomes a hyphen, and no
    `.` or `'` that would begin a request."""
    text = line.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text.startswith((".", "'")) else text


def _user_folder(variable: str, default: str) -> Path:
    """Return a folder of the user as the XDG base directory specification finds it."""
    return Path(os.environ.get(variable) or Path.home() / default)


def _write(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(str(target), error.strerror or str(error)) from error
