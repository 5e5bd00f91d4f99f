"""`pytest --secure`: the tests of real processes once more, on clusters with certificates and block
tokens.

Each `LocalCluster` is a secure one, by one authority for the whole run, and each client and command
shows this user's certificate, in this process and in those that it starts. A test whose subject is
another one, such as plain bytes on a socket, says so: `@pytest.mark.plain("why")`, and is left out.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.request import HTTPSHandler, build_opener, install_opener

import pytest

from paxosblock.config import ClientConfig, load_config
from paxosblock.host.user import current_user
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.cluster_folder import ClusterFolder, Membership
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.port.tls import Tls
from tests.certificates import Certificates

SWITCH: Final = "SECURE_TESTS"
"""The variable with the folder of the authority, for the processes that tests start."""
CLUSTER: Final = "local"
"""The name of each cluster, as that of a `LocalCluster`."""
TESTED: Final = (
    "tests/services/",
    "tests/outside/",
    "tests/cli/",
    "tests/spark/",
    "tests/page/",
    "tests/client/test_processes.py",
    "tests/client/test_publishing.py",
    "tests/client/test_growing.py",
    "tests/client/test_snapshots.py",
    "tests/client/test_history.py",
)
"""Tests of whole clusters, which run secure. Others start none, or parts of one by hand."""


def ours() -> Certificates | None:
    """Return the authority of this run; None if it is a plain one."""
    folder = os.environ.get(SWITCH)
    return Certificates(Path(folder), CLUSTER) if folder else None


def url_of(address: str, path: str) -> str:
    """Return the URL of what the node at `address` shows over HTTP, for `urlopen`."""
    return f"http{'s' if ours() else ''}://{address}/{path}"


def begin(folder: Path) -> None:
    """Make the authority of a run, and be secure from now on, and so all that is started."""
    made = Certificates(folder, CLUSTER)
    os.environ |= {
        SWITCH: str(folder),
        "PAXOSBLOCK_CLIENT_TLS_CERT": made.user(current_user()),
        "PAXOSBLOCK_CLIENT_TLS_CA": made.ca,
        # Of nodes that a test starts by itself.
        "PAXOSBLOCK_NAMENODE_TLS_CERT": made.node(),
        "PAXOSBLOCK_NAMENODE_TLS_CA": made.ca,
        "PAXOSBLOCK_NAMENODE_BLOCK_TOKENS": "true",
        "PAXOSBLOCK_DATANODE_TLS_CERT": made.node("datanode-0"),
        "PAXOSBLOCK_DATANODE_TLS_CA": made.ca,
    }
    secure_clients()
    secure_clusters(made)
    # Calls and requests of tests themselves, for which they name no access.
    tls = Tls(os.environ["PAXOSBLOCK_CLIENT_TLS_CERT"], made.ca)
    object.__setattr__(OPEN, "tls", tls)
    install_opener(build_opener(HTTPSHandler(context=tls.client)))


def add_switch(parser: argparse.ArgumentParser) -> None:
    """Let a program of the tests be told `--secure`."""
    why = "with certificates, and block tokens by keys that change each second"
    parser.add_argument("--secure", action="store_true", help=why)


@contextmanager
def as_told(options: argparse.Namespace) -> Iterator[None]:
    """Be secure while a program runs, if its `options` say so."""
    with TemporaryDirectory() as authority:
        if options.secure:
            os.environ["PAXOSBLOCK_NAMENODE_BLOCK_KEY_INTERVAL"] = "1s"
            begin(Path(authority))
        yield


def secure_clients() -> None:
    """Let clients whose configuration was made by hand show the certificate that the environment
    names, as those do that read it from there, in a secure run."""
    if ours() is None:
        return
    of_client = Access.of_client.__func__  # type: ignore[attr-defined]  # a method of the class

    def with_certificate(kind: type[Access], config: ClientConfig) -> Access:
        if not (config.tls_cert or config.tls_ca):
            usual = load_config(ClientConfig)
            config = replace(config, tls_cert=usual.tls_cert, tls_ca=usual.tls_ca)
        found: Access = of_client(kind, config)
        return found

    Access.of_client = classmethod(with_certificate)  # type: ignore[method-assign,assignment]  # so


def secure_clusters(made: Certificates) -> None:
    """Let each `LocalCluster` be secure, by our authority."""
    begin, certify = LocalCluster.__init__, ClusterFolder.secure

    @functools.wraps(begin)
    def secure(cluster: LocalCluster, *given: Any, **named: Any) -> None:
        begin(cluster, *given, **named | {"secure": True})

    def by_us(folder: ClusterFolder, membership: Membership) -> None:
        if not folder.is_secure:
            lend_authority(made, folder.authority.parent)
        certify(folder, membership)

    LocalCluster.__init__ = secure  # type: ignore[method-assign,assignment]  # tests replace it
    ClusterFolder.secure = by_us  # type: ignore[method-assign,assignment]  # as above


def lend_authority(made: Certificates, folder: Path) -> None:
    """Let the cluster that keeps its authority in `folder`, and has none yet, have ours."""
    folder.mkdir(0o700, parents=True)
    for name in ("ca.key", "ca.pem"):
        shutil.copy(made.folder / name, folder)


def choose(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that a secure run is not for."""
    others = [item for item in items if not item.nodeid.startswith(TESTED)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item.nodeid.startswith(TESTED)]
    for item in items:
        if (plain := item.get_closest_marker("plain")) is not None:
            item.add_marker(pytest.mark.skip(reason=plain.args[0]))
