"""Calls that come from the process of the node itself, for the status page."""

from __future__ import annotations

import logging
from typing import Final, TypeVar

from msgspec import Raw

from paxosblock.api.methods import Method
from paxosblock.base.encoding import msgpack_decoder
from paxosblock.errors import Outcome, OutcomeUnknownError, PaxosBlockError
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.calls.rpc import RpcClient

Q = TypeVar("Q")
A = TypeVar("A")

PATIENCE_S: Final = 0.5
"""Seconds for another node's answer: a page does not wait for one that hangs."""

_log = logging.getLogger(__name__)


class OwnCalls:
    """Calls of this node, for the one who is `CALLER`, and of others, as this node."""

    def __init__(self, router: RpcRouter, client: RpcClient) -> None:
        """`router` has the calls of this node, `client` reaches others."""
        self._router = router
        self._client = client

    async def call(self, method: Method[Q, A], request: Q) -> A:
        """Ask this node. Raises the error that a client would get."""
        try:
            sent = await self._router.find(method.name).handler(request)
        except PaxosBlockError:
            raise
        except Exception as error:
            _log.exception("%s failed, for a page", method.name)
            reason = f"internal error in {method.name}; the node's log tells more"
            raise OutcomeUnknownError(reason).with_outcome(Outcome.NEVER) from error
        assert isinstance(sent, Raw | method.answer)
        return msgpack_decoder(method.answer).decode(sent) if isinstance(sent, Raw) else sent

    async def ask(self, address: str, method: Method[Q, A], request: Q) -> A:
        """Ask another node, once. Raises as `RpcClient.call`."""
        return await self._client.call(address, method.name, request, method.answer, PATIENCE_S)
