"""One gateway in several processes, which share its ports."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paxosblock.errors import ConfigError
from paxosblock.gateway.gateway_server import S3_ADDRESS_FILE
from paxosblock.gateway.worker_metrics import Worker, open_lines
from paxosblock.host.logs import facts
from paxosblock.host.startup import collect_seldom
from paxosblock.host.workers import Workers
from paxosblock.net.serving import ADDRESS_FILE, Port, bind_port, publish_address

ADDRESS_FILES: Final = ADDRESS_FILE, S3_ADDRESS_FILE

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Share:
    """A worker's part of a gateway, and the ports at which all workers listen."""

    worker: Worker
    port: Port
    s3_port: Port | None
    tell_ready: Callable[[], None]


def divide(count: int, listen: str, s3_listen: str | None, path: Path | None) -> Share | None:
    """Fork `count` workers that listen at the same ports, and watch them until SIGTERM or SIGINT.

    Args:
        listen: host:port; port 0 lets the system choose, once for all.
        s3_listen: that of the door of S3; None: it has none.
        path: a folder for files with the addresses, which this process writes.

    Returns:
        In each worker what it has; None in this process, once all have ended.

    Raises:
        ConfigError: it cannot listen there, or there are too few descriptors.
        StorageError: an address cannot be written.
        SystemExit: a worker did not start, and has told why.
    """
    ports = bind_port(listen), None if s3_listen is None else bind_port(s3_listen)
    try:
        lines = open_lines(count)
    except OSError as error:
        raise ConfigError(f"processes = {count}: {error.strerror}") from error
    collect_seldom()  # what is there now no worker looks at, or writes to: it stays shared
    workers = Workers(count)
    if (number := workers.start()) is None:
        with contextlib.ExitStack() as stack:
            for port, name in zip(ports, ADDRESS_FILES, strict=True):
                if path is not None and port is not None:
                    publish_address(stack, path, port.address, name)
            told = facts(processes=count, address=ports[0].address)
            _log.info("Gateway watches its workers", extra=told)
            if (number := workers.watch()) is not None:
                stack.pop_all()  # the files are the parent's
    return None if number is None else Share(Worker(number, lines), *ports, workers.tell_ready)
