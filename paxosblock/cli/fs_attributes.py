"""`paxosblock fs getfattr` and `setfattr`."""

from __future__ import annotations

import click

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.path_attributes import (
    GET_ATTRIBUTES,
    SET_ATTRIBUTES,
    GetAttributes,
    SetPathAttributes,
)
from paxosblock.base.attribute_values import Encoding, decoded, encoded
from paxosblock.cli.fs_names import AT, for_each_path, walked
from paxosblock.cli.fs_owners import RECURSIVE
from paxosblock.cli.group import Verb
from paxosblock.cli.invocation import Invocation, UserError


@click.command(cls=Verb)
@RECURSIVE
@click.option("-n", "name", metavar="NAME", help="Show this attribute.")
@click.option("-d", "all_of_them", is_flag=True, help="Show all attributes.")
@click.option(
    "-e",
    "encoding",
    type=click.Choice([each.value for each in Encoding], case_sensitive=False),
    help="The form of the values; else text, or hex for what cannot be shown.",
)
@AT
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def getfattr(
    invocation: Invocation,
    *,
    recursive: bool,
    name: str | None,
    all_of_them: bool,
    encoding: str | None,
    paths: tuple[str, ...],
) -> None:
    """Show attributes of files and directories.

    \b
      $ paxosblock fs getfattr -d /logs/a.log
      # file: /logs/a.log
      user.origin="web-3"
    """
    if (name is not None) == all_of_them:
        raise click.UsageError("Must specify '-n name' or '-d' option.")
    form, names = (Encoding(encoding.lower()) if encoding else None), (name,) if name else ()

    def shown_of(path: str) -> Kind:
        found = invocation.call(GET_ATTRIBUTES, GetAttributes(path, names))
        if missing := [each for each in names if each not in found.attributes]:
            raise UserError(path, f"has no attribute {missing[0]}")
        shown = {each: encoded(value, form) for each, value in sorted(found.attributes.items())}
        lines = [f"{each}={shown[each]}" if found.attributes[each] else each for each in shown]
        fact = {"path": path, "attributes": shown}
        invocation.say("\n".join([f"# file: {path}", *lines]), fact)
        return found.status.kind

    def show(status: FileStatus) -> None:
        shown_of(status.path)

    def named(path: str) -> None:
        if shown_of(path) is Kind.DIRECTORY and recursive:
            invocation.for_each(walked(invocation, path), show)

    for_each_path(invocation, paths, named)


@click.command(cls=Verb)
@click.option("-n", "name", metavar="NAME", help="Set this attribute.")
@click.option("-v", "value", metavar="VALUE", help='Text, perhaps in "", or 0xHEX or 0sBASE64.')
@click.option("-x", "removed", metavar="NAME", help="Remove this attribute.")
@click.argument("paths", nargs=-1, required=True)
@click.pass_obj
def setfattr(
    invocation: Invocation,
    *,
    name: str | None,
    value: str | None,
    removed: str | None,
    paths: tuple[str, ...],
) -> None:
    """Set or remove an attribute of files and directories: a named value that stays with them.

    \b
      $ paxosblock fs setfattr -n user.origin -v web-3 /logs/a.log
      $ paxosblock fs setfattr -x user.origin /logs/a.log

    A name begins with user., or with trusted. for superusers. Prints nothing when it is done.
    """
    if name is not None and removed is not None:
        raise click.UsageError("Can not specify both '-n name' and '-x name' option.")
    wanted: dict[str, bytes | None]
    try:
        if removed is not None:
            wanted = {removed: None}
        elif name is not None:
            wanted = {name: decoded(value or "")}
        else:
            raise click.UsageError("Must specify '-n name' or '-x name' option.")
    except ValueError as error:
        raise click.UsageError(f"'{value}' is no value: {error}") from error

    def change(path: str) -> None:
        if removed is not None:
            found = invocation.call(GET_ATTRIBUTES, GetAttributes(path, (removed,)))
            if not found.attributes:
                raise UserError(path, f"has no attribute {removed}")
        invocation.tell(invocation.call_once(SET_ATTRIBUTES, SetPathAttributes(path, wanted)))

    for_each_path(invocation, paths, change)
