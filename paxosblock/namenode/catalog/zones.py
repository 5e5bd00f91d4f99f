"""Encryption zones: directories whose files clients encrypt. Decided on a `Draft`.

The mark is in each inode: what is made in a directory with a `zone` gets it, and keeps it wherever
it goes, which can only be within the zone; a block has that of its file. So no walk up to the top
is needed to find out, and blocks that a concat moves are still read with the right key. The zone's
record has its key, wrapped; `zone_keys.py` unwraps it. The record stays when the directory is
deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from paxosblock.api.encryption import ZONES_MAX, EncryptDirectory, EncryptionZone
from paxosblock.api.namenode import CreateFile
from paxosblock.base import paths
from paxosblock.errors import DirectoryNotEmptyError, InvalidRequestError, NotFoundError
from paxosblock.namenode.catalog import keys, tree
from paxosblock.namenode.catalog.draft import Draft, Reads, inode_of
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.catalog.records import (
    DirectoryInode,
    Inode,
    Zone,
    asked_for,
    decode_zone,
    encode,
    inode_in,
)


def encrypt(
    draft: Draft, request: EncryptDirectory, wrapped: Callable[[int], Zone], actor: Actor
) -> EncryptionZone:
    """Make an empty directory a zone; `wrapped` makes the record of the zone with this top.

    Raises:
        NotFoundError: there is no such directory.
        InvalidRequestError: it is the root, a file, or in a zone already; or there are too many.
        DirectoryNotEmptyError: something is in it.
    """
    path = request.path
    if not paths.split(path):
        raise InvalidRequestError("'/': the root is no encryption zone; encrypt one below it")
    inode = tree.find_inode(draft, path, actor)
    shown = paths.shown(path)
    if not isinstance(inode, DirectoryInode):
        text = f"{shown}: Attempt to create an encryption zone for a file."
        raise InvalidRequestError(text, path=path)
    if inode.zone:
        what = "is already" if inode.zone == inode.number else "is already in"
        raise InvalidRequestError(f"Directory {shown} {what} an encryption zone.", path=path)
    span = keys.entries(inode.number)
    if next(draft.scan(*span, 1), None) is not None:
        text = f"{shown}: Attempt to create an encryption zone for a non-empty directory."
        raise DirectoryNotEmptyError(text, path=path)
    draft.expect_empty(span)
    if len(list(draft.scan(*keys.ZONES, ZONES_MAX))) >= ZONES_MAX:
        raise InvalidRequestError(f"{shown}: a cluster has at most {ZONES_MAX} encryption zones")
    zone = wrapped(inode.number)
    draft.put(keys.zone(inode.number), encode(zone))
    draft.put_inode(asked_for(msgspec.structs.replace(inode, zone=inode.number)))
    # A decision of this moment that makes something in the directory has read its entry, and not
    # its inode: with this it is made again.
    tree.write_again(draft, keys.entry(inode.parent, inode.name))
    return EncryptionZone(path, inode.number, zone.master)


def find(reads: Reads, number: int) -> Zone:
    """Return the record of a zone. Raises NotFoundError if there is none."""
    found = reads.get(keys.zone(number))
    if not found.exists:
        raise NotFoundError(f"encryption zone {number}: there is no such zone", file=number)
    return decode_zone(found.value)


def records(reads: Reads) -> Iterator[tuple[int, Zone]]:
    """Yield the top of each zone that there ever was, and its record."""
    for key, found in reads.scan(*keys.ZONES):
        yield keys.number_of(key), decode_zone(found.value)


def shown(reads: Reads) -> tuple[EncryptionZone, ...]:
    """Return the zones whose directories are there."""
    zones: list[EncryptionZone] = []
    for number, zone in records(reads):
        inode = inode_of(reads, number)
        path = None if inode is None else tree.path_of(reads, inode)
        if path is not None:
            zones.append(EncryptionZone(path, number, zone.master))
    return tuple(zones)


def roll(draft: Draft, again: Callable[[int, Zone], Zone]) -> int:
    """Wrap the key of each zone `again`; return how many records changed."""
    changed = [(n, before, again(n, before)) for n, before in records(draft)]
    for number, before, after in changed:
        if after is not before:
            draft.put(keys.zone(number), encode(after))
    return sum(after is not before for _, before, after in changed)


def check_goes(reads: Reads, inode: Inode, path: str, zone: int) -> None:
    """Demand that what is at `path` may go into a directory, or be joined to a file, of `zone`; the
    top of a zone may go where none is.

    Raises:
        InvalidRequestError: it would cross the border of a zone. The words are HDFS's.
    """
    if inode.zone == zone or (inode.zone == inode.number and not zone):
        return
    if not zone:
        where = "from an encryption zone."
    elif not inode.zone:
        where = "into an encryption zone."
    else:
        one, other = _top(reads, inode.zone), _top(reads, zone)
        where = f"from encryption zone {one} to encryption zone {other}."
    raise InvalidRequestError(f"{path} can't be moved {where}", path=path)


def of_earlier_client(path: str) -> InvalidRequestError:
    """Return the error for a client that knows nothing of encryption: what it reads would not be
    what was written, and what it writes no reader could decrypt."""
    text = f"{paths.shown(path)}: is encrypted; this client of an earlier version cannot do that"
    return InvalidRequestError(text, path=path)


def of_new(draft: Draft, request: CreateFile, above: Inode, actor: Actor) -> int:
    """Return the zone of a new file in the directory `above` that is made for another place, or by
    a client that cannot encrypt.

    Raises:
        InvalidRequestError: the directory is in another zone than that place.
        NotDirectoryError, PermissionDeniedError: as `tree.descend`.
    """
    if not request.zone_of:
        if above.zone:
            raise of_earlier_client(request.path)
        return 0
    # The entries on the way are preconditions, and say when a directory becomes a zone.
    target, _ = tree.descend(draft, paths.split(request.zone_of), actor)
    zone = inode_in(draft.peek(keys.inode(target.number))).zone
    if above.zone not in (0, zone):
        text = f"{paths.shown(request.path)}: is in another encryption zone than {request.zone_of}"
        raise InvalidRequestError(text, path=request.path)
    return zone


def _top(reads: Reads, number: int) -> str:
    """Return the path of the top of a zone."""
    inode = inode_of(reads, number)
    return (None if inode is None else tree.path_of(reads, inode)) or f"{number}, which is deleted"
