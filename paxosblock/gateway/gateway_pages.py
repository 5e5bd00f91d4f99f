"""The status page of a gateway: who gets it, and what it is made of.

It shows neither a file nor a user, so no caller needs a token; as it names nodes and settings it is
for callers on this machine, unless the setting `page` says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from paxosblock.api.insight import (
    GATEWAY_STATUS,
    SHOW_SETTINGS,
    ChangedSetting,
    GatewayStatus,
    NodeSettings,
)
from paxosblock.api.methods import Method
from paxosblock.config import GatewayConfig, PageFor, changed_settings
from paxosblock.errors import AccessDeniedError, InvalidRequestError
from paxosblock.gateway.budget import Budget
from paxosblock.gateway.door_figures import DoorFigures
from paxosblock.gateway.exchange import Answer, Exchange
from paxosblock.gateway.user_clients import UserClients
from paxosblock.gateway.who_asks import Identification
from paxosblock.gateway.worker_metrics import Worker
from paxosblock.net.calls.own_calls import PATIENCE_S
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.page_door import PAGE_HEADERS, ShownPage, check_near
from paxosblock.page.site import Site

Q = TypeVar("Q")
A = TypeVar("A")

METHODS: Final = "GET", "HEAD"


class GatewayCalls:
    """Answers the calls of the page; those to NameNodes are sent to them, as this gateway."""

    def __init__(
        self, status: Callable[[], GatewayStatus], config: GatewayConfig, rpc: RpcClient
    ) -> None:
        self._status, self._config, self._rpc = status, config, rpc

    async def call(self, method: Method[Q, A], _: Q) -> A:
        """Answer for this gateway. Raises InvalidRequestError for what it does not know."""
        known: dict[str, Callable[[], object]] = {
            GATEWAY_STATUS.name: self._status,
            SHOW_SETTINGS.name: self._settings,
        }
        if method.name not in known:
            raise InvalidRequestError(f"a gateway knows no {method.name}")
        answer = known[method.name]()
        assert isinstance(answer, method.answer)
        return answer

    async def ask(self, address: str, method: Method[Q, A], request: Q) -> A:
        """Ask a NameNode, once. Raises as `RpcClient.call`."""
        return await self._rpc.call(address, method.name, request, method.answer, PATIENCE_S)

    def _settings(self) -> NodeSettings:
        changed = (ChangedSetting(*each) for each in changed_settings(self._config))
        return NodeSettings(self._config.section, tuple(changed))


class GatewayPages:
    """Answers requests for the pages of one gateway."""

    def __init__(self, site: Site, page_for: PageFor, who: Identification) -> None:
        self._site, self._page_for, self._who = site, page_for, who

    def has(self, path: str) -> bool:
        """True if there is a page, or a file of it, at this path."""
        return self._page_for is not PageFor.NONE and path in (*self._site.paths, *self._site.files)

    async def answer(self, exchange: Exchange) -> Answer:
        """Return a page, or a page that says why there is none."""
        path, _, query = exchange.target.partition("?")
        if exchange.method not in METHODS:
            allowed = PAGE_HEADERS | {"Allow": ", ".join(METHODS)}
            return Answer(HTTPStatus.METHOD_NOT_ALLOWED, headers=allowed)
        try:
            host = exchange.headers.get("Host", "")
            check_near(self._page_for, self._who.names, exchange.address, host)
        except AccessDeniedError as error:
            return _sent(await self._site.refusal(error, as_json=path.endswith(".json")))
        if path in self._site.files:
            return _sent(self._site.file(path))
        return _sent(await self._site.page(path, dict(parse_qsl(query)), ""))


def status_of(
    *,
    doors: Sequence[DoorFigures],
    namenodes: Sequence[str],
    clients: UserClients,
    budget: Budget,
    guard: Guard,
    who: Identification,
    worker: Worker,
) -> GatewayStatus:
    """Return what a gateway, or one `worker` of it, knows of itself."""
    return GatewayStatus(
        tuple(each.status for each in doors if each.address),
        tuple(namenodes),
        guard.admission.count,
        len(clients),
        budget.held_bytes,
        budget.size_bytes,
        who.proves,
        worker.number,
        worker.count,
    )


def _sent(page: ShownPage) -> Answer:
    typed = {"Content-Type": f"{page.content_type}; charset=utf-8"}
    return Answer(page.status, page.body, PAGE_HEADERS | typed)
