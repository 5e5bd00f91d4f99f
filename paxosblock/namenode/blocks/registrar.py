"""Takes in the processes that register for DataNodes: one for each name (D10 of PROTOCOL.md)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

from paxosblock.api.reports import Register
from paxosblock.errors import (
    InvalidRequestError,
    NoSpaceError,
    NotReadyError,
    PaxosBlockError,
)
from paxosblock.host.logs import facts
from paxosblock.namenode.blocks.acceptors import Acceptors
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.processes import Entering
from paxosblock.namenode.catalog.records import ProcessRecord

_log = logging.getLogger(__name__)


class Registrar:
    """The registrations at one NameNode. While that leads, each process that it takes in is on
    record, unless its disks are full.

    What members of a block answer counts in the NameNode that leads, and nowhere else. So those
    that follow may take in another process for a while: one that begins to lead goes by the
    records.
    """

    def __init__(
        self,
        catalog: Catalog,
        datanodes: DataNodes,
        acceptors: Acceptors,
        clock_s: Callable[[], float],
    ) -> None:
        """Follow from now on: nothing is recorded."""
        self._catalog = catalog
        self._datanodes = datanodes
        self._acceptors = acceptors
        self._clock_s = clock_s
        self._leads = False
        self._knows_all = False
        """It leads, and goes by the records."""
        datanodes.listens_since_s = clock_s()

    async def begin(self) -> None:
        """Lead: forget the processes that followed another one than the record has, and record
        those that are not on record. They may have registered while no NameNode led."""
        self._leads = True  # a process that registers from now on is recorded
        self._datanodes.listens_since_s = self._clock_s()
        await self._catalog.view()
        unrecorded: list[Entering] = []
        for node in tuple(self._datanodes):
            recorded = self._catalog.process_of(node.node)
            process = ProcessRecord(node.address, node.incarnation)
            if recorded is None or recorded.incarnation == node.follows:
                unrecorded.append(Entering(node.node, process, (node.follows,)))
            elif recorded.incarnation != node.incarnation:
                self._datanodes.forget(node.node)
        self._knows_all = True
        if unrecorded:
            with contextlib.suppress(NoSpaceError):  # reads go on
                await self._catalog.enter_processes(unrecorded)

    def end(self) -> None:
        """Follow again."""
        self._leads = self._knows_all = False

    async def register(self, request: Register) -> None:
        """Take in a process, or the same one again.

        Raises:
            InvalidRequestError: it is of another cluster, or the process before it lives.
            NotReadyError: it may live.
        """
        catalog, datanodes = self._catalog, self._datanodes
        datanodes.check_cluster(request, catalog.cluster_id)
        recorded = catalog.process_of(request.node)
        before = datanodes.before(request, recorded)
        ended = {each.incarnation for each in before if await self._has_ended(request, each)}
        # A copy of a volume writes nothing down, either, as long as it may be one.
        datanodes.check_place(request, self._clock_s(), ended, recorded)
        if request.timelines:
            await catalog.enter_timelines(request.node, request.timelines)
        recorded = catalog.process_of(request.node)
        if self._leads and (recorded is None or recorded.incarnation != request.incarnation):
            recorded = await self._record(request, before, recorded)
        datanodes.register(
            request, self._clock_s(), catalog.cluster_id, ended=ended, recorded=recorded
        )

    async def _has_ended(self, request: Register, before: ProcessRecord) -> bool:
        """Ask the process whose place another one wants.

        A refusal ends the process that asks. So only a NameNode refuses that leads and has gone by
        the records: another one may have taken in a copy, and not know yet who is on record.

        Raises:
            InvalidRequestError: it lives.
            NotReadyError: it lives, and this NameNode cannot tell which of the two is the copy.
        """
        try:
            found = await self._acceptors.process_at(before.address)
        except PaxosBlockError:
            return False  # there is no telling: it hangs, or cannot be reached
        if found != before.incarnation:
            return True
        node = request.node
        lives = f"DataNode {node}: another process of this name lives at {before.address}"
        is_before = before in self._datanodes.before(request, self._catalog.process_of(node))
        if not (self._knows_all and is_before):
            raise NotReadyError(f"{lives}; which of the two is a copy is not known yet", node=node)
        raise InvalidRequestError(f"{lives}; give each an --id and volumes of its own", node=node)

    async def _record(
        self,
        request: Register,
        before: tuple[ProcessRecord, ...],
        recorded: ProcessRecord | None,
    ) -> ProcessRecord | None:
        """Record a process; return what is on record then."""
        process = ProcessRecord(request.address, request.incarnation)
        follows = tuple(each.incarnation for each in before)
        try:
            await self._catalog.enter_process(Entering(request.node, process, follows))
        except NoSpaceError as error:
            # Reads go on with full disks, also from a DataNode that starts meanwhile.
            _log.warning("cannot record a process: %s", error, extra=facts(datanode=request.node))
            return recorded
        found = self._catalog.process_of(request.node)
        if found != process:
            raise NotReadyError(
                f"DataNode {request.node}: another process of this name registered meanwhile",
                node=request.node,
            )
        return found
