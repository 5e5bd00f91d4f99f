"""The door of WebHDFS: from a request to its operation, and from what that raises to a refusal."""

from __future__ import annotations

import contextlib
import logging
from http import HTTPStatus
from typing import Final

from paxosblock.base.paths import STAGING, is_below
from paxosblock.errors import ConfigError, PaxosBlockError
from paxosblock.gateway.budget import Budget
from paxosblock.gateway.exchange import Answer, Exchange, answered_with
from paxosblock.gateway.proxy_users import ImpersonationError
from paxosblock.gateway.user_clients import Principal, UserClients
from paxosblock.gateway.webhdfs import (
    attribute_operations,
    change_operations,
    operation_table,
    read_operations,
    token_operations,
)
from paxosblock.gateway.webhdfs.operation_table import HadoopCall, operation_of
from paxosblock.gateway.webhdfs.parameters import PREFIX, Parameters, path_of
from paxosblock.gateway.webhdfs.remote_exceptions import (
    HadoopError,
    JavaError,
    as_hadoop_error,
    refusal_of,
)
from paxosblock.gateway.webhdfs.repeats import Repeats
from paxosblock.gateway.who_asks import Identification, NoProofError

OPERATIONS: Final = operation_table.OPERATIONS
"""The operations by name, which these modules have put into the table."""
WITH_OPERATIONS: Final = (
    attribute_operations,
    change_operations,
    read_operations,
    token_operations,
)

_log = logging.getLogger(__name__)


class WebHdfsDoor:
    """Answers requests below `/webhdfs/v1` for the users of one cluster."""

    def __init__(self, clients: UserClients, identification: Identification, budget: Budget):
        self._clients = clients
        self._identification = identification
        self._budget = budget
        self._repeats = Repeats(clients)

    @staticmethod
    def has(target: str) -> bool:
        """True if a request for this path is one for WebHDFS."""
        return target.partition("?")[0].startswith(PREFIX)

    async def answer(self, exchange: Exchange) -> Answer:
        """Return the answer to a request. Raises nothing but what ends the process."""
        path = ""
        try:
            self._identification.check_place(exchange.headers)
            raw_path, _, query = exchange.target.partition("?")
            path = path_of(raw_path)
            return await self._answered(exchange, path, query)
        except HadoopError as error:
            return refusal_of(error)
        except NoProofError:
            words = "Authentication required: bring a token of a user (paxosblock admin token)"
            return refusal_of(HadoopError(JavaError.NOT_PROVEN, words))
        except ImpersonationError as error:
            return refusal_of(HadoopError(JavaError.AUTHORIZATION, str(error)))
        except ConfigError as error:
            return refusal_of(HadoopError(JavaError.ACCESS_CONTROL, error.message))
        except PaxosBlockError as error:
            return refusal_of(as_hadoop_error(error, path))
        except Exception:
            _log.exception("WebHDFS failed at a request")
            return failure(HTTPStatus.INTERNAL_SERVER_ERROR, "the gateway failed, see its log")

    async def _answered(self, exchange: Exchange, path: str, query: str) -> Answer:
        parameters = Parameters(query)
        wanted = operation_of(parameters.text("op"), exchange.method)
        principal = self._principal(exchange, parameters)

        async def run(stack: contextlib.AsyncExitStack) -> Answer:
            client = await stack.enter_async_context(self._clients.lent(principal))
            _check_shown(path)
            call = HadoopCall(
                exchange,
                path,
                query,
                parameters,
                user=principal.user,
                proven=bool(principal.token),
                client=client,
                budget=self._budget,
                stack=stack,
            )
            if wanted.success is None:
                return await wanted.run(call)
            return await self._repeats.answer(call, principal, wanted.run, wanted.success(call))

        return await answered_with(run)

    def _principal(self, exchange: Exchange, parameters: Parameters) -> Principal:
        principal = self._identification.principal(
            exchange.headers, parameters.text("delegation"), parameters.text("user.name")
        )
        other = parameters.text("doas", principal.user)
        return self._identification.acting_for(principal, other, exchange.address)


def _check_shown(path: str) -> None:
    """Check that a path is not one of files that are not published yet.

    Raises:
        HadoopError: it is.
    """
    if is_below(path, STAGING):
        words = f"{STAGING} is for files that are not complete yet"
        raise HadoopError(JavaError.ACCESS_CONTROL, words)


def failure(status: int, words: str) -> Answer:
    """Return the answer of this status to what reaches no operation."""
    kind = JavaError.ILLEGAL_ARGUMENT
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        kind = JavaError.RETRIABLE
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        kind = JavaError.RUNTIME
    answer = refusal_of(HadoopError(kind, words))
    answer.status = status
    return answer
