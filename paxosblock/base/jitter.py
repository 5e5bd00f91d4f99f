"""The generator of the pauses and choices that only have to differ, from client to client.

It is not the one of the module `random`: its sequence belongs to the program that embeds us, which
may have seeded it so that a run repeats.
"""

from __future__ import annotations

import os
import random
from typing import Final

JITTER: Final = random.Random()
os.register_at_fork(after_in_child=JITTER.seed)  # parent and child would come in step
