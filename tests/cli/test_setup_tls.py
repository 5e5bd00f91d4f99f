"""`paxosblock setup tls` and `tls-user`, and a cluster that makes all of that itself."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import msgspec
import pytest

from paxosblock import Client, LocalCluster
from paxosblock.errors import AccessDeniedError
from paxosblock.net.port.certified import CertifiedKind
from paxosblock.net.port.tls import Tls
from tests.cli.conftest import Paxosblock


def test_files_are_made_for_nodes_and_users(paxosblock: Paxosblock, tmp_path: Path) -> None:
    folder, nodes = tmp_path / "tls", ["--namenodes", "nn1", "--datanodes", "dn1=10.0.0.7,dn2"]
    nodes += ["--gateways", "gw1=10.0.0.9"]
    made = paxosblock("setup", "tls", folder, "--cluster", "c", *nodes, "--for", "10d")
    assert (made.code, made.err) == (0, "")
    authority, *lines = made.out.splitlines()
    assert authority.split()[0] == f"{folder}/ca.pem"
    assert [line.rpartition(",")[0] for line in lines] == [
        f"{folder}/namenode-nn1.pem  paxosblock://c/namenode at nn1",
        f"{folder}/datanode-dn1.pem  paxosblock://c/datanode/dn1 at 10.0.0.7",
        f"{folder}/datanode-dn2.pem  paxosblock://c/datanode/dn2 at dn2",
        f"{folder}/gateway-gw1.pem  a gateway at gw1 10.0.0.9",
    ]
    user = paxosblock("setup", "tls-user", folder, "me", "--groups", "ops,dev", "--json")
    assert json.loads(user.out)["holder"] == "paxosblock://c/user/me?groups=ops,dev"

    ca = str(folder / "ca.pem")
    for kind, file in (
        (CertifiedKind.NAMENODE, "namenode-nn1"),
        (CertifiedKind.DATANODE, "datanode-dn1"),
        (None, "user-me"),
    ):
        assert Tls(str(folder / f"{file}.pem"), ca, serves=kind).names[0].cluster == "c"
    for secret in (*folder.glob("*-*.pem"), folder / "ca.key"):
        assert secret.stat().st_mode & 0o777 == 0o600

    before = (folder / "ca.pem").read_bytes(), (folder / "datanode-dn1.pem").read_bytes()
    assert paxosblock("setup", "tls", folder, "--datanodes", "dn1").code == 0
    assert (folder / "ca.pem").read_bytes() == before[0]
    assert (folder / "datanode-dn1.pem").read_bytes() != before[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tls", "DIR", "--cluster", "other"], "tls: DIR has the authority of the cluster 'c'"),
        (
            ["tls", "DIR", "--namenodes", "a b/c"],
            "tls: 'namenode-a b/c': a name that makes no name",
        ),
        (
            ["tls", "DIR", "--namenodes", "n\u00e4"],
            "tls: DIR/namenode-n\u00e4.pem: no certificate of",
        ),
        (["tls-user", "DIR", "a/b"], "tls-user: 'user-a/b': a name that makes no name of a file"),
        (["tls-user", "DIR/none", "me"], "tls-user: 'DIR/none': DIR/none has no authority"),
    ],
)
def test_what_makes_no_certificate_is_refused_in_one_line(
    words: list[str], said: str, paxosblock: Paxosblock, tmp_path: Path
) -> None:
    assert paxosblock("setup", "tls", tmp_path, "--cluster", "c").code == 0
    refused = paxosblock("setup", *(word.replace("DIR", str(tmp_path)) for word in words))
    assert refused.code == 1
    assert refused.err.startswith(said.replace("DIR", str(tmp_path)))
    assert refused.err.count("\n") == 1


@pytest.mark.plain("it begins with a plain cluster or client")
def test_a_secure_cluster_goes_up_says_how_it_is_called_and_stays_so(
    paxosblock: Paxosblock, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("cluster", "up", "--path", home, "--base-port", "0", "--datanodes", "1")
    up = paxosblock(*arguments, "--secure")
    assert (up.code, up.err) == (0, "")
    exports = dict(shlex.split(line)[1].split("=") for line in up.out.splitlines()[-3:])
    assert list(exports) == ["PAXOSBLOCK_NAMENODES", "PAXOSBLOCK_TLS_CERT", "PAXOSBLOCK_TLS_CA"]
    assert paxosblock("cluster", "env", "--path", home).out.splitlines() == up.out.splitlines()[-3:]
    assert paxosblock("cluster", "status", "--path", home).code == 0

    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", exports["PAXOSBLOCK_NAMENODES"])
    refused = paxosblock("fs", "ls", "/")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    for name, value in exports.items():
        monkeypatch.setenv(name, value)
    assert paxosblock("fs", "mkdir", "/d").code == 0

    assert paxosblock("cluster", "down", "--path", home).code == 0
    assert paxosblock(*arguments).code == 0
    with Client(f"paxosblock://{exports['PAXOSBLOCK_NAMENODES']}") as fs:
        assert fs.exists("/d")
        view = fs.blocks.add()
    unsigned = msgspec.structs.replace(view.members[0], capability=b"")
    with (
        Client(f"paxosblock://{exports['PAXOSBLOCK_NAMENODES']}") as stranger,
        pytest.raises(AccessDeniedError, match="brings no capability"),
    ):
        stranger.blocks.datanode(unsigned).read(view.record.block)


@pytest.mark.plain("it begins with a plain cluster or client")
def test_a_cluster_that_runs_without_certificates_is_not_made_secure(
    paxosblock: Paxosblock, home: Path
) -> None:
    arguments = ("cluster", "up", "--path", home, "--base-port", "0", "--datanodes", "1")
    assert paxosblock(*arguments).code == 0
    refused = paxosblock(*arguments, "--secure")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "its cluster runs: `paxosblock cluster down` first" in refused.err
    assert paxosblock("cluster", "down", "--path", home).code == 0
    assert paxosblock(*arguments, "--secure").code == 0
    local = LocalCluster.at(home)
    with Client(local.url, local.client_config) as fs:
        assert fs.ls("/") == []
