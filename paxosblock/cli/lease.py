"""`paxosblock admin recover-lease`, and the same as `fs recover-lease`."""

from __future__ import annotations

import sys
from typing import Final

import click

from paxosblock.api.lease_call import (
    RECOVER_LEASE,
    AskedMember,
    GiveUp,
    LeaseRecovery,
    MemberAnswer,
    RecoverLease,
    StuckBlock,
)
from paxosblock.api.namenode import BlockMember
from paxosblock.cli.fs_names import the_one
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.cli.text import counted
from paxosblock.errors import Outcome

TRIES: Final = 3
"""Tries at a force: it may join a recovery that began without it, and end with it."""

_ANSWERS = {
    MemberAnswer.STRONG: "knows its votes",
    MemberAnswer.WEAK: "weak: may have lost votes in a power cut",
    MemberAnswer.REFUSED: "refused",
    MemberAnswer.UNREACHABLE: "unreachable",
    MemberAnswer.NOTHING: "has nothing of it",
}


@click.command(cls=Verb)
@click.argument("path")
@click.option(
    "--force", is_flag=True, help="If there is no other way, end it with the replicas left."
)
@click.option("--yes", is_flag=True, help="With --force: do not ask.")
@click.pass_obj
def recover_lease(invocation: Invocation, path: str, *, force: bool, yes: bool) -> None:
    """End the writing of a file whose writer is gone or has to go: decide its length, and close it.
    (HDFS: debug recoverLease)

    \b
      $ paxosblock admin recover-lease /logs/a.log
      '/logs/a.log' is closed: 4096 bytes
      $ paxosblock fs recover-lease /logs/a.log            # the same

    Nothing that was acknowledged is lost, and a file that is closed stays as it is. This needs
    enough members of the file's last block, including one that did not forget votes in a power cut.
    When they do not come back, the command shows the answers of all members, and what --force would
    do: end the block with the longest log of those that answer, and give the others up. What only
    those held is then lost; the command says how much that may be. --force asks you to confirm.

    After a restore no DataNode may have anything of the block that a file was being written in, or
    of an empty one at its end: its writer may have died before it made a replica, or the block or
    the file was deleted since the backup. Once safe mode is left and all DataNodes have told what
    they hold, --force ends such a block empty, and the file with what is before it. The command
    names DataNodes that are not heard.

    Exit code 1 when the file is not closed, or its last block not ended.
    """
    _check_options(invocation, force=force, yes=yes)
    where = the_one(invocation, path)
    found = invocation.call(RECOVER_LEASE, RecoverLease(where))
    if found.stuck:
        for block in found.stuck:
            _show(invocation, block)
        if not force:
            raise _not_ended(where, found, f". {_what_to_do(found)}")
        found = _forced(invocation, where, found, yes=yes)
    closed = f"'{where}' is closed: {counted(found.status.size, 'byte', 'bytes')}"
    invocation.say(closed, found)


def _check_options(invocation: Invocation, *, force: bool, yes: bool) -> None:
    if yes and not force:
        raise click.UsageError("--yes goes with --force")
    if force and not yes and (invocation.json or not sys.stdin.isatty()):
        raise click.UsageError("--force asks for a yes: where nobody can be asked, add --yes")


def _forced(invocation: Invocation, path: str, found: LeaseRecovery, *, yes: bool) -> LeaseRecovery:
    """Give up the members that did not answer, if the user says yes."""
    if any(map(_is_beyond_force, found.stuck)):
        raise _not_ended(path, found, f", and force cannot help. {_what_to_do(found)}")
    if not yes and not click.confirm("End it with what is left?", err=True):
        raise _not_ended(path, found, ": nothing was forced")
    known = (each for each in found.stuck if not each.restored)
    given_up = tuple(GiveUp(each.block, each.silent) for each in known if each.silent)
    empty = tuple(each.block for each in found.stuck if each.may_be_empty)
    after = found
    for _ in range(TRIES):
        after = invocation.call(RECOVER_LEASE, RecoverLease(path, given_up, empty))
        if not after.stuck:
            return after
    raise _not_ended(path, after, f": {after.reason}")


def _is_beyond_force(block: StuckBlock) -> bool:
    """True if nothing can be concluded: no member answers, or a backup's block may be somewhere."""
    if block.restored:
        return not block.may_be_empty
    return len(block.silent) == len(block.members)


def _not_ended(path: str, found: LeaseRecovery, why: str) -> UserError:
    """Return the error that says what was done: the writer is fenced, recovered blocks stay so."""
    what = "is not closed" if found.status.open else "is closed, and its last block is not ended"
    return UserError(path, f"{what}{why}").with_outcome(Outcome.UNKNOWN)


def _what_to_do(found: LeaseRecovery) -> str:
    unsure = [block.unsure for block in found.stuck if block.unsure]
    if unsure:
        return f"After a restore {unsure[0]}"
    if any(block.may_be_empty for block in found.stuck):
        return "If all DataNodes that may have something of it are heard, end it empty: --force"
    silent = (each for block in found.stuck for each in block.members if not each.voted)
    missing = sorted({_name(each.member) for each in silent})
    if any(len(block.silent) == len(block.members) for block in found.stuck):
        return f"No member of its last block answers: bring one back of {', '.join(missing)}"
    return f"Bring back {', '.join(missing)}, or end it without them: --force"


def _show_restored(invocation: Invocation, block: StuckBlock) -> None:
    known = "no DataNode that is heard has anything of it" if block.may_be_empty else block.unsure
    invocation.say(f"block {block.block} is of a backup: {known}", block)
    for member in block.members:
        invocation.say(f"  {_describe_member(member)}")
    if block.unheard:
        invocation.say(f"  not heard: {', '.join(block.unheard)}")
    if block.may_be_empty:
        invocation.say("  --force: it ends empty; what DataNodes that are not heard have is lost")


def _show(invocation: Invocation, block: StuckBlock) -> None:
    if block.restored:
        _show_restored(invocation, block)
        return
    invocation.say(
        f"block {block.block} is not ended: {block.needed} of its {len(block.members)} members "
        "must answer, one of them sure of its votes",
        block,
    )
    for member in block.members:
        invocation.say(f"  {_describe_member(member)}")
    if len(block.silent) < len(block.members):
        invocation.say(
            f"  --force: it ends with {counted(block.length, 'chunk', 'chunks')}, "
            f"{counted(block.size_bytes, 'byte', 'bytes')}"
        )
        invocation.say(f"  may be lost: {_describe_loss(block)}")


def _describe_member(asked: AskedMember) -> str:
    member = asked.member
    where = f"{member.storage} of {_name(member)}"
    if asked.voted:
        held = (
            f"generation {asked.generation}, {counted(asked.length, 'chunk', 'chunks')}, "
            f"{counted(asked.size_bytes, 'byte', 'bytes')}"
        )
        return f"{where}: {_ANSWERS[asked.answer]}; {held}"
    return f"{where}: {_ANSWERS[asked.answer]}" + (f": {asked.reason}" if asked.reason else "")


def _name(member: BlockMember) -> str:
    """Name the DataNode that an operator should look at, not the storage in it."""
    return f"{member.node or member.storage} at {member.address or 'an unknown address'}"


def _describe_loss(block: StuckBlock) -> str:
    if not block.at_risk_bytes:
        return "nothing that was acknowledged; perhaps what readers saw before it was"
    return (
        f"what was acknowledged behind these {counted(block.size_bytes, 'byte', 'bytes')}, at most "
        f"{counted(block.at_risk_bytes, 'byte', 'bytes')}, if it was not on the others' disks"
    )
