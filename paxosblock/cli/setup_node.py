"""`paxosblock setup node`: the unit of systemd, the settings and the folders of a node."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from paxosblock.cli.group import LocalVerb
from paxosblock.cli.invocation import Invocation, UserError

_FOLDER = click.Path(file_okay=False, path_type=Path)
_NAMES: Final = {"namenode": "NameNode", "datanode": "DataNode"}

_UNIT: Final = """\
# Made by `paxosblock setup node {role}`: change it as you like.
[Unit]
Description={name} of paxosblock
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=5min
StartLimitBurst=20

[Service]
User={user}
Environment=PAXOSBLOCK_ACCESS_FILE={etc}/access
ExecStart={command}
Restart=on-failure
RestartSec=1s
# A hung disk holds up the end of a DataNode for volume_hung_after (30 s).
TimeoutStopSec=60s
LimitNOFILE=65536
# It writes to its own folders and nowhere else; one that is missing keeps it from no other.
ProtectSystem=strict
ReadWritePaths={writes}
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictSUIDSGID=yes
LockPersonality=yes

[Install]
WantedBy=multi-user.target
"""
_SETTINGS: Final = """\
# Settings of this {name}: `paxosblock help settings` has all of them.
[{role}]
"""


@click.command(cls=LocalVerb)
@click.argument("role", type=click.Choice([*_NAMES]))
@click.option("--listen", metavar="HOST:PORT", required=True, help="As others reach this node.")
@click.option(
    "--path",
    metavar="DIR[,DIR...]",
    required=True,
    help="The folder of a NameNode; of a DataNode one on each disk.",
)
@click.option(
    "--namenodes", metavar="HOST:PORT[,...]", required=True, help="All NameNodes of the cluster."
)
@click.option("--user", default="paxosblock", show_default=True, help="Runs the node.")
@click.option(
    "--etc",
    type=_FOLDER,
    default="/etc/paxosblock",
    show_default=True,
    help="The folder for settings, and of the secrets.",
)
@click.option(
    "--units", type=_FOLDER, default="/etc/systemd/system", show_default=True, help="For the unit."
)
@click.pass_obj
def node(
    invocation: Invocation,
    *,
    role: str,
    listen: str,
    path: str,
    namenodes: str,
    user: str,
    etc: Path,
    units: Path,
) -> None:
    """Write what systemd needs to run a node of this machine: a unit, settings, folders.

    \b
      $ paxosblock setup node namenode --listen nn1:9870 --path /srv/nn \\
          --namenodes nn1:9870,nn2:9870,nn3:9870
      $ paxosblock setup node datanode --listen nn1:9864 --path /disk1/dn,/disk2/dn \\
          --namenodes nn1:9870,nn2:9870,nn3:9870

    Run it as root, once on each machine and for each of its nodes. What is there already, and is
    the same, stays; a file that is another is refused, and nothing is written. It starts nothing:
    the last lines say what to do next.
    """
    folders = [Path(part).absolute() for part in path.split(",") if part]
    if not folders or (role == "namenode" and len(folders) > 1):
        raise click.UsageError("--path: one folder for a NameNode, at least one for a DataNode")
    owner = _found(user)
    unit = units / f"paxosblock-{role}.service"
    settings = etc / f"{role}.toml"
    words = _words(role, folders, listen, namenodes, etc)
    command = " \\\n    ".join(words)
    writes = " ".join(map(str, folders)) if role == "namenode" else _if_there(folders)
    files = {
        unit: _UNIT.format(
            role=role, name=_NAMES[role], user=user, etc=etc, writes=writes, command=command
        )
    }
    if not settings.exists():  # an operator changes it
        files[settings] = _SETTINGS.format(role=role, name=_NAMES[role])
    for file, text in files.items():
        if file.exists() and file.read_text() != text:
            raise UserError(str(file), "it is there already, and is another: nothing was written")
    try:
        for folder in folders:
            _make(folder, owner)
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    except OSError as error:
        raise UserError(str(error.filename or ""), (error.strerror or "failed").lower()) from error
    for made in (*folders, settings, unit):
        invocation.say(f"{made} is there", {"made": str(made)})
    for step in _next_steps(role, words, namenodes, etc, unit):
        invocation.say(f"next: {step}", {"next": step})


def _found(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError as error:
        how = f"useradd --system --no-create-home {user}"
        raise UserError(user, f"there is no such user of this machine: {how}") from error


def _make(folder: Path, owner: pwd.struct_passwd) -> None:
    folder.mkdir(0o700, parents=True, exist_ok=True)
    if os.geteuid() == 0 and folder.stat().st_uid != owner.pw_uid and not any(folder.iterdir()):
        os.chown(folder, owner.pw_uid, owner.pw_gid)


def _words(
    role: str, folders: Sequence[Path], listen: str, namenodes: str, etc: Path
) -> tuple[str, ...]:
    """Return the command line of the node, option by option."""
    program = Path(sys.prefix) / "bin" / "paxosblock"
    several = "," in namenodes
    common = (
        f"{program} {role}",
        f"--path {','.join(map(str, folders))}",
        f"--listen {listen}",
        f"--config {etc}/{role}.toml",
    )
    if role == "datanode":
        return (*common, f"--namenodes {namenodes}")
    of_several = (f"--peers {namenodes}", f"--secret-file {etc}/secret")
    return (*common, *of_several) if several else common


def _if_there(folders: Sequence[Path]) -> str:
    return " ".join(f"-{folder}" for folder in folders)


def _next_steps(
    role: str, words: Sequence[str], namenodes: str, etc: Path, unit: Path
) -> list[str]:
    """Return what the operator does now."""
    secrets = [etc / "access"]
    several = role == "namenode" and "," in namenodes
    if several:
        secrets.append(etc / "secret")
    steps = [
        f"paxosblock setup secret {file}, once, and the same file on each machine"
        for file in secrets
        if not file.exists()
    ]
    if several:
        steps.append(
            "the first start of a new cluster by hand, on all NameNodes, then Ctrl-C: "
            f"PAXOSBLOCK_ACCESS_FILE={etc}/access {' '.join(words)} --new-cluster"
        )
    if Path(sys.prefix).is_relative_to(Path.home()):
        steps.append("install paxosblock elsewhere, as in /opt: a unit sees nobody's home")
    return [*steps, f"systemctl enable --now {unit.stem}"]
