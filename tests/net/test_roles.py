"""Calls that are of nodes alone, where nodes prove what they are, and where they do not."""

from __future__ import annotations

import pytest

from paxosblock.errors import AccessDeniedError
from paxosblock.net.port.caller import HERE, Caller, CallerRole
from paxosblock.net.port.node_roles import UNPROVEN, Roles

NAMENODE = Caller(CallerRole.NAMENODE, "")
DATANODE = Caller(CallerRole.DATANODE, "dn-1")
USER = Caller(CallerRole.USER, "me")
CLAIMED = Caller(CallerRole.CLAIMED, "dn-1")
PROVEN = Roles(proven=True)


@pytest.mark.parametrize("roles", [PROVEN, UNPROVEN])
def test_a_node_that_proves_its_role_has_it_and_no_other(roles: Roles) -> None:
    roles.check(NAMENODE, CallerRole.NAMENODE, "acceptor")
    roles.check(DATANODE, CallerRole.DATANODE, "register", "dn-1")
    with pytest.raises(AccessDeniedError, match=r"is of a NameNode alone, .* is a DataNode"):
        roles.check(DATANODE, CallerRole.NAMENODE, "acceptor")
    with pytest.raises(AccessDeniedError, match=r"is of a DataNode alone, .* is a NameNode"):
        roles.check(NAMENODE, CallerRole.DATANODE, "register", "dn-1")
    with pytest.raises(AccessDeniedError, match="this caller is the user 'me'"):
        roles.check(USER, CallerRole.DATANODE, "register", "me")


def test_a_datanode_speaks_for_itself_alone() -> None:
    with pytest.raises(AccessDeniedError, match="of DataNode dn-1, so it needs --id dn-1"):
        PROVEN.check(DATANODE, CallerRole.DATANODE, "heartbeat", "dn-2")


@pytest.mark.parametrize("role", [CallerRole.NAMENODE, CallerRole.DATANODE])
def test_a_claim_is_enough_only_where_nothing_is_proven(role: CallerRole) -> None:
    UNPROVEN.check(CLAIMED, role, "register", "dn-2")
    with pytest.raises(AccessDeniedError):
        PROVEN.check(CLAIMED, role, "register", "dn-1")
    PROVEN.check(HERE, role, "register", "dn-2")
