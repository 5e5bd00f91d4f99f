"""The catalog with which a new member of a grown cluster begins: `GET /raft/seed` of the others.

    request   those of question.py; of the empty folder that asks X-Raft-Token, X-Raft-Members
    answer    X-Raft-Lineage; X-Raft-Admitted (JSON, folder_admission.py) of one that is added to a
              running cluster; the stream of a checkpoint (kv/rocks_files.py), a tag of 32 bytes

To a running cluster the member that leads adds another (`admin namenodes add`): it gives its
catalog to the empty folder at that address, under a name that was never a member's.

Only the member that had the catalog first gives it, to one folder of each other member, once all of
them have asked: it writes the folder's token down before (folder_admission.py). A member with
another token, and one that was heard of, has lost its folder, and with it votes and entries that
the others count on.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec
from aiohttp import web

from paxosblock.base.encoding import json_decoder
from paxosblock.base.units import KIB
from paxosblock.errors import (
    AccessDeniedError,
    ConfigError,
    CorruptionError,
    NoSpaceError,
    PaxosBlockError,
    ProtocolError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.kv.table import Checkpoint, Receiver, pieces
from paxosblock.namenode.raft.admissions_file import UNNAMED, read_admissions, write_admissions
from paxosblock.namenode.raft.folder_admission import (
    LOST,
    NOBODYS,
    AdmissionRefused,
    Admitted,
    Elsewhere,
    FolderStatus,
    Lineage,
    Waits,
    may_join,
)
from paxosblock.namenode.raft.question import Question, ask, session_of
from paxosblock.namenode.raft.roster import name_of
from paxosblock.net.port.access_server import add_without_token
from paxosblock.net.port.doorkeeper import check_namenode
from paxosblock.net.port.http_server import slot_of

if TYPE_CHECKING:
    from paxosblock.net.port.tls import Tls

ADD: Final = "paxosblock admin namenodes add"
SEED_PATH: Final = "/raft/seed"
ASK_AGAIN_S: Final = 0.2
SILENCE_S: Final = 10.0
_EARLY: Final = 425

_PIECE_BYTES = 256 * KIB
_TAG_BYTES = 32
_LINEAGE, _TOKEN, _MEMBERS = "X-Raft-Lineage", "X-Raft-Token", "X-Raft-Members"
_ADMITTED: Final = "X-Raft-Admitted"
_ADMITTED_DECODER = json_decoder(Admitted)
WAITS_FOR_S: Final = 3.0
"""Seconds after its last question that an empty folder counts as one that waits."""

_log = logging.getLogger(__name__)


class Seeds:
    """Gives new members the catalog, in a cluster that grew out of a single NameNode."""

    def __init__(
        self,
        folder: Path,
        address: str,
        members: Callable[[], Sequence[str]],
        secret: bytes,
        *,
        checkpoint: Callable[[], Awaitable[Checkpoint]],
        tls: Tls | None = None,
    ) -> None:
        """Give away the result of `checkpoint`; `folder` is this member's. `members` tells the
        addresses in its list."""
        self._folder, self._address, self._secret = folder, address, secret
        self._tls = tls
        self._list = members
        self._waiting: dict[str, float] = {}
        self._admitted: dict[str, Admitted] = {}
        """The folders that get the catalog, by address."""
        self._asking: dict[str, FolderStatus] = {}
        self._lineage = NOBODYS
        self._checkpoint = checkpoint
        self._disk = OsDisk()
        self._heard: dict[str, asyncio.Task[None]] = {}
        self._writing = asyncio.Lock()

    @property
    def _members(self) -> tuple[str, ...]:
        return tuple(sorted(self._list()))

    @property
    def lineage(self) -> Lineage:
        """That of this member; `NOBODYS` before `begin`."""
        return self._lineage

    def waits(self, address: str) -> str:
        """Return the token of the empty folder that waits at `address`; "" if none does."""
        since_s = asyncio.get_running_loop().time() - self._waiting.get(address, float("-inf"))
        return self._asking[address].token if since_s < WAITS_FOR_S else ""

    def waiting(self) -> list[str]:
        """Return the addresses at which an empty folder waits."""
        return [address for address in self._waiting if self.waits(address)]

    def admit(self, address: str, admitted: Admitted) -> None:
        """Give the catalog to the empty folder that waits at `address`."""
        self._admitted[address] = admitted

    def begin(self, lineage: Lineage) -> None:
        """Give from now on, as a member of this lineage. Blocks.

        Raises:
            NoSpaceError, StorageError: the disk refuses.
        """
        admissions = read_admissions(self._disk, self._folder)
        if admissions.first == UNNAMED:
            named = replace(admissions, first=self._address)
            write_admissions(self._disk, self._folder, named)
        self._lineage = lineage

    def add_to(self, app: web.Application) -> None:
        """Add the route."""
        add_without_token(app, SEED_PATH, self._give)

    def note(self, member: str) -> None:
        """Remember that a member was heard of: it gets no catalog, even after a restart. If that
        cannot be written it is tried again the next time it is heard of."""
        if not self._lineage.born and member not in self._heard:
            self._heard[member] = asyncio.create_task(self._write(member), name=f"note {member}")

    async def _write(self, member: str) -> None:
        async with self._writing:
            try:
                await asyncio.to_thread(self._record, member, "")
            except (NoSpaceError, StorageError):
                del self._heard[member]

    def _record(self, member: str, token: str) -> None:
        """Write down that a member was let in, or heard of, unless it is known."""
        known = read_admissions(self._disk, self._folder)
        if member not in known.tokens:
            tokens = {**known.tokens, member: token}
            write_admissions(self._disk, self._folder, replace(known, tokens=tokens))

    async def _give(self, request: web.Request) -> web.StreamResponse:
        headers = request.headers
        said = FolderStatus(
            tuple(headers.get(_MEMBERS, "").split(",")), token=headers.get(_TOKEN, "")
        )
        try:
            check_namenode(self._tls, request)
            question = Question.heard(_purpose(said), headers, self._secret, called=self._address)
        except AccessDeniedError as error:
            return _refusal(403, str(error))
        try:
            slot_of(request).prove()  # else a stranger could take its place while it reads
        except UnavailableError as error:
            return _refusal(503, str(error))
        if not self._lineage.name:
            return _refusal(503, f"{self._address} is no member yet")
        self._asking[question.caller] = said
        self._waiting[question.caller] = asyncio.get_running_loop().time()
        admitted = self._admitted.get(question.caller)
        if admitted is None or admitted.name != name_of(question.caller, said.token):
            admitted = None
            if (refused := await self._let_in(question.caller, said.token)) is not None:
                return refused
        try:
            checkpoint = await self._checkpoint()
        except PaxosBlockError as error:
            return _refusal(503, f"{self._address} cannot give it now: {error}")
        try:
            return await self._send(request, question, checkpoint, admitted)
        finally:
            await asyncio.to_thread(checkpoint.close)

    async def _let_in(self, caller: str, token: str) -> web.Response | None:
        """Return None once it is durable that the folder with this token was let in."""
        if caller not in self._members:
            return _refusal(_EARLY, f"{caller} waits for `{ADD} {caller}`")
        async with self._writing:
            admissions = await asyncio.to_thread(read_admissions, self._disk, self._folder)
            answer = may_join(
                self._lineage,
                self._address,
                self._members,
                admissions=admissions,
                asking=self._asking,
                caller=caller,
            )
            match answer:
                case AdmissionRefused(why):
                    return _refusal(409, why)
                case Elsewhere(why):
                    return _refusal(404, why)
                case Waits(why):
                    return _refusal(_EARLY, why)
            try:
                await asyncio.to_thread(self._record, caller, token)
            except (NoSpaceError, StorageError) as error:
                return _refusal(503, f"{self._address} cannot let anybody in now: {error}")
        return None

    async def _send(
        self,
        request: web.Request,
        question: Question,
        checkpoint: Checkpoint,
        admitted: Admitted | None,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={_LINEAGE: self._lineage.name})
        about = "" if admitted is None else msgspec.json.encode(admitted).decode()
        if about:
            response.headers[_ADMITTED] = about
        response.content_length = checkpoint.size_bytes + _TAG_BYTES
        await response.prepare(request)
        tag = question.tag(self._secret, f"{self._lineage.name}{about}")
        unread = pieces(checkpoint, _PIECE_BYTES)
        while piece := await asyncio.to_thread(next, unread, b""):
            tag.update(piece)
            await response.write(piece)
        await response.write(tag.digest())
        _log.info("gave the catalog to %s, which comes to this cluster", question.caller)
        return response


@dataclass(frozen=True, slots=True)
class Seed:
    """The draft that a member's checkpoint was written to, and the lineage of its cluster;
    `admitted` if that is running."""

    lineage: str
    receiver: Receiver
    admitted: Admitted | None = None


async def fetch_seed(
    address: str,
    members: Sequence[str],
    secret: bytes,
    token: str,
    *,
    receive: Callable[[], Receiver],
    within_s: float,
    tls: Tls | None = None,
) -> Seed:
    """Fetch the catalog with which the member at `address` begins from one of the others.

    `receive` begins a draft, and blocks. `token` is that of the empty folder. It waits as long as
    the one that has the catalog waits for others.

    Raises:
        ConfigError: another member knows it as a member, or has another secret or other peers.
        ProtocolError: the catalog was changed on its way.
        NoSpaceError, StorageError: the disk refuses.
        UnavailableError: no member had the catalog within `within_s`.
    """
    others = [member for member in members if member != address]
    about = {_TOKEN: token, _MEMBERS: ",".join(sorted(members))}
    own = FolderStatus(tuple(sorted(members)), token=token)
    until_s, why = asyncio.get_running_loop().time() + within_s, dict.fromkeys(others, "")
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=SILENCE_S, sock_read=SILENCE_S)
    async with session_of(tls, timeout) as session:
        while asyncio.get_running_loop().time() < until_s:
            for peer in others:
                try:
                    question = Question.fresh(_purpose(own), address, peer)
                    headers = question.headers(secret) | about
                    answered = await ask(session, peer, SEED_PATH, headers, tls)
                    found = await _fetch(answered, question, secret, receive)
                    if isinstance(found, Seed):
                        return found
                    until_s = asyncio.get_running_loop().time() + within_s
                    if why[peer] != found.why:
                        _log.warning("%s", found.why)
                    why[peer] = found.why
                except UnavailableError as error:
                    why[peer] = str(error)
                except PaxosBlockError:
                    raise
                except (OSError, aiohttp.ClientError, TimeoutError):
                    why[peer] = "no whole answer"
            await asyncio.sleep(ASK_AGAIN_S)
    reasons = ", ".join(f"{peer}: {words or 'not asked'}" for peer, words in why.items())
    raise UnavailableError(
        f"--join: nobody has a catalog for {address} ({reasons}): start the one first that was a "
        f"cluster's only NameNode; {LOST}"
    )


async def _fetch(
    answered: aiohttp.ClientResponse,
    question: Question,
    secret: bytes,
    receive: Callable[[], Receiver],
) -> Seed | Waits:
    """Read what one member answered; Waits if it gives the catalog once others have asked, too.

    Raises:
        ConfigError: the member refuses.
        UnavailableError: it may have the catalog later.
        ProtocolError: nothing proves that the answer is that member's.
    """
    async with answered as found:
        if found.status == _EARLY:
            return Waits((await found.text()).strip())
        if found.status != 200:
            raise _refused(question, found.status, (await found.text()).strip())
        lineage, admitted = found.headers.get(_LINEAGE, ""), found.headers.get(_ADMITTED, "")
        tag = question.tag(secret, f"{lineage}{admitted}")
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
    return Seed(lineage, receiver, _ADMITTED_DECODER.decode(admitted) if admitted else None)


def _changed(question: Question) -> str:
    return f"{question.called} sent a catalog that was changed on its way"


def _refused(question: Question, status: int, words: str) -> ConfigError | UnavailableError:
    if status == 409:
        return ConfigError(f"--join: {question.called} says: {words}")
    if status == 403:
        return ConfigError(f"--join: {question.called} refuses: {words}")
    return UnavailableError(f"{words} ({status})")


def _purpose(own: FolderStatus) -> bytes:
    return f"seed {own.token} {','.join(own.members)}".encode(errors="replace")


def _refusal(status: int, words: str) -> web.Response:
    return web.Response(status=status, text=f"{words}\n")
