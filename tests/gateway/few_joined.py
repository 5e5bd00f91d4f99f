"""`python -m tests.gateway.few_joined ...`: paxosblock, but one change joins few parts of an object
that comes in parts, and each part may be small."""

from __future__ import annotations

from typing import Final

from paxosblock.__main__ import main
from paxosblock.gateway.s3 import upload_operations

FEW: Final = 2
"""Parts that one change joins, in place of thousands."""

if __name__ == "__main__":
    upload_operations.JOINED_MAX = FEW  # type: ignore[misc] # only here is it another one
    upload_operations.PART_BYTES_MIN = 1  # type: ignore[misc] # as above
    main()
