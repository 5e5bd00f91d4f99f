"""`paxosblock admin token`: tokens of users, which programs bring instead of a certificate."""

from __future__ import annotations

import time

import click
import msgspec

from paxosblock.api.user_tokens import (
    ISSUE_TOKEN,
    LIST_TOKENS,
    REVOKE_TOKEN,
    IssueToken,
    ListedToken,
    ListTokens,
    RevokeToken,
    TokenRight,
    serial_of,
    serial_text,
)
from paxosblock.cli.group import Verb, read_option, seconds
from paxosblock.cli.invocation import Invocation
from paxosblock.errors import ConfigError


def _rights(_: click.Context, __: click.Parameter, written: str) -> TokenRight:
    return read_option(_parsed_rights, written)


def _parsed_rights(written: str) -> TokenRight:
    known, found = TokenRight(sum(TokenRight)).names, TokenRight.NONE
    for word in written.split(","):
        if word.strip() not in known:
            raise ConfigError(f"{word.strip()!r} is none of {', '.join(known)}")
        found |= TokenRight[word.strip().upper()]
    return found


@click.command(cls=Verb)
@click.option(
    "--for",
    "lasts",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="The time for which it is good, at most 7d.",
)
@click.option(
    "--rights",
    default="read,write",
    show_default=True,
    callback=_rights,
    help="Of read, write, backup, admin: what it is good for.",
)
@click.option("--purpose", default="", help="What it is for, in your words, for the list.")
@click.option("--user", default="", help="Another user than you; for superusers.")
@click.option(
    "--groups",
    default="",
    metavar="GROUP[,...]",
    help="Of your groups, those that it has.  [default: all]",
)
@click.pass_obj
def issue(
    invocation: Invocation,
    *,
    lasts: str,
    rights: TokenRight,
    purpose: str,
    user: str,
    groups: str,
) -> None:
    """Make a token, and print it: nothing shows it again.

    \b
      $ (umask 077; paxosblock admin token issue --for 7d --purpose etl > ~/.etl-token)
      $ PAXOSBLOCK_TOKEN_FILE=~/.etl-token paxosblock fs ls /
      $ curl --cacert ca.pem -H "Authorization: Bearer $(paxosblock admin token issue \\
          --for 10min --rights backup)" https://nn1:9870/backup -o catalog

    Who has it is you, with no more than its rights, until it ends or is revoked: read changes
    nothing, write changes names and files, backup takes a backup, and admin makes the calls of
    operators, the last two if you are a superuser. A token that you make while you are here by a
    token has no further rights and ends no later.
    """
    named = tuple(group.strip() for group in groups.split(",") if group.strip())
    request = IssueToken(seconds(lasts), int(rights), purpose, user, named)
    made = invocation.call(ISSUE_TOKEN, request)
    invocation.say(made.token, made)


@click.command("list", cls=Verb)
@click.pass_obj
def show(invocation: Invocation) -> None:
    """Show your tokens that have not ended; to a superuser those of all users.

    \b
      $ paxosblock admin token list
      9f86d081884c7d65  ann  read,write  until 2026-12-04 09:30 UTC  etl
      2c26b46b68ffc68f  ann  read        until 2026-12-04 10:00 UTC, revoked
    """
    found = invocation.call(LIST_TOKENS, ListTokens()).tokens
    width = max((len(each.note.user) for each in found), default=0)
    for each in found:
        fact = msgspec.to_builtins(each.note) | {
            "serial": serial_text(each.note.serial),
            "rights": TokenRight(each.note.rights).names,
            "revoked": each.revoked,
        }
        invocation.say(_line(each, width), fact)


def _line(each: ListedToken, width: int) -> str:
    note = each.note
    end = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(note.until_s))
    state = f"until {end}{', revoked' if each.revoked else ''}"
    rights = str(TokenRight(note.rights))
    line = f"{serial_text(note.serial)}  {note.user:<{width}}  {rights:<10}  {state}"
    return f"{line}  {note.purpose}".rstrip()


@click.command(cls=Verb)
@click.argument("serials", nargs=-1, required=True)
@click.pass_obj
def revoke(invocation: Invocation, serials: tuple[str, ...]) -> None:
    """Let no node believe a token any more: one of yours, or any if you are a superuser.

    \b
      $ paxosblock admin token revoke 9f86d081884c7d65

    NameNodes refuse it from then on, on open connections, too, and DataNodes within a heartbeat.
    """

    def revoke_one(serial: str) -> None:
        invocation.call(REVOKE_TOKEN, RevokeToken(serial_of(serial)))
        invocation.tell({"serial": serial, "revoked": True})

    invocation.for_each(serials, revoke_one)


token = click.Group(
    "token",
    short_help="Issue, list or revoke tokens of users.",
    help="""Issue, list or revoke tokens, by which programs act as a user without a certificate.

    \b
      $ paxosblock admin token issue --for 24h --purpose "nightly job"
      $ paxosblock admin token list
      $ paxosblock admin token revoke 9f86d081884c7d65
    """,
    commands={"issue": issue, "list": show, "revoke": revoke},
)
