"""A cluster with DataNodes that lie on the wire while they are told to."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from paxosblock import LocalCluster
from paxosblock.local.cluster_folder import NodeEntry


class LyingCluster(LocalCluster):
    """The DataNodes whose names begin with `liars` run the program `module`, which looks in a file
    for the lie that it shall tell."""

    module: ClassVar[str]
    liars: ClassVar[str]

    @property
    def switch(self) -> Path:
        return self.path / "switch"

    def command(self, member: NodeEntry) -> list[str]:
        command = super().command(member)
        if not member.name.startswith(self.liars):
            return command
        return [sys.executable, "-m", self.module, str(self.switch), *command[3:]]

    def lie(self, name: str) -> None:
        self.switch.with_suffix(".told").unlink(missing_ok=True)
        self.switch.write_text(name)

    def repent(self) -> None:
        self.switch.unlink(missing_ok=True)

    @property
    def has_lied(self) -> bool:
        return self.switch.with_suffix(".told").exists()
