"""Calls that are of nodes alone, where nodes prove what they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from paxosblock.errors import AccessDeniedError
from paxosblock.net.port.caller import HERE, Caller, CallerRole


@dataclass(frozen=True, slots=True)
class Roles:
    """The check of a caller's role.

    `proven`: each node of the cluster shows a certificate, or knows the secret of nodes, so a
    caller that only claims something is none. Else it may be one.
    """

    proven: bool = False

    def check(self, caller: Caller, role: CallerRole, what: str, node: str = "") -> None:
        """Check that a caller has a role; `node` is the DataNode that it speaks for.

        Raises:
            AccessDeniedError: it has another one, or is another DataNode.
        """
        claims = caller.role is CallerRole.CLAIMED and not self.proven
        fits = caller.role in (role, CallerRole.NODE) or caller is HERE
        if not fits and not claims:
            raise AccessDeniedError(
                f"{what} is of a {_NAMES[role]} alone, and this caller is {_named(caller)}"
            )
        if node and caller.role is CallerRole.DATANODE and caller.user != node:
            raise AccessDeniedError(
                f"{what} of DataNode {node}: the caller's certificate is of DataNode {caller.user},"
                f" so it needs --id {caller.user}"
            )


UNPROVEN: Final = Roles()
"""The check of a cluster whose nodes prove nothing."""
_NAMES: Final = {CallerRole.NAMENODE: "NameNode", CallerRole.DATANODE: "DataNode"}


def _named(caller: Caller) -> str:
    kind = _NAMES.get(caller.role)
    return f"a {kind}" if kind else f"the user {caller.user!r}"
