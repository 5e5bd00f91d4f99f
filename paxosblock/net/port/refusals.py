"""The refusals of a node: counted each time, logged at most once in some seconds."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections import Counter
from typing import Final

from paxosblock.host.logs import facts

LOG_EVERY_S: Final = 5.0

_log = logging.getLogger(__name__)


class Refusal(enum.Enum):
    """The reason for a refusal; the value is the label in `/metrics`."""

    NODE_FULL = "node_full"
    ADDRESS_FULL = "address_full"
    IDLE = "idle"
    UNPROVEN = "unproven"
    NO_HEAD = "no_head"
    ANSWER_UNREAD = "answer_unread"
    BODY_STALLED = "body_stalled"
    BODY_MEMORY = "body_memory"
    MALFORMED = "malformed"
    NO_DESCRIPTOR = "no_descriptor"
    NO_ACCESS = "no_access"
    NO_TLS = "no_tls"
    HANDSHAKE = "handshake"
    WEB_PAGE = "web_page"


_WORDS: Final = {
    Refusal.NODE_FULL: "connections refused: the node has as many as it takes",
    Refusal.ADDRESS_FULL: "connections refused: their address has as many as one may have",
    Refusal.IDLE: "idle connections closed to make room for new ones",
    Refusal.UNPROVEN: "connections closed that had proven nothing, to make room for new ones",
    Refusal.NO_HEAD: "connections closed on which no request came in time",
    Refusal.ANSWER_UNREAD: "connections closed whose peers did not read their answers",
    Refusal.BODY_STALLED: "requests given up that came too slowly",
    Refusal.BODY_MEMORY: "requests refused: those under way fill the memory for them",
    Refusal.MALFORMED: "requests refused that are no HTTP and no frames of calls",
    Refusal.NO_DESCRIPTOR: "no file descriptor is left for a connection: those that come wait",
    Refusal.NO_ACCESS: "callers refused who know no access secret, or show no certificate",
    Refusal.NO_TLS: "callers refused who do not speak TLS",
    Refusal.HANDSHAKE: "connections closed on which the handshake of TLS failed or took too long",
    Refusal.WEB_PAGE: "requests refused that a page in a browser may have sent",
}


class Refusals:
    """Counts of one node. Used on its event loop."""

    def __init__(self, log_every_s: float = LOG_EVERY_S) -> None:
        """Log the first refusal of a kind at once, and the number of later ones after
        `log_every_s`."""
        self.counts: Counter[Refusal] = Counter()
        self._log_every_s = log_every_s
        self._quiet: set[Refusal] = set()
        self._logged: Counter[Refusal] = Counter()

    def count(self, why: Refusal, address: str, times: int = 1) -> None:
        """Count a refusal, and log it now or soon; `address` is an example."""
        self.counts[why] += times
        if why not in self._quiet:
            self._tell(why, address)

    def _tell(self, why: Refusal, address: str) -> None:
        since = self.counts[why] - self._logged[why]
        self._logged[why] = self.counts[why]
        self._quiet.add(why)
        asyncio.get_running_loop().call_later(self._log_every_s, self._tell_rest, why, address)
        _log.warning(_WORDS[why], extra=facts(times=since, address=address or "?"))

    def _tell_rest(self, why: Refusal, address: str) -> None:
        self._quiet.discard(why)
        if self.counts[why] > self._logged[why]:
            self._tell(why, address)
