"""The guard that keeps strangers, and floods of connections and requests, from a node's port."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from paxosblock.config import NodeConfig, ServerConfig
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.port.admission import Admission, Caps
from paxosblock.net.port.own_names import OwnNames
from paxosblock.net.port.refusals import Refusal, Refusals
from paxosblock.net.port.request_bodies import BodyLimits, RequestBodies

if TYPE_CHECKING:
    from paxosblock.host.metrics import NodeMetrics
    from paxosblock.net.port.tls import Tls

CONNECTIONS: Final = 8192
CONNECTIONS_PER_ADDRESS: Final = 4096
HEAD_TIMEOUT_S: Final = 10.0


class Guard:
    """The bounds of one node, and the counts of the connections and requests beyond them."""

    def __init__(
        self,
        caps: Caps | None = None,
        *,
        head_timeout_s: float = HEAD_TIMEOUT_S,
        body_limits: BodyLimits | None = None,
        access: Access = OPEN,
    ) -> None:
        """Without arguments it has the default settings, on a machine with many descriptors."""
        self.refusals = Refusals()
        self.admission = Admission(
            caps or Caps(CONNECTIONS, CONNECTIONS_PER_ADDRESS), self.refusals
        )
        self.request_bodies = RequestBodies(body_limits, self.refusals)
        self.head_timeout_s = head_timeout_s
        self.access = access
        self.names = OwnNames()

    @classmethod
    def of(cls, config: NodeConfig, descriptors: int) -> Self:
        """Make it from a node's settings; its connections may use so many file `descriptors`.

        Raises ConfigError if a file with a secret or a certificate is not as it should be.
        """
        limits = BodyLimits(config.request_memory_bytes, config.request_stall_timeout_s)
        return cls.bounded(config, descriptors, limits, Access.of_node(config))

    @classmethod
    def bounded(
        cls, config: ServerConfig, descriptors: int, limits: BodyLimits, access: Access = OPEN
    ) -> Self:
        """Make it from a server's settings, with these limits of bodies."""
        caps = Caps.within(config.max_connections, config.max_connections_per_address, descriptors)
        return cls(
            caps, head_timeout_s=config.request_head_timeout_s, body_limits=limits, access=access
        )

    def add_to(self, metrics: NodeMetrics, *, proves: bool = False, tls: Tls | None = None) -> None:
        """Show the counts on `/metrics`; `proves`: callers must prove themselves in another way
        than by `access`; `tls`: the port has another certificate than `access`."""
        connections = self.admission
        metrics.observe(
            "connections", "Connections that count for the cap.", lambda: connections.count
        )
        metrics.observe(
            "connections_unproven",
            "Those of them that have proven nothing yet: they give way to newer ones.",
            lambda: connections.unproven_count,
        )
        metrics.observe(
            "access_open",
            "1 where whoever reaches the node is served: it demands no secret and no certificate.",
            lambda: self.access.is_open and not proves,
        )
        tls = tls or self.access.tls
        metrics.observe(
            "tls_certificate_ends_seconds",
            "The time since 1970 at which this node's certificate ends; 0 without one.",
            lambda: 0 if tls is None else tls.ends_s,
        )
        metrics.tally(
            "refusals",
            "Connections and requests refused or given up.",
            ("reason",),
            lambda: [((why.value,), self.refusals.counts[why]) for why in Refusal],
        )
