"""The catalog with which a new member of a grown cluster begins: `GET /raft/seed` of the others.

    request   X-Raft-From, X-Raft-To, X-Raft-Nonce (16 random bytes), X-Raft-Proof
    answer    X-Raft-Lineage; the stream of a checkpoint (kv/rocks_files.py), a tag of 32 bytes

Proof and tag are HMAC-SHA256 with the cluster's secret over both names and the nonce; the tag
covers lineage and bytes, too. As in all messages between members, nothing is encrypted.

A member that was heard of before never gets the catalog again: it has lost its folder, and with it
votes and entries that the others count on.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web

from paxosblock.disk import OsDisk
from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    NoSpaceError,
    PaxosBlockError,
    ProtocolError,
    StorageError,
    UnavailableError,
)
from paxosblock.namenode.kv.table import Checkpoint, Receiver, pieces
from paxosblock.namenode.raft.member_folder import read_lines, write_lines
from paxosblock.namenode.raft.secure_channel import FROM, NONCE, PROOF, TO
from paxosblock.net.access_server import add_without_token
from paxosblock.net.handshake import NONCE_BYTES, Handshake, header_bytes, nonce_of
from paxosblock.units import KIB

SEED_PATH: Final = "/raft/seed"
JOIN_WITHIN_S: Final = 30.0
"""Seconds that a new member looks for another that has the catalog."""
ASK_AGAIN_S: Final = 0.2
SILENCE_S: Final = 10.0
JOINED: Final = "joined"
"""Name of the file that lists the other members that were heard of."""

_PIECE_BYTES = 256 * KIB
_TAG_BYTES = 32
_LINEAGE = "X-Raft-Lineage"

_log = logging.getLogger(__name__)


class Seeds:
    """Gives new members the catalog, in a cluster that grew out of a single NameNode."""

    def __init__(
        self,
        folder: Path,
        address: str,
        members: Sequence[str],
        secret: bytes,
        lineage: str,
        *,
        checkpoint: Callable[[], Awaitable[Checkpoint]],
    ) -> None:
        """Give away the result of `checkpoint`; `folder` is this member's."""
        self._folder, self._address, self._secret = folder, address, secret
        self._others = frozenset(members) - {address}
        self._lineage = lineage
        self._checkpoint = checkpoint
        self._disk = OsDisk()
        self._heard: dict[str, asyncio.Task[None]] = {}
        self._writing = asyncio.Lock()

    def add_to(self, app: web.Application) -> None:
        """Add the route."""
        add_without_token(app, SEED_PATH, self._give)

    def note(self, member: str) -> None:
        """Remember that a member was heard of: it gets no catalog, even after a restart."""
        if self._lineage and member not in self._heard:
            self._heard[member] = asyncio.create_task(self._write(), name=f"note {member}")

    async def _write(self) -> None:
        """Record the members that this process and those before it heard of."""
        async with self._writing:
            with contextlib.suppress(NoSpaceError, StorageError):  # the next message records them
                joined = await asyncio.to_thread(self._joined)
                if missing := self._heard.keys() - joined:
                    lines = sorted({*joined, *missing})
                    await asyncio.to_thread(write_lines, self._disk, self._folder / JOINED, lines)

    async def _give(self, request: web.Request) -> web.StreamResponse:
        question = _Question.read(request)
        known = question is not None and question.caller in self._others
        if question is None or not known or question.called != self._address:
            return _refusal(403, "only NameNodes of this cluster get its catalog")
        if not hmac.compare_digest(
            question.proof(self._secret), header_bytes(request.headers[PROOF])
        ):
            return _refusal(403, f"{question.caller} does not know the cluster's secret")
        if not self._lineage:
            return _refusal(404, f"{self._address} did not come from a single NameNode")
        caller = question.caller
        if caller in self._heard or caller in await asyncio.to_thread(self._joined):
            return _refusal(409, f"{caller} has been a member of this cluster")
        try:
            checkpoint = await self._checkpoint()
        except PaxosBlockError as error:
            return _refusal(503, f"{self._address} cannot give it now: {error}")
        try:
            return await self._send(request, question, checkpoint)
        finally:
            await asyncio.to_thread(checkpoint.close)

    def _joined(self) -> list[str]:
        there = JOINED in self._disk.names(self._folder)
        return read_lines(self._disk, self._folder / JOINED) if there else []

    async def _send(
        self, request: web.Request, question: _Question, checkpoint: Checkpoint
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={_LINEAGE: self._lineage})
        response.content_length = checkpoint.size_bytes + _TAG_BYTES
        await response.prepare(request)
        tag = question.tag(self._secret, self._lineage)
        unread = pieces(checkpoint, _PIECE_BYTES)
        while piece := await asyncio.to_thread(next, unread, b""):
            tag.update(piece)
            await response.write(piece)
        await response.write(tag.digest())
        _log.info("gave the catalog to %s, which comes to this cluster", question.caller)
        return response


