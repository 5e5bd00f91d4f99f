"""Any request that has the right types gets an answer or a clear error, whatever is in it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paxosblock.api.methods import Method
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.calls import CALLS
from tests.namenode.scene import Scene, new_scene

METHODS = [call.method for call in CALLS]
INTEGERS = st.integers(-(1 << 63), (1 << 64) - 1)
"""All that msgpack carries: a test that draws others drops most requests that have many of them."""
st.register_type_strategy(int, INTEGERS)


async def ask(method: Method[Any, Any], request: object) -> object:
    """The node's answer to one request, or its error; anything else is a defect."""
    scene = await prepared()
    try:
        return await scene.service.call(method, request)
    except PaxosBlockError as error:
        return error
    finally:
        await scene.close()


async def prepared() -> Scene:
    """A node with a file, an open block and three DataNodes."""
    scene = await new_scene()
    await scene.add_block(await scene.create("/f"))
    return scene


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_every_call_answers_or_refuses(method: Method[Any, Any], data: st.DataObject) -> None:
    drawn = data.draw(st.from_type(method.request))
    received = msgspec.msgpack.decode(msgspec.msgpack.encode(drawn), type=method.request)
    answer = asyncio.run(ask(method, received))
    assert isinstance(answer, PaxosBlockError | method.answer)
    assert "\n" not in str(answer)
