"""Master keys of encryption zones, and directories that become one."""

from __future__ import annotations

from pathlib import Path

from paxosblock import LocalCluster
from paxosblock.api.encryption import ENCRYPT_DIRECTORY, EncryptDirectory
from paxosblock.net.calls.control import call


def write_masters(file: Path, *numbers: int) -> None:
    """Let a file hold the master keys with these numbers, the one that wraps first."""
    file.write_text("".join(f"{bytes([number] * 32).hex()}\n" for number in numbers))
    file.chmod(0o600)


def encrypt(cluster: LocalCluster, path: str) -> None:
    """Make an empty directory an encryption zone."""
    call(cluster.namenode.address, ENCRYPT_DIRECTORY, EncryptDirectory(path), 30.0)
