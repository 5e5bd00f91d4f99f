"""Spans of OpenTelemetry: one for each call, at the client and at each node that answers it.

Nothing here imports OpenTelemetry. Spans go somewhere only in a process that has set up its SDK,
and such a process has imported the API; in every other one a call costs a look at `sys.modules`.

The name of a call is the context of its span, so no message has a field for that, and logs tell
the trace of each line: `request=TRACE-SPAN`, in hexadecimal digits. Calls that a node makes to
answer it keep the name, so their spans are children of the client's.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Final, Protocol

from paxosblock.net.message_frames import new_name

API: Final = "opentelemetry.trace"
"""The module that is loaded where spans may be wanted."""
_NAME: Final = re.compile("([0-9a-f]{32})-([0-9a-f]{16})")


class SpanContext(Protocol):
    """The context of a span, as far as it is used here."""

    trace_id: int
    span_id: int


class Span(Protocol):
    """A span, as far as it is used here."""

    def is_recording(self) -> bool:
        """Return True if it goes anywhere."""

    def get_span_context(self) -> SpanContext:
        """Return what others need to know of it."""

    def set_attribute(self, key: str, value: str) -> None:
        """Tell something of it."""

    def set_status(self, status: object, description: str | None = None) -> None:
        """Tell how it ended."""

    def end(self) -> None:
        """End it."""


def asked(method: str, address: str) -> tuple[str, Span | None]:
    """Begin the span of a call that a client makes, below its own span if it has one; return the
    name that the call should have, and the span if it goes anywhere."""
    if (api := _api()) is None:
        return new_name(), None
    told = {"rpc.system": "paxosblock", "rpc.method": method, "server.address": address}
    span: Span = api.get_tracer(__name__).start_span(
        method, kind=api.SpanKind.CLIENT, attributes=told
    )
    name = _name_of(span)
    return (name, span) if name else (new_name(), None)


def stream_name() -> str:
    """Return the name of a data stream that is opened for what the client does now."""
    api = _api()
    return ("" if api is None else _name_of(api.get_current_span())) or new_name()


def answered(method: str, name: str) -> Span | None:
    """Begin the span of a call that a node answers, if its client has one."""
    found, api = _NAME.fullmatch(name), _api()
    if found is None or api is None:
        return None
    trace, parent = (int(part, 16) for part in found.groups())
    sampled = api.TraceFlags(api.TraceFlags.SAMPLED)
    client = api.SpanContext(trace, parent, is_remote=True, trace_flags=sampled)
    told = {"rpc.system": "paxosblock", "rpc.method": method}
    span: Span = api.get_tracer(__name__).start_span(
        method,
        api.set_span_in_context(api.NonRecordingSpan(client)),
        kind=api.SpanKind.SERVER,
        attributes=told,
    )
    return span


def ended(span: Span, error: BaseException | None) -> None:
    """End a span; an error says why the call failed."""
    api = _api()
    if error is not None and api is not None:
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(api.StatusCode.ERROR, str(error))
    span.end()


def _api() -> ModuleType | None:
    """Return the API unless another thread is importing it just now."""
    loaded = sys.modules.get(API)
    return loaded if hasattr(loaded, "__all__") else None


def _name_of(span: Span) -> str:
    """Return the name that tells nodes of a span; "" if it goes nowhere."""
    if not span.is_recording():
        return ""
    context = span.get_span_context()
    return f"{context.trace_id:032x}-{context.span_id:016x}"
