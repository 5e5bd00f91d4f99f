"""The token of a job, with which its tasks come to the cluster, whatever their machines have.

The driver asks for it where a job is planned, as a user who proves who they are. It travels within
what Spark pickles for tasks, and is no option: Spark shows those in plans and on pages. PySpark
keeps no process of ours alive for as long as a batch, and tasks that run cannot be sent another
token. So a batch gets one that outlasts it, and a stream a fresh one with each micro-batch, once
half of the time of the one before is over. All jobs of a user have one token until then.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from paxosblock.api.user_tokens import LONGEST_S, TokenRight, unsealed
from paxosblock.client.blocking.sync import Client
from paxosblock.config import ClientConfig, load_config
from paxosblock.errors import AccessDeniedError

PURPOSE: Final = "spark"
"""The purpose of these tokens, as `paxosblock admin token list` shows it."""


@dataclass(frozen=True, slots=True)
class JobToken:
    """The credentials of a task; without a `word` those of its machine, as in a cluster in which
    the driver proves nothing either."""

    word: str = field(default="", repr=False)
    over_plain: bool = False
    """True: the driver was told that the way to the cluster is safe without TLS."""
    tls_ca: str = ""
    """The file of the cluster's authorities at the driver, for tasks that are told no other."""

    def settings(self, own: ClientConfig) -> ClientConfig:
        """Return the settings of a task's client, made of those of its machine: with a token it
        shows no secret and no certificate that may be there.

        Raises:
            AccessDeniedError: the token has ended.
        """
        if not self.word:
            return own
        token, *_ = unsealed(self.word)
        if token.until_s <= time.time():
            raise AccessDeniedError(
                f"the token of this job, of {token.user}, has ended: tasks began longer after the"
                " query was planned than PAXOSBLOCK_CLIENT_JOB_TOKEN or 'jobTtl' say. Plan it"
                " again (a view or DataFrame is planned once), with a longer one if need be"
            )
        return replace(
            own,
            token=self.word,
            token_over_plain=self.over_plain or own.token_over_plain,
            token_file="",
            access_file="",
            tls_cert="",
            tls_key="",
            tls_ca=own.tls_ca or self.tls_ca,
        )

    def client(self, namenodes: Sequence[str]) -> Client:
        """Make the client of a task that is told all else by its environment."""
        return Client(namenodes, self.settings(load_config(ClientConfig)))


NO_TOKEN: Final = JobToken()
LONG_JOB_S: Final = LONGEST_S / 2
"""Seconds that the longest jobs of one user may take for which they have one token."""


def job_token(
    fs: Client, config: ClientConfig, rights: TokenRight, lasts_s: float = 0.0
) -> JobToken:
    """Return the token for the tasks of a job that may take `lasts_s` seconds, at the driver, whose
    client `fs` has this `config`: one with these rights and the user's own groups.

    A driver that shows a certificate of a user or a token gets one. Without either there is none:
    tasks then claim a user, or prove the access secret, as the driver does.
    """
    if not (config.token or config.token_file or (config.tls_cert and config.tls_required)):
        return NO_TOKEN
    for_s = min(max(2 * lasts_s, config.job_token_s), LONGEST_S)
    # One that was issued before is good for at least half the time.
    again = for_s >= 2 * lasts_s
    issued = fs.issue_token(for_s, rights, purpose=PURPOSE, again=again)
    return JobToken(issued.token, config.token_over_plain, config.tls_ca)
