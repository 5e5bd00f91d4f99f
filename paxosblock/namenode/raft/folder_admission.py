"""May a folder vote, be born, be let in? The decisions, without I/O; tests/raft/admissions.py runs
these very functions through every order of starts, wrong flags, crashes and lost folders.

Whatever counts in an election has a *lineage*, a name that exactly one set of folders shares, and
members with different lineages are strangers to each other. So nothing is lost as long as no empty
folder comes by the lineage of a log that it does not have. There are two ways to get one:

* **Birth.** The folders of a new cluster are all empty, and all of its members must be there. Each
  draws a token. A folder that has heard the tokens of all *chooses* the lineage that they make, for
  good; it is born when it has heard that all others chose the same. So once one is born, no folder
  that is left can choose again: a second birth needs that all folders were lost.
* **Being let in.** A catalog that `admin grow` or `admin restore` planted has a first member, which
  alone lets the others in, once each: it writes down the token of the folder before it gives the
  catalog, and a folder with another token has been lost meanwhile. The catalog comes with the
  lineage; until it is durable the folder belongs to no cluster. And the first member lets no folder
  in before all others have asked it, each with an empty folder: one that has a log of an earlier
  lineage never asks, so a catalog that was planted beside it by mistake never gets a majority.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

LOST: Final = "a NameNode that lost its folder gets it back as `paxosblock help operations` says"

_LINEAGE_DIGITS = 32


@dataclass(frozen=True, slots=True)
class Newborn:
    """An empty folder on its way into a cluster: its `token`, drawn once, and the lineage that it
    has `chosen`, for good; "" if it has not."""

    token: str
    chosen: str = ""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The name that the folders of a cluster share; "" in a folder that belongs to no cluster yet.

    `born`: all members began empty, together. Otherwise one had the catalog first.
    """

    name: str
    born: bool


NOBODYS: Final = Lineage("", born=False)


@dataclass(frozen=True, slots=True)
class FolderStatus:
    """The answer of a member about its folder: the members it goes by, and either a lineage
    or a newborn's token and choice."""

    members: tuple[str, ...]
    lineage: str = ""
    token: str = ""
    chosen: str = ""


@dataclass(frozen=True, slots=True)
class Admissions:
    """The members that one let in, and those it only heard of: the `tokens` of their folders by
    address, "" of the latter. `first` is the one that had the catalog first; "" if that is not
    known here."""

    first: str
    tokens: Mapping[str, str]


class Admitted(msgspec.Struct, frozen=True):
    """The leader's answer to an empty folder that joins a running cluster, beside the catalog.

    The folder's `name` was in no list before. It goes by the list of `members` that counts, but
    stands for no election until it is in one itself. Its vote in `term` is the leader's: so it
    takes no message of an earlier term, and votes for no other in this one.
    """

    name: str
    members: tuple[str, ...]
    born: bool
    term: int
    leader: str


@dataclass(frozen=True, slots=True)
class Born:
    """The newborn is a member of this lineage, and has promised nothing yet."""

    lineage: Lineage


@dataclass(frozen=True, slots=True)
class Waits:
    """The newborn asks again; `why` names the members it waits for."""

    why: str


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The newborn asks another member."""

    why: str


@dataclass(frozen=True, slots=True)
class AdmissionRefused:
    """The newborn is not born, nor let in, and its process ends with these words."""

    why: str


def next_step(
    address: str, own: Newborn, members: tuple[str, ...], heard: Mapping[str, FolderStatus]
) -> Newborn | Born | Waits | AdmissionRefused:
    """Return what becomes of a newborn that asked all others once: a Newborn that has chosen, which
    must be durable before another member hears of it, or its end.

    Args:
        address: of the newborn.
        own: what its folder says.
        members: the addresses of all members, sorted.
        heard: what the others that answered say of theirs.
    """
    if (contrary := _contrary(own, members, heard)) is not None:
        return contrary
    if own.chosen and any(said.lineage == own.chosen for said in heard.values()):
        return Born(Lineage(own.chosen, born=True))
    missing = [peer for peer in members if peer != address and peer not in heard]
    if missing:
        return Waits(f"waits for {', '.join(missing)}: a new cluster begins when all have started")
    tokens = {address: own.token} | {peer: said.token for peer, said in heard.items()}
    chosen = own.chosen or lineage_of(tokens)
    for peer, said in heard.items():
        if said.chosen not in ("", chosen):
            return AdmissionRefused(
                f"{peer} began with another folder of one of the NameNodes: if nothing was ever "
                "stored in this cluster, empty the folders of all and start again"
            )
    if not own.chosen:
        return Newborn(own.token, chosen)
    late = [peer for peer, said in heard.items() if said.chosen != own.chosen]
    if late:
        return Waits(f"waits until {', '.join(late)} has heard of all")
    return Born(Lineage(own.chosen, born=True))


def _contrary(
    own: Newborn, members: tuple[str, ...], heard: Mapping[str, FolderStatus]
) -> AdmissionRefused | None:
    """Return why the newborn cannot be born with these others; None if it may be."""
    for peer, said in heard.items():
        if said.members != members:
            return AdmissionRefused(f"{peer} has other --peers: {','.join(said.members)}")
        if said.lineage and said.lineage != own.chosen:
            return AdmissionRefused(
                f"this cluster exists already, says {peer}: {LOST}; one that comes to a cluster "
                "which had a single NameNode starts with --join"
            )
    return None


def lineage_of(tokens: Mapping[str, str]) -> str:
    """Return the lineage that these members' tokens make."""
    text = "\n".join(f"{member} {tokens[member]}" for member in sorted(tokens))
    return hashlib.sha256(text.encode()).hexdigest()[:_LINEAGE_DIGITS]


def may_join(
    lineage: Lineage,
    address: str,
    members: tuple[str, ...],
    *,
    admissions: Admissions,
    asking: Mapping[str, FolderStatus],
    caller: str,
) -> AdmissionRefused | Elsewhere | Waits | None:
    """Return None if the member at `address` may give its catalog to the folder of `caller`, once
    its token is written down as admitted.

    Args:
        lineage: of the member.
        address: its own.
        members: the addresses of all members, sorted.
        admissions: what its folder says.
        asking: what the empty folders say that have asked this process, that of `caller` too.
        caller: asks now.
    """
    said = asking[caller]
    if said.members != members:
        return AdmissionRefused(f"{address} has other --peers: {','.join(members)}")
    if lineage.born or admissions.tokens.get(caller, said.token) != said.token:
        return AdmissionRefused(f"{caller} has been a member of this cluster: {LOST}")
    if admissions.first != address:
        return Elsewhere(
            f"{address} is not the one that had the catalog first, which lets others in"
        )
    missing = [each for each in members if each not in (address, *asking, *admissions.tokens)]
    if missing:
        return Waits(
            f"{address} waits for {', '.join(missing)}: the cluster begins when all others have "
            "been started with --join, each with an empty folder"
        )
    return None
