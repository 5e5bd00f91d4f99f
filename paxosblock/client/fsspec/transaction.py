"""`with fs.transaction`: all files that were written in it appear at once, or none."""

from __future__ import annotations

from typing import Any

from fsspec.transaction import Transaction

from paxosblock.client.fsspec.files import AsyncWriteFile, WriteFile
from paxosblock.client.fsspec.staging import StagedFile, discard, publish
from paxosblock.errors import InvalidRequestError


class PaxosBlockTransaction(Transaction):
    """Publishes by one replicated transaction, where fsspec's own goes file by file."""

    fs: Any

    def complete(self, commit: bool = True) -> None:
        """End the transaction.

        Args:
            commit: publish; otherwise give all files up.

        Raises:
            InvalidRequestError: a file is still open; nothing was published.
            PaxosBlockError: what stands at one of the targets forbids it; nothing was published.
                An unknown outcome is of all files together.
        """
        fs = self.fs
        staged = [_staged(file) for file in self.files]
        staged = [file for file in staged if not file.discarded]
        self.files.clear()
        # In any case: instances are shared by the whole process.
        fs._intrans, fs._transaction, self.fs = False, None, None
        if not commit:
            fs.runner.run(discard, staged)
            return
        unfinished = [file.target for file in staged if not file.writer.closed]
        if unfinished:
            fs.runner.run(discard, staged)
            raise InvalidRequestError(
                f"nothing was published: '{unfinished[0]}' is open at the end of the transaction"
            )
        fs.runner.run(publish, staged)


def _staged(file: StagedFile | WriteFile | AsyncWriteFile) -> StagedFile:
    return file if isinstance(file, StagedFile) else file.staged
