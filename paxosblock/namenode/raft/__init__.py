"""The replicated engine of the NameNode's key-value store: Raft, on raftos 0.2.6 by subclassing.

`store.py` is the `KeyValueStore` that the rest of the NameNode sees. RAFT.md beside this file
describes how the parts work together, and AUDIT.md lists the defects of raftos and the class that
mends each. Only `contract.py`, `roles.py`, `leader.py` and `raft_node.py` import raftos.
"""

from __future__ import annotations

import logging

# raftos warns on import that its own encryption is off. Its network is not used.
logging.getLogger("raftos").setLevel(logging.ERROR)
