"""Safe mode as an operator enters it: it lasts until an operator leaves it, under any leader.

Every change of names expects its key to be absent, so no name changes while the key is there.
"""

from __future__ import annotations

from paxosblock.errors import SafeModeError
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.draft import Draft


def enter(draft: Draft, now_ms: int) -> None:
    """Enter safe mode, if it is not on already."""
    if not draft.get(keys.SAFE_MODE).exists:
        draft.put(keys.SAFE_MODE, keys.pack_number(now_ms))


def leave(draft: Draft) -> None:
    """Leave safe mode, if it is on."""
    if draft.get(keys.SAFE_MODE).exists:
        draft.delete(keys.SAFE_MODE)


def is_entered(draft: Draft) -> bool:
    """True if an operator entered safe mode; the answer is a precondition, whichever it is."""
    return draft.get(keys.SAFE_MODE).exists


def check_names_may_change(draft: Draft) -> None:
    """Demand that names may be changed, now and when the edit is applied.

    Raises:
        SafeModeError: an operator entered safe mode.
    """
    if is_entered(draft):
        raise SafeModeError(
            "the cluster is in safe mode, which an operator entered: names are not changed until "
            "`paxosblock admin safemode leave`"
        )
