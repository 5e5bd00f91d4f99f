"""The empty folders of a new cluster become its members: `GET /raft/birth` of the others.

    request   those of question.py
    answer    a FolderStatus (folder_admission.py) as JSON, X-Raft-Proof

Every newborn asks all others, all members answer, and `next_step` decides. What a newborn chose is
durable before it is told, and it has no vote before it is born.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec
from aiohttp import web

from paxosblock.base.encoding import json_decoder
from paxosblock.errors import AccessDeniedError, ConfigError, UnavailableError
from paxosblock.host.disk import Disk, OsDisk
from paxosblock.namenode.raft.folder_admission import (
    AdmissionRefused,
    Born,
    FolderStatus,
    Lineage,
    Newborn,
    Waits,
    next_step,
)
from paxosblock.namenode.raft.member_folder import make_member, write_newborn
from paxosblock.namenode.raft.question import PROOF, Question, ask, session_of
from paxosblock.namenode.raft.vote_file import ElectionVote
from paxosblock.net.port.access_server import add_without_token
from paxosblock.net.port.doorkeeper import check_namenode
from paxosblock.net.port.handshake import header_bytes

if TYPE_CHECKING:
    from paxosblock.net.port.tls import Tls

BIRTH_PATH: Final = "/raft/birth"
ASK_AGAIN_S: Final = 0.1
SILENCE_S: Final = 3.0
_PURPOSE = b"birth"
_STANDING = json_decoder(FolderStatus)

_log = logging.getLogger(__name__)


class Birth:
    """Tells the others what this member's folder is, and has it born if it is a newborn's."""

    def __init__(
        self,
        folder: Path,
        address: str,
        members: Sequence[str],
        secret: bytes,
        own: Newborn | Lineage,
        *,
        disk: Disk | None = None,
        tls: Tls | None = None,
    ) -> None:
        """Speak for the member at `address`, whose folder says `own`; `disk` has the folder."""
        self._tls = tls
        self._said_of: dict[str, str] = {}
        self._folder, self._address, self._secret = folder, address, secret
        self._members = tuple(sorted(members))
        self._own = own
        self._disk = disk or OsDisk()

    def add_to(self, app: web.Application) -> None:
        """Add the route."""
        add_without_token(app, BIRTH_PATH, self._answer)

    async def finish(self) -> Lineage:
        """Return the lineage of this member, at once unless it is a newborn: then once it is born,
        which takes until all members have been started.

        Raises:
            ConfigError: it cannot be born, because the cluster exists, or another member has
                another secret or other peers.
            NoSpaceError, StorageError: the disk refuses.
        """
        timeout = aiohttp.ClientTimeout(total=SILENCE_S)
        async with session_of(self._tls, timeout) as session:
            return await self.be_born(partial(self._ask_all, session))

    async def be_born(
        self, ask_all: Callable[[], Awaitable[Mapping[str, FolderStatus]]]
    ) -> Lineage:
        """Do as `finish`, and raise what it raises; `ask_all` returns what the others that answer
        say."""
        said = ""
        while isinstance(own := self._own, Newborn):
            match next_step(self._address, own, self._members, await ask_all()):
                case Newborn() as step:
                    await asyncio.to_thread(write_newborn, self._disk, self._folder, step)
                    self._own = step
                case Born(lineage):
                    await asyncio.to_thread(self._be_member, lineage)
                    self._own = lineage
                case AdmissionRefused(why):
                    raise ConfigError(f"--new-cluster: {why}")
                case Waits(why):
                    if why != said:
                        _log.info("%s %s", self._address, said := why)
                    await asyncio.sleep(ASK_AGAIN_S)
        return own

    def _be_member(self, lineage: Lineage) -> None:
        make_member(self._disk, self._folder, self._members, lineage, ElectionVote(0, None))

    @property
    def status(self) -> FolderStatus:
        """The answer of this member to another one that asks."""
        own = self._own
        if isinstance(own, Newborn):
            return FolderStatus(self._members, token=own.token, chosen=own.chosen)
        return FolderStatus(self._members, lineage=own.name)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        try:
            check_namenode(self._tls, request)
            question = Question.heard(_PURPOSE, request.headers, self._secret, called=self._address)
        except AccessDeniedError as error:
            return web.Response(status=403, text=f"{error}\n")
        body = msgspec.json.encode(self.status)
        tag = question.tag(self._secret)
        tag.update(body)
        return web.Response(body=body, headers={PROOF: tag.hexdigest()})

    async def _ask_all(self, session: aiohttp.ClientSession) -> dict[str, FolderStatus]:
        """Return what the others that answer say.

        Raises:
            ConfigError: one of them refuses to answer.
        """
        others = [member for member in self._members if member != self._address]
        answers = await asyncio.gather(*(self._ask(session, peer) for peer in others))
        return {peer: said for peer, said in zip(others, answers, strict=True) if said is not None}

    async def _ask(self, session: aiohttp.ClientSession, peer: str) -> FolderStatus | None:
        question = Question.fresh(_PURPOSE, self._address, peer)
        try:
            headers = question.headers(self._secret)
            async with await ask(session, peer, BIRTH_PATH, headers, self._tls) as found:
                body = await found.read()
                status, proof = found.status, found.headers.get(PROOF, "")
        except UnavailableError as error:
            if self._said_of.get(peer) != str(error):
                _log.warning("%s", error)
            self._said_of[peer] = str(error)
            return None
        except (OSError, aiohttp.ClientError, TimeoutError):
            return None
        if status == 403:
            words = body.decode(errors="replace").strip()
            raise ConfigError(f"--new-cluster: {peer} refuses: {words}")
        tag = question.tag(self._secret)
        tag.update(body)
        if not hmac.compare_digest(tag.hexdigest().encode(), header_bytes(proof)):
            return None
        try:
            return _STANDING.decode(body)
        except msgspec.MsgspecError:
            return None