@dataclass(frozen=True, slots=True)
class Seed:
    """The draft that a member's checkpoint was written to, and the lineage of its cluster."""

    lineage: str
    receiver: Receiver


async def fetch_seed(
    address: str,
    members: Sequence[str],
    secret: bytes,
    receive: Callable[[], Receiver],
    within_s: float = JOIN_WITHIN_S,
) -> Seed:
    """Fetch the catalog with which the member at `address` begins from one of the others.

    `receive` begins a draft, and blocks.

    Raises:
        ConfigError: another member knows it as a member, or has another secret or other peers.
        ProtocolError: the catalog was changed on its way.
        NoSpaceError, StorageError: the disk refuses.
        UnavailableError: no member had the catalog within `within_s`.
    """
    others = [member for member in members if member != address]
    until_s, why = asyncio.get_running_loop().time() + within_s, dict.fromkeys(others, "")
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE_S, sock_read=SILENCE_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        while asyncio.get_running_loop().time() < until_s:
            for peer in others:
                try:
                    question = _Question(address, peer, os.urandom(NONCE_BYTES))
                    return await _fetch(session, question, secret, receive)
                except UnavailableError as error:
                    why[peer] = str(error)
                except (OSError, aiohttp.ClientError, TimeoutError):
                    why[peer] = "no whole answer"
            await asyncio.sleep(ASK_AGAIN_S)
    reasons = ", ".join(f"{peer}: {words or 'not asked'}" for peer, words in why.items())
    raise UnavailableError(
        f"--join: nobody has a catalog for {address} ({reasons}): start the one first that was a "
        "cluster's only NameNode"
    )


async def _fetch(
    session: aiohttp.ClientSession,
    question: _Question,
    secret: bytes,
    receive: Callable[[], Receiver],
) -> Seed:
    """Ask one member for the catalog.

    Raises:
        ConfigError: the member refuses.
        UnavailableError: it may have the catalog later.
        ProtocolError: nothing proves that the answer is that member's.
    """
    async with session.get(
        f"http://{question.called}{SEED_PATH}", headers=question.headers(secret)
    ) as found:
        if found.status != 200:
            raise _refused(question, found.status, (await found.text()).strip())
        lineage = found.headers.get(_LINEAGE, "")
        tag = question.tag(secret, lineage)
        left = (found.content_length or 0) - _TAG_BYTES
        receiver = await asyncio.to_thread(receive)
        while left > 0 and (piece := await found.content.read(min(left, _PIECE_BYTES))):
            tag.update(piece)
            left -= len(piece)
            try:
                await asyncio.to_thread(receiver.write, piece)
            except CorruptionError as error:
                raise ProtocolError(f"{_changed(question)}: {error}") from error
        proof = await found.content.read()
    if left or not lineage or not hmac.compare_digest(tag.digest(), proof):
        raise ProtocolError(_changed(question))
    return Seed(lineage, receiver)


def _changed(question: _Question) -> str:
    return f"{question.called} sent a catalog that was changed on its way"


def _refused(question: _Question, status: int, words: str) -> ConfigError | UnavailableError:
    if status == 409:
        return ConfigError(
            f"--join: {words}, says {question.called}: a NameNode that lost its folder gets it "
            "back as docs/operations.md says"
        )
    if status == 403:
        return ConfigError(f"--join: {question.called} refuses: {words}")
    return UnavailableError(f"{words} ({status})")


@dataclass(frozen=True, slots=True)
class _Question:
    """A request for the catalog: its two members, and a nonce that nobody used before."""

    caller: str
    called: str
    nonce: bytes

    @classmethod
    def read(cls, request: web.Request) -> _Question | None:
        """Return the question of a request; None if a header is missing or wrong."""
        headers = request.headers
        if not {FROM, TO, NONCE, PROOF} <= headers.keys():
            return None
        nonce = nonce_of(headers[NONCE])
        return None if nonce is None else cls(headers[FROM], headers[TO], nonce)

    def headers(self, secret: bytes) -> dict[str, str]:
        """Return the headers of the request."""
        return {
            FROM: self.caller,
            TO: self.called,
            NONCE: self.nonce.hex(),
            PROOF: self.proof(secret).decode(),
        }

    def proof(self, secret: bytes) -> bytes:
        """Return the proof that only a holder of the secret can make, in hex."""
        return self._handshake.purpose(secret, b"seed").hex().encode()

    def tag(self, secret: bytes, lineage: str) -> hmac.HMAC:
        """Return the tag of the answer, to be updated with its bytes."""
        key = self._handshake.purpose(secret, b"seed answer")
        return hmac.new(key, lineage.encode() + b"\0", "sha256")

    @property
    def _handshake(self) -> Handshake:
        return Handshake(self.caller, self.called, self.nonce, b"")


def _refusal(status: int, words: str) -> web.Response:
    return web.Response(status=status, text=f"{words}\n")
