"""`paxosblock setup tls` and `tls-user`: a private authority, and the certificates it makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paxosblock.cli.group import LocalVerb, seconds
from paxosblock.cli.invocation import Invocation, UserError
from paxosblock.net.port.certified import CertifiedKind, CertifiedName

if TYPE_CHECKING:
    from paxosblock.net.port.certificates import Authority

_FOLDER = click.Path(file_okay=False, path_type=Path)


def _lasts(default: str) -> Callable[[Any], Any]:
    return click.option(
        "--for",
        "lasts",
        default=default,
        show_default=True,
        metavar="DURATION",
        callback=lambda _, __, written: seconds(written),
        help="The time for which each certificate is good, such as 90d.",
    )


@click.command(cls=LocalVerb)
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.option(
    "--namenodes",
    default="",
    metavar="HOST[=ADDRESS...],...",
    help="Machines of NameNodes, with other names and addresses by which they are called.",
)
@click.option(
    "--datanodes",
    default="",
    metavar="ID[=ADDRESS...],...",
    help="DataNodes by their --id, which is also their machine unless addresses follow.",
)
@click.option(
    "--gateways",
    default="",
    metavar="NAME[=ADDRESS...],...",
    help="Machines of gateways, for `https_cert`: what programs call them by.",
)
@click.option(
    "--cluster",
    default="",
    metavar="NAME",
    help="The name of the cluster in all its certificates.  [default: paxosblock]",
)
@_lasts("730d")
@click.pass_obj
def tls(
    invocation: Invocation,
    *,
    folder: Path,
    namenodes: str,
    datanodes: str,
    gateways: str,
    cluster: str,
    lasts: float,
) -> None:
    """Make certificates for nodes in DIR, and a private authority if DIR has none.

    \b
      $ paxosblock setup tls ./tls --namenodes nn1,nn2,nn3 --datanodes dn1=10.0.0.7,dn2
      tls/ca.pem            the authority, for tls_ca of all nodes and clients
      tls/namenode-nn1.pem  paxosblock://paxosblock/namenode at nn1, until 2028-11-26
      ...

    Copy to each node ca.pem and its own file, which only it may read, and name them with tls_ca and
    tls_cert in its settings, or with PAXOSBLOCK_TLS_CA and PAXOSBLOCK_TLS_CERT. A gateway shows its
    file (https_cert) to programs, which must believe ca.pem; to nodes it shows another one. Keep
    DIR with ca.key, which no node needs: with it one can be any node or user. The same command
    again makes new certificates in the place of old ones; nodes read a file again when it was
    replaced. An authority of your own may write the same URIs (docs/operations.md).
    """
    from paxosblock.net.port.certificates import Authority

    authority = Authority.made(folder, cluster, usual="paxosblock")
    invocation.say(f"{folder / 'ca.pem'}  the authority, for tls_ca of all nodes and clients")
    for kind, entries in ((CertifiedKind.NAMENODE, namenodes), (CertifiedKind.DATANODE, datanodes)):
        for entry in filter(None, entries.split(",")):
            name, *addresses = entry.split("=")
            is_datanode = kind is CertifiedKind.DATANODE
            holder = CertifiedName(authority.cluster, kind, name if is_datanode else "")
            hosts = addresses if is_datanode and addresses else [name, *addresses]
            _certify(
                invocation, authority, f"{kind.value}-{name}", holder, hosts=hosts, for_s=lasts
            )
    for entry in filter(None, gateways.split(",")):
        hosts = entry.split("=")
        _certify(invocation, authority, f"gateway-{hosts[0]}", None, hosts=hosts, for_s=lasts)


@click.command(cls=LocalVerb)
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.argument("name", metavar="NAME")
@click.option("--groups", default="", metavar="GROUP,...", help="The groups of the user.")
@_lasts("90d")
@click.pass_obj
def tls_user(invocation: Invocation, *, folder: Path, name: str, groups: str, lasts: float) -> None:
    """Make the certificate of a user, by the authority in DIR.

    \b
      $ paxosblock setup tls-user ./tls me --groups ops,dev
      tls/user-me.pem  paxosblock://paxosblock/user/me?groups=ops,dev, until 2027-02-25
      $ export PAXOSBLOCK_TLS_CERT=$PWD/tls/user-me.pem PAXOSBLOCK_TLS_CA=$PWD/tls/ca.pem

    Nodes believe what it says until it ends: it cannot be taken back, so let it be short.
    """
    from paxosblock.net.port.certificates import Authority

    authority = Authority.at(folder)
    said = tuple(filter(None, groups.split(",")))
    holder = CertifiedName(authority.cluster, CertifiedKind.USER, name, said)
    _certify(invocation, authority, f"user-{name}", holder, hosts=(), for_s=lasts)


def _certify(
    invocation: Invocation,
    authority: Authority,
    file_name: str,
    holder: CertifiedName | None,
    *,
    hosts: Sequence[str],
    for_s: float,
) -> None:
    """Write the file of one holder, and say so."""
    file = authority.folder / f"{file_name}.pem"
    if "/" in file_name or not file_name.isprintable():
        raise UserError(file_name, "a name that makes no name of a file")
    ends_s = authority.certify(file, holder, hosts, for_s)
    where = f" at {' '.join(hosts)}" if hosts else ""
    until = time.strftime("%Y-%m-%d", time.gmtime(ends_s))
    called = "a gateway" if holder is None else str(holder)
    fact = {"file": str(file), "holder": called, "hosts": hosts, "until_s": int(ends_s)}
    invocation.say(f"{file}  {called}{where}, until {until}", fact)
