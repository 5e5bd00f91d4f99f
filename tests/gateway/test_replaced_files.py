"""A file that is replaced, and whose blocks go, between its opening and its first byte: the answer
is the new file, and none that breaks off."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from paxosblock import AsyncClient, LocalCluster
from paxosblock.client.opening import opening
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.errors import NotFoundError, UnavailableError
from paxosblock.gateway.budget import Budget
from paxosblock.gateway.download import TRIES
from paxosblock.gateway.exchange import Answer, StreamedBody, answered_with
from paxosblock.gateway.s3.object_reads import get_object
from paxosblock.gateway.user_clients import UserClient
from paxosblock.gateway.webhdfs.operation_table import HadoopCall
from paxosblock.gateway.webhdfs.parameters import Parameters
from paxosblock.gateway.webhdfs.read_operations import open_file
from tests.gateway.bare_requests import BareRequest, s3_call
from tests.waiting import wait_until_async

PATH = "/replaced/f"
Door = Callable[[UserClient, Budget, contextlib.AsyncExitStack], Any]


class ReplacingClient(AsyncClient):
    """A client that replaces the file which it has opened, so often: at once, or when it was asked
    for its state, which is the last thing that S3 asks for before the bytes."""

    def __init__(self, address: str, times: int, *, after_stat: bool) -> None:
        super().__init__(address)
        self._left, self._after_stat = times, after_stat
        self._opened: AsyncFileReader | None = None

    async def make(self) -> None:
        """Make the file, with other bytes each time."""
        async with self.create(PATH, overwrite=True) as file:
            await file.write(str(self._left).encode() * 1000)

    @opening
    async def open(self, *arguments: Any, **options: Any) -> AsyncFileReader:
        reader = self._opened = await super().open(*arguments, **options)
        if not self._after_stat:
            await self._replace(reader)
        return reader

    async def stat_with_attributes(self, *arguments: Any, **options: Any) -> Any:
        found = await super().stat_with_attributes(*arguments, **options)
        if self._opened is not None:
            await self._replace(self._opened)
        return found

    async def _replace(self, reader: AsyncFileReader) -> None:
        """Replace it, and wait until the bytes of the old one are nowhere."""
        self._opened = None
        if not self._left:
            return
        self._left -= 1
        await self.make()

        async def is_gone() -> bool:
            try:
                await reader.pread(0, 1)
            except NotFoundError:
                return True
            return False

        await wait_until_async(is_gone, what="the end of the old blocks")


async def through_s3(
    client: UserClient, budget: Budget, stack: contextlib.AsyncExitStack
) -> Answer:
    return await get_object(s3_call(client, stack, PATH, budget=budget))


async def through_webhdfs(
    client: UserClient, budget: Budget, stack: contextlib.AsyncExitStack
) -> Answer:
    parameters = Parameters("op=OPEN")
    call = HadoopCall(
        BareRequest(), PATH, "op=OPEN", parameters, "me", False, client, budget, stack
    )  # fmt: skip
    return await open_file(call)


@pytest.mark.parametrize("door", [through_s3, through_webhdfs])
async def test_what_is_replaced_before_its_first_byte_is_opened_again(
    cluster: LocalCluster, door: Door
) -> None:
    address, after_stat = cluster.addresses[0], door is through_s3
    async with ReplacingClient(address, times=1, after_stat=after_stat) as fs:
        await fs.make()
        budget = Budget(1 << 30)
        answer = await answered_with(lambda stack: door(UserClient(fs), budget, stack))
        assert isinstance(answer.body, StreamedBody)
        assert b"".join([bytes(piece) async for piece in answer.body.pieces]) == b"0" * 1000
        assert answer.body.length == 1000
        await answer.body.aclose()
        assert budget.held_bytes == 0


async def test_what_is_replaced_all_the_time_is_refused_before_the_answer_begins(
    cluster: LocalCluster,
) -> None:
    async with ReplacingClient(cluster.addresses[0], times=TRIES, after_stat=True) as fs:
        await fs.make()
        with pytest.raises(UnavailableError, match="replaced all the time"):
            await answered_with(lambda stack: through_s3(UserClient(fs), Budget(1), stack))
