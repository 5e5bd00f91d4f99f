"""`paxosblock bench` where only the package is installed: the benchmarks are not in it."""

from __future__ import annotations

import click

from paxosblock.cli.group import LocalVerb
from paxosblock.errors import ConfigError


@click.command(cls=LocalVerb, context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[CASE]...")
def bench(words: tuple[str, ...]) -> None:
    """Say where the benchmarks are: in the repository, from which `make` installs.

    \b
      $ git clone REPOSITORY && cd paxosblock && make
      $ .venv/bin/paxosblock bench write calls
    """
    raise ConfigError(
        "the benchmarks are in the repository and not in the package: "
        "run `make bench` in a checkout"
    )
