"""The data stream: frames on a connection that began as an HTTP Upgrade.

A client asks `GET /stream` with `Upgrade: paxosblock-stream/3` on a node's only port. After the
`101` both ends speak frames (wire.py) and nothing else; the client sends its first frame when it
has the `101`. `connection.py` is each end from then on; `stream_calls.py` puts requests and replies
on top. This module is the client's side of the Upgrade; `stream_server.py` is the node's.
"""

from __future__ import annotations

from paxosblock.net.port import upgrade
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.port.caller import REQUEST_ID, REQUEST_NAME
from paxosblock.net.spans import stream_name
from paxosblock.net.streams.connection import FrameConnection, FrameHandler, tune_socket


async def connect(
    host: str,
    port: int,
    handler: FrameHandler,
    *,
    timeout_s: float = 5.0,
    access: Access = OPEN,
) -> FrameConnection:
    """Open a data stream to the node at host:port. Raises what `upgrade.connect` does.

    It has a name for the logs, that of the call for which it is opened, or one of its own.
    """
    return await upgrade.connect(
        host,
        port,
        upgrade.STREAM,
        lambda _: FrameConnection(handler, f"{host}:{port}"),
        timeout_s=timeout_s,
        headers={REQUEST_NAME: REQUEST_ID.get("") or stream_name()},
        tune=tune_socket,
        access=access,
    )
