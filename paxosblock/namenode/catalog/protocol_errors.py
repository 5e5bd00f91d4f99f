"""The errors that tell a client why a rule of the protocol did not apply to a block."""

from __future__ import annotations

from paxosblock.errors import FencedError, InvalidRequestError, NotReadyError, PaxosBlockError
from paxosblock.protocol.finalize import BlockRecord, Refused, Why


def refusal(refused: Refused) -> PaxosBlockError:
    """Return the error that tells a client why a compare-and-set did not apply."""
    record = refused.record
    block = record.block
    match refused.why:
        case Why.FINALIZED:
            return FencedError(
                f"block {block}: was finalized with {record.length} chunks, "
                f"{record.size_bytes} bytes",
                block=block,
                length=record.length,
                size_bytes=record.size_bytes,
            )
        case Why.NOT_WRITER:
            return FencedError(
                f"block {block}: belongs to writer {record.writer} in generation "
                f"{record.writer_generation}",
                block=block,
            )
        case Why.NEWER:
            return FencedError(
                f"block {block}: generation {record.generation} was allocated meanwhile",
                block=block,
            )
        case Why.NOT_FINALIZED:
            return NotReadyError(f"block {block}: is not finalized yet", block=block)
        case Why.TOO_FEW:
            return NotReadyError(
                f"block {block}: too few other members have reported it", block=block
            )
        case Why.RESTORED:
            return NotReadyError(
                f"block {block}: a backup brought it back, and what became of it since is being "
                "found out",
                block=block,
            )
        case Why.BAD_LENGTH:
            return InvalidRequestError(
                f"block {block}: has {record.length} chunks, {record.size_bytes} bytes", block=block
            )


def check_learned(record: BlockRecord) -> None:
    """Demand that it is known what became of a block since a backup (K14).

    Raises:
        NotReadyError: it is being found out.
    """
    if record.restored:
        raise refusal(Refused(Why.RESTORED, record))
