"""`paxosblock fs getfacl` and `setfacl`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from paxosblock.api.namenode import FileStatus, Kind, PathRequest
from paxosblock.api.ownership import CHANGE_ACL, GET_ACL_STATUS, AclStatus, ChangePathAcl
from paxosblock.api.transaction import AclChange
from paxosblock.base.acl_entries import Acl, AclType, parse_acl, shown_bits
from paxosblock.cli.fs_names import AT
from paxosblock.cli.fs_owners import RECURSIVE, changed_each, for_each_below
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation
from paxosblock.errors import InvalidRequestError

_MINIMAL = 3
"""Entries that permission bits tell alone."""


@click.command(cls=Verb)
@RECURSIVE
@AT
@click.argument("words", nargs=-1, metavar="PATH")
@click.pass_obj
def getfacl(invocation: Invocation, *, recursive: bool, words: tuple[str, ...]) -> None:
    """Show who may do what: access control lists.

    \b
      $ paxosblock fs getfacl /logs
      # file: /logs
      # owner: ada
      # group: staff
      user::rwx
      user:bob:r-x
      group::r-x
      mask::r-x
      other::---

    A default list of a directory, which what is made in it gets, is shown, too. What the mask takes
    away stands behind an entry as #effective.
    """
    path = _one_path(words)

    def one(status: FileStatus) -> None:
        found = AclStatus(status.owner, status.group, status.permission)
        if status.has_acl:
            found = invocation.call(GET_ACL_STATUS, PathRequest(status.path))
        fact = {"path": status.path, "owner": found.owner, "group": found.group}
        fact |= {"acl": ",".join(map(str, found.acl))}
        invocation.say("\n".join(_shown(status.path, found)), fact)

    for_each_below(invocation, (path,), recursive, one)


def _shown(path: str, found: AclStatus) -> Iterator[str]:
    """Yield lines as `hdfs dfs -getfacl` prints them; an empty one ends them."""
    yield from (f"# file: {path}", f"# owner: {found.owner}", f"# group: {found.group}")
    if found.permission & 0o1000:
        yield f"# flags: --{'t' if found.permission & 1 else 'T'}"
    for default in (False, True):
        yield from _lines(tuple(entry for entry in found.acl if entry.default is default))
    yield ""


def _lines(entries: Acl) -> Iterator[str]:
    mask = next((each.permission for each in entries if each.type is AclType.MASK), 7)
    for entry in entries:
        given = entry.permission & mask
        bounded = entry.of_group_class and given != entry.permission and len(entries) > _MINIMAL
        yield f"{entry}\t#effective:{shown_bits(given)}" if bounded else str(entry)


@click.command(cls=Verb)
@RECURSIVE
@click.option("-b", "remove_all", is_flag=True, help="Remove all but the owner, group and others.")
@click.option("-k", "remove_default", is_flag=True, help="Remove the default list.")
@click.option("-m", "modify", is_flag=True, help="Add entries, or replace those for the same.")
@click.option("-x", "remove", is_flag=True, help="Remove entries; SPEC has no permissions then.")
@click.option("--set", "replace", is_flag=True, help="Replace the whole list.")
@click.argument("words", nargs=-1, metavar="[SPEC] PATH")
@click.pass_obj
def setfacl(
    invocation: Invocation,
    *,
    recursive: bool,
    remove_all: bool,
    remove_default: bool,
    modify: bool,
    remove: bool,
    replace: bool,
    words: tuple[str, ...],
) -> None:
    """Change who may do what: access control lists.

    \b
      $ paxosblock fs setfacl -m user:bob:r-x,default:group:dev:rwx /logs
      $ paxosblock fs setfacl -x user:bob /logs
      $ paxosblock fs setfacl -b /logs

    SPEC is [default:]user|group|mask|other:[NAME]:rwx, several with commas between them. With -R
    files get those entries that are not default. Prints nothing when it is done.
    """
    change = _change(remove_all, remove_default, modify, remove, replace)
    entries: Acl = ()
    if modify or remove or replace:
        if not words:
            raise click.UsageError("Missing arguments: <acl_spec> <path>")
        if len(words) == 1:
            raise click.UsageError("Missing either <acl_spec> or <path>")
        entries, words = _spec(words[0], permissions=not remove), words[1:]
    path = _one_path(words)
    if change is None:
        raise click.UsageError("Expected one of -b, -k, -m, -x or --set options")
    wanted = change

    def changed(status: FileStatus) -> FileStatus | None:
        fits = entries
        if recursive and status.kind is not Kind.DIRECTORY:
            fits = tuple(entry for entry in entries if not entry.default)
        if entries and not fits:
            return None
        return invocation.call_once(CHANGE_ACL, ChangePathAcl(status.path, wanted, fits))

    changed_each(invocation, (path,), recursive, changed)


def _change(
    remove_all: bool, remove_default: bool, modify: bool, remove: bool, replace: bool
) -> AclChange | None:
    """Return the change that the flags ask for."""
    clears, edits = remove_all or remove_default, modify or remove
    if (
        (remove_all and remove_default)
        or (modify and remove)
        or (clears and edits)
        or (replace and (clears or edits))
    ):
        raise click.UsageError("Specified flags contains both remove and modify flags")
    wanted = (
        (remove_all, AclChange.REMOVE),
        (remove_default, AclChange.REMOVE_DEFAULT),
        (modify, AclChange.MODIFY),
        (remove, AclChange.REMOVE_ENTRIES),
        (replace, AclChange.SET),
    )
    return next((change for flag, change in wanted if flag), None)


def _spec(written: str, *, permissions: bool) -> Acl:
    try:
        entries = parse_acl(written, permissions=permissions)
    except InvalidRequestError as error:
        raise click.UsageError(str(error)) from None
    if not entries:
        raise click.UsageError("Missing <acl_spec> entry")
    return entries


def _one_path(words: tuple[str, ...]) -> str:
    match words:
        case (path,):
            return path
        case ():
            raise click.UsageError("<path> is missing")
        case _:
            raise click.UsageError("Too many arguments")
