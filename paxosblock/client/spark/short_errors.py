"""Errors as users of Spark meet them.

An error of a data source reaches them with its whole traceback, dozens of lines through PySpark and
this package, and the message at the end. The messages of our own errors say everything, so users
see only these; an unforeseen error keeps its traceback.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from paxosblock.errors import PaxosBlockError

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)


def short_errors(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function or a generator that Spark calls: PaxosBlockErrors leave it without a
    traceback, which the log has at level debug.
    """
    call = _generating(function) if inspect.isgeneratorfunction(function) else _calling(function)
    return functools.wraps(function)(call)


def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except PaxosBlockError as error:
            raise _short(error) from None

    return call


def _generating(function: Callable[..., Any]) -> Callable[..., Any]:
    def generate(*args: Any, **kwargs: Any) -> Any:
        try:
            yield from function(*args, **kwargs)
        except PaxosBlockError as error:
            raise _short(error) from None

    return generate


def _short(error: PaxosBlockError) -> PaxosBlockError:
    _log.debug("%s", error, exc_info=error)
    return error.with_traceback(None)
