"""`paxosblock help`: the documents, which come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from paxosblock.base.settings import did_you_mean
from paxosblock.cli.group import LocalVerb
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.cli.text import table

_PACKAGE: Final = Path(__file__).parents[1]
_PLACES: Final = (_PACKAGE / "documents", _PACKAGE.parent / "docs")
"""The folder of a wheel (setup.py), and that of a checkout."""


@click.command(cls=LocalVerb)
@click.argument("name", metavar="[PAGE]", required=False)
@click.pass_obj
def help(invocation: Invocation, name: str | None) -> None:
    """Show a page of the documents; without a name, list them.

    \b
      $ paxosblock help
      $ paxosblock help operations | less

    What a command does is in its own --help: paxosblock fs ls --help.
    """
    pages = _pages()
    if name is None:
        titles = {page: text.partition("\n")[0].lstrip("# ") for page, text in pages.items()}
        for line in table(("page", "about"), sorted(titles.items())):
            invocation.say(line)
        invocation.tell(titles)
        return
    text = pages.get(name.removesuffix(".md"))
    if text is None:
        near = did_you_mean(name, pages) or "; `paxosblock help` lists them"
        raise UserError(name, f"no such page{near}")
    invocation.say(text.rstrip(), {"page": name, "text": text})


def _pages() -> dict[str, str]:
    """Return the text of each page by name."""
    folder = next(filter(Path.is_dir, _PLACES), None)
    if folder is None:
        raise UserError("help", "this installation has no documents")
    return {page.stem: page.read_text(encoding="utf-8") for page in folder.glob("*.md")}
