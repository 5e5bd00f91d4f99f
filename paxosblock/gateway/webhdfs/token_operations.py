"""Operations of WebHDFS about delegation tokens, which are the tokens of users."""

from __future__ import annotations

from typing import Final

from paxosblock.api.user_tokens import LONGEST_S, UserToken, unsealed
from paxosblock.errors import AccessDeniedError, NotFoundError
from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.webhdfs.hadoop_json import answered, done
from paxosblock.gateway.webhdfs.operation_table import HadoopCall, operation
from paxosblock.gateway.webhdfs.remote_exceptions import HadoopError, JavaError

PURPOSE: Final = "webhdfs"


@operation("GETDELEGATIONTOKEN", "GET")
async def get_delegation_token(call: HadoopCall) -> Answer:
    """Make a token of the user, who must prove who that is; elsewhere there is none, as in HDFS
    without Kerberos. It is good for seven days, or as long as the one that was brought."""
    if not call.proven:
        return answered({"Token": None})
    issued = await call.fs.issue_token(LONGEST_S, purpose=PURPOSE)
    return answered({"Token": {"urlString": issued.token}})


@operation("RENEWDELEGATIONTOKEN", "PUT")
async def renew_delegation_token(call: HadoopCall) -> Answer:
    """Tell the end of a token of the user, in milliseconds since 1970. A token says its own end:
    it is good that long from the beginning, and no longer."""
    wanted = _token(call)
    listed = await call.fs.tokens()
    if not any(each.note.serial == wanted.serial and not each.revoked for each in listed):
        raise _unknown()
    return answered({"long": wanted.until_s * 1000})


@operation("CANCELDELEGATIONTOKEN", "PUT")
async def cancel_delegation_token(call: HadoopCall) -> Answer:
    """Let no node believe a token of the user any more."""
    try:
        await call.fs.revoke_token(_token(call).serial)
    except NotFoundError:
        raise _unknown() from None
    return done()


def _token(call: HadoopCall) -> UserToken:
    try:
        return unsealed(call.parameters.text("token"))[0]
    except AccessDeniedError:
        raise _unknown() from None


def _unknown() -> HadoopError:
    return HadoopError(JavaError.INVALID_TOKEN, "token can't be found in cache")
