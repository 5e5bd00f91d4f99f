"""A file whose bytes broke off is taken back, and never what somebody else wrote into it since."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from paxosblock import AsyncClient, LocalCluster
from paxosblock.errors import InvalidRequestError
from paxosblock.gateway.upload import Upload
from paxosblock.gateway.user_clients import UserClient


class AppendedClient(AsyncClient):
    """A client before whose transactions another program appends to the file that they are of."""

    def __init__(self, address: str, path: str) -> None:
        super().__init__(address)
        self._path = path

    async def transact(self, *arguments: Any, **options: Any) -> Any:
        async with self.append(self._path) as file:
            await file.write(b"of another")
        return await super().transact(*arguments, **options)


async def broken_body() -> AsyncIterator[bytes]:
    """The beginning of a body."""
    yield b"half"
    raise InvalidRequestError("the request ended before its end")


async def test_a_file_whose_body_broke_off_is_gone(cluster: LocalCluster, home: str) -> None:
    async with AsyncClient(cluster.url) as fs:
        with pytest.raises(InvalidRequestError):
            await Upload(f"{home}/f").run(UserClient(fs), broken_body())
        assert not await fs.exists(f"{home}/f")


async def test_what_another_program_appended_to_it_before_it_went_stays(
    cluster: LocalCluster, home: str
) -> None:
    path = f"{home}/f"
    async with AppendedClient(cluster.url, path) as fs:
        with pytest.raises(InvalidRequestError):
            await Upload(path).run(UserClient(fs), broken_body())
        async with fs.open(path) as reader:
            assert (await reader.read()).endswith(b"of another")
