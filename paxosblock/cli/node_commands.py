"""`paxosblock namenode`, `datanode` and `gateway`: one server in this process, until SIGTERM."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from paxosblock.base.rack import DEFAULT_RACK, is_rack
from paxosblock.cli.group import TERMINATE, LocalVerb
from paxosblock.cli.invocation import Invocation
from paxosblock.cli.page_contents import PageContents
from paxosblock.cli.upgrading import (
    check_upgrade_options,
    end_upgrade,
    upgrade_options,
)
from paxosblock.client.names.url import cluster_addresses
from paxosblock.errors import ConfigError, StorageError
from paxosblock.host.logs import LineForm, LogLevel
from paxosblock.host.startup import quick_imports

if TYPE_CHECKING:
    from paxosblock.config import GatewayConfig, NodeConfig, ServerConfig


_LOG_OPTIONS: Final = (
    click.option(
        "--log-level",
        type=click.Choice([each.value for each in LogLevel]),
        help=f"The least of what is logged; also a setting.  [default: {LogLevel.INFO.value}]",
    ),
    click.option(
        "--log-format",
        type=click.Choice([each.value for each in LineForm]),
        help="Lines of text or of JSON; also a setting.  [default: text]",
    ),
    click.option(
        "--log-file",
        metavar="FILE",
        help="A file for the log in the place of standard error; also a setting, as are "
        "log_file_size and log_files, which bound it.",
    ),
)


def _with(options: Iterable[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return the decorator that adds these options."""

    def decorate(function: Any) -> Any:
        for option in reversed(tuple(options)):
            function = option(function)
        return function

    return decorate


def _node_options(default_port: int, default_name: str) -> Callable[[Any], Any]:
    """Return the options that both kinds of nodes take."""
    options = (
        click.option(
            "--listen",
            default=f"127.0.0.1:{default_port}",
            show_default=True,
            metavar="HOST:PORT",
            help="Where to listen. Port 0: any free one; PATH/address has the real address.",
        ),
        click.option("--id", "node_id", help=f"The node's name.  [default: {default_name}]"),
        click.option(
            "--config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="A TOML file of settings. PAXOSBLOCK_<SECTION>_<NAME> in the environment wins. "
            "max_connections, max_connections_per_address, request_head_timeout, "
            "request_stall_timeout and request_memory bound what a flood may cost: "
            "paxosblock help cli.",
        ),
        click.option(
            "--insecure",
            is_flag=True,
            help="Listen beyond this machine without certificates and without an access secret: "
            "whoever reaches the port may read and delete everything.",
        ),
        click.option(
            "--tls-cert",
            metavar="FILE",
            help="The node's certificate and key (`paxosblock setup tls`); also a setting.",
        ),
        click.option(
            "--tls-key",
            metavar="FILE",
            help="The certificate's key, if it is in a file of its own; also a setting.",
        ),
        click.option(
            "--tls-ca",
            metavar="FILE",
            help="The authorities whose certificates the node believes; also a setting.",
        ),
        *_LOG_OPTIONS,
        click.option("--die-with", type=int, hidden=True),
    )
    return _with(options)


def _rack(_: click.Context, __: click.Parameter, written: str | None) -> str | None:
    if written is not None and not is_rack(written):
        raise click.BadParameter(f"{written!r} is not a rack: write a path such as /dc1/r7")
    return written


@click.command(cls=LocalVerb)
@_node_options(default_port=9870, default_name="MACHINE:PORT")
@click.option(
    "--path",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The node's folder.",
)
@click.option(
    "--peers",
    metavar="HOST:PORT,...",
    help="All NameNodes where there are several, including this one (its --listen or --advertise).",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="With --peers: this one's address among them, if it listens elsewhere, as at 0.0.0.0.",
)
@click.option(
    "--new-cluster",
    is_flag=True,
    help="With --peers: the first start of a new cluster, which begins when all of them have been "
    "started so. Without it an empty folder is refused.",
)
@click.option(
    "--join",
    "joins",
    is_flag=True,
    help="With --peers: the first start of one that joins a NameNode which `paxosblock admin "
    "grow` or `restore` made the first of several.",
)
@click.option(
    "--secret-file",
    envvar="PAXOSBLOCK_SECRET_FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="With --peers: a file that only these NameNodes have and not everybody may read; also "
    "from PAXOSBLOCK_SECRET_FILE.",
)
@click.pass_obj
def namenode(
    invocation: Invocation,
    /,
    *,
    listen: str,
    node_id: str | None,
    config: Path | None,
    insecure: bool,
    die_with: int | None,
    path: Path,
    peers: str | None,
    advertise: str | None,
    new_cluster: bool,
    joins: bool,
    secret_file: Path | None,
    **settings_given: str | None,
) -> None:
    """Run a NameNode: it knows the files, their blocks and who may write them.

    \b
      $ paxosblock namenode --path /var/lib/paxosblock/namenode --listen nn:9870

    Three of them, on machines of their own, go on when one is lost; each is started with the same
    --peers and --secret-file:

    \b
      $ paxosblock namenode --path /var/lib/paxosblock/namenode --listen nn1:9870 \\
          --peers nn1:9870,nn2:9870,nn3:9870 --secret-file /etc/paxosblock/secret

    Add --new-cluster the first time, and only then: a NameNode that finds its folder empty has lost
    its data, and must not take part as if there had been none. `paxosblock admin grow` makes a
    cluster of one NameNode one of three, and its --help says how.

    A node listens beyond this machine only with a certificate (`paxosblock setup tls`) or an access
    secret (`paxosblock setup secret`), or with --insecure.

    Logs to standard error. Closes at SIGTERM or Ctrl-C. Exit code 74 when its disk failed: start
    it again, for only a new process knows what the disk really has.
    """
    with quick_imports():
        from paxosblock.config import NameNodeConfig, load_config
        from paxosblock.namenode.membership import read_peers
        from paxosblock.namenode.namenode_server import serve
    name = node_id or _default_name(listen, path)
    _set_up(invocation, die_with)
    settings = load_config(NameNodeConfig, config, flags=settings_given)
    _begin_log(invocation, name, settings)
    _check_reach(listen, settings, insecure)
    if not peers and (advertise or new_cluster or joins):
        raise ConfigError("--advertise, --new-cluster and --join go with --peers")
    several = None
    if peers:
        members = cluster_addresses(peers)
        several = read_peers(
            members, advertise or listen, secret_file, new_cluster=new_cluster, joins=joins
        )
    serving = serve(
        settings, listen=listen, path=path, node_id=name, peers=several, contents_of=PageContents
    )
    _run(invocation, serving)


@click.command(cls=LocalVerb)
@_node_options(default_port=9864, default_name="made at the first start, and kept in its folders")
@click.option(
    "--path",
    "paths",
    required=True,
    multiple=True,
    metavar="DIR[,DIR...]",
    help="Folder of a volume. For several volumes: several folders, or the option again.",
)
@click.option(
    "--namenodes",
    envvar="PAXOSBLOCK_NAMENODES",
    metavar="HOST:PORT[,...]",
    help="The NameNodes; also from PAXOSBLOCK_NAMENODES.",
)
@click.option(
    "--rack",
    metavar="PATH",
    callback=_rack,
    help="Where this node stands, such as /dc1/r7: a block is in two racks whenever there are two. "
    "The setting `rack` says the same; the table `racks` of the NameNodes wins over both.  "
    f"[default: {DEFAULT_RACK}]",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="The address that it tells the NameNodes, by which clients and other nodes reach it, if "
    "it listens elsewhere, as at 0.0.0.0. It does not start with one at which no other reaches it.",
)
@upgrade_options
@click.pass_obj
def datanode(
    invocation: Invocation,
    /,
    *,
    listen: str,
    node_id: str | None,
    config: Path | None,
    insecure: bool,
    die_with: int | None,
    paths: tuple[str, ...],
    namenodes: str | None,
    advertise: str | None,
    upgrade: bool,
    rollback: bool,
    finalize_upgrade: bool,
    yes: bool,
    **settings_given: str | None,
) -> None:
    """Run a DataNode: it keeps replicas of blocks and votes for their chunks.

    \b
      $ paxosblock datanode --listen dn1:9864 --namenodes nn:9870 --path /disk1/pxb,/disk2/pxb

    Logs to standard error. Closes at SIGTERM or Ctrl-C. Exit code 74 when no volume is left: start
    it again, for only a new process knows what the disks really have. Exit code 1 when every
    NameNode that answers refuses it: it belongs to another cluster, or has a copy of a volume.

    Before you try a new version of paxosblock, and to go back to the old one or to stay:

    \b
      $ paxosblock datanode --path /disk1/pxb --namenodes nn:9870 --upgrade
      $ paxosblock datanode --path /disk1/pxb --rollback
      $ paxosblock datanode --path /disk1/pxb --finalize-upgrade
    """
    check_upgrade_options(upgrade=upgrade, rollback=rollback, finalize=finalize_upgrade, yes=yes)
    volumes = _folders(paths)
    if rollback or finalize_upgrade:
        end_upgrade(invocation, volumes, rollback=rollback, yes=yes)
        return
    if not namenodes:
        raise click.UsageError("Missing option '--namenodes'.")
    with quick_imports():
        from paxosblock.config import DataNodeConfig, load_config
        from paxosblock.datanode.datanode_server import serve

    _set_up(invocation, die_with)
    settings = load_config(DataNodeConfig, config, flags=settings_given)
    _begin_log(invocation, node_id or _default_name(listen, volumes[0]), settings)
    _check_reach(listen, settings, insecure)
    _check_advertised(listen, advertise, addresses := cluster_addresses(namenodes))
    serving = serve(
        settings,
        listen=listen,
        paths=volumes,
        namenodes=addresses,
        node_id=node_id,
        upgrade=upgrade,
        advertise=advertise,
    )
    _run(invocation, serving)


@click.command(cls=LocalVerb)
@click.option(
    "--listen",
    default="127.0.0.1:14000",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to listen. Port 0: any free one; PATH/address has the real address.",
)
@click.option(
    "--s3-listen",
    metavar="HOST:PORT",
    help="Where to listen for programs of S3, as at 127.0.0.1:9878; without it there is no S3. "
    "Port 0: any free one; PATH/s3-address has the real address.",
)
@click.option(
    "--namenodes",
    required=True,
    envvar="PAXOSBLOCK_NAMENODES",
    metavar="HOST:PORT[,...]",
    help="The NameNodes; also from PAXOSBLOCK_NAMENODES.",
)
@click.option(
    "--advertise",
    metavar="HOST:PORT",
    help="A name by which programs reach it, if it listens elsewhere, as at 0.0.0.0.",
)
@click.option(
    "--path",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder for the file `address`; a gateway keeps nothing else.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file of settings. [client] says how it reaches the cluster, [gateway] the rest; "
    "PAXOSBLOCK_<SECTION>_<NAME> in the environment wins.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen beyond this machine: what comes and goes is not encrypted, and where the gateway "
    "proves nothing to the cluster, each program is believed the name of its user.",
)
@click.option(
    "--processes",
    metavar="N",
    help="Processes that share the ports, for the processors of a machine; also a setting.  "
    "[default: 1]",
)
@_with(_LOG_OPTIONS)
@click.option("--die-with", type=int, hidden=True)
@click.pass_obj
def gateway(
    invocation: Invocation,
    /,
    *,
    listen: str,
    s3_listen: str | None,
    namenodes: str,
    advertise: str | None,
    path: Path | None,
    config: Path | None,
    insecure: bool,
    die_with: int | None,
    **settings_given: str | None,
) -> None:
    """Run a gateway: WebHDFS, for Hadoop's programs and all that were written for HDFS, and S3.

    \b
      $ paxosblock gateway --namenodes nn:9870 --s3-listen 127.0.0.1:9878
      $ curl 'http://127.0.0.1:14000/webhdfs/v1/?op=LISTSTATUS&user.name=me'
      $ hdfs dfs -ls webhdfs://127.0.0.1:14000/
      $ eval "$(paxosblock admin s3-key)"
      $ aws --endpoint-url http://127.0.0.1:9878 s3 ls

    It keeps nothing: any number of them may run, and one that is killed loses what was on its way
    through it. Each request is made as the user who asks. Where the cluster wants a proof of users,
    that is a token (`paxosblock admin token issue`), as `Authorization: Bearer` or `delegation=`.

    Logs to standard error. Closes at SIGTERM or Ctrl-C.
    """
    with quick_imports():
        from paxosblock.config import ClientConfig, GatewayConfig, load_config
        from paxosblock.gateway.gateway_processes import divide
        from paxosblock.gateway.gateway_server import serve

    _set_up(invocation, die_with)
    settings = load_config(GatewayConfig, config, flags=settings_given)
    client = load_config(ClientConfig, config)
    name, alone = f"gateway:{listen.rpartition(':')[2]}", settings.processes == 1
    _begin_log(invocation, name, settings, batched=alone)
    for each in (listen, s3_listen):
        if each is not None and not settings.https_cert:
            _check_gateway_reach(each, insecure)
    addresses = cluster_addresses(namenodes)
    serving = partial(serve, client=client, namenodes=addresses, advertise=advertise)
    if alone:
        _run(invocation, serving(settings, listen=listen, path=path, s3_listen=s3_listen))
    elif (share := divide(settings.processes, listen, s3_listen, path)) is not None:
        settings = _of_worker(settings, share.worker.number)
        _begin_log(invocation, f"{name}/{share.worker.number}", settings)
        one = partial(serving, settings, listen=share.port, s3_listen=share.s3_port)
        _run(invocation, one(worker=share.worker, tell_ready=share.tell_ready))


def _of_worker(settings: GatewayConfig, number: int) -> GatewayConfig:
    """Return the settings of one worker: a file can be written by one process only."""
    if not settings.log_file:
        return settings
    file = Path(settings.log_file)
    return replace(settings, log_file=str(file.with_name(f"{file.stem}-{number}{file.suffix}")))


def _check_gateway_reach(listen: str, insecure: bool) -> None:
    """Raise ConfigError for a gateway without TLS that others than this machine may reach."""
    from paxosblock.base.loopback import is_loopback
    from paxosblock.net.port.upgrade import split_address

    if not (insecure or is_loopback(split_address(listen)[0])):
        raise ConfigError(
            f"whoever listens on the way to {listen} reads along: give the gateway a certificate "
            "(https_cert in [gateway]), let it listen at 127.0.0.1 behind a proxy that has one, or "
            "say --insecure"
        )


def _run(invocation: Invocation, serving: Coroutine[Any, Any, None]) -> None:
    """Run the node; a disk that fails at its start ends it like one that fails later."""
    from paxosblock.host.loop import run
    from paxosblock.net.serving import DISK_FAILED

    try:
        try:
            run(serving)
        finally:
            logging.shutdown()  # its log must come before its last line
    except StorageError as error:
        invocation.tell_failure(error)
        raise click.exceptions.Exit(DISK_FAILED) from error


def _check_reach(listen: str, settings: NodeConfig, insecure: bool) -> None:
    """Raise ConfigError for a node that others than this machine may reach, if it has neither a
    certificate nor a secret."""
    from paxosblock.base.loopback import is_loopback
    from paxosblock.net.port.upgrade import split_address

    guarded = settings.access_file or settings.tls_cert
    if not (guarded or insecure or is_loopback(split_address(listen)[0])):
        raise ConfigError(
            f"whoever reaches {listen} may read and delete everything, as there is no access "
            "secret: make one with `paxosblock setup secret FILE`, and name FILE in "
            "PAXOSBLOCK_ACCESS_FILE at all nodes and clients, or give each of them a certificate "
            "(`paxosblock setup tls`), or say --insecure"
        )


def _check_advertised(listen: str, advertise: str | None, namenodes: Iterable[str]) -> None:
    """Raise ConfigError for a DataNode that would tell the NameNodes an address at which no other
    machine reaches it.
    """
    from paxosblock.base.loopback import is_loopback
    from paxosblock.net.port.own_names import means_whoever_asks
    from paxosblock.net.port.upgrade import split_address

    host, port = split_address(advertise or listen)
    ours = {socket.gethostname().lower(), socket.getfqdn().lower()}
    elsewhere = [
        address
        for address in namenodes
        if not is_loopback(name := split_address(address)[0]) and name.lower() not in ours
    ]
    if advertise and not port:
        raise ConfigError(f"--advertise {advertise}: name the port by which others reach it")
    if means_whoever_asks(host) and (elsewhere or not is_loopback(host)):
        whom = f"The NameNode at {elsewhere[0]}" if elsewhere else "A NameNode"
        raise ConfigError(
            f"{advertise or listen} leads whoever dials it to himself. {whom} would send clients "
            "and other nodes there: name an address by which they reach this one, --advertise "
            "HOST:PORT"
        )


def _default_name(listen: str, folder: Path) -> str:
    """Return a name that stays after a restart, and differs for another node of this machine."""
    port = listen.rpartition(":")[2]
    return f"{socket.gethostname()}:{folder.absolute() if port == '0' else port}"


def _set_up(invocation: Invocation, die_with: int | None) -> None:
    """Prepare the process, before everything else."""
    invocation.serves = True
    os.umask(0o077)  # what a node keeps is its own, the files of a database, too
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))  # a core file has each secret in it
    for number in TERMINATE:  # until it serves, a signal ends it where it is, as a crash would
        signal.signal(number, signal.SIG_DFL)
    if die_with is not None:
        from paxosblock.host.process import die_with as end_with

        end_with(die_with)


def _begin_log(
    invocation: Invocation, name: str, settings: ServerConfig, *, batched: bool = True
) -> None:
    from paxosblock.host.logs import RotatedFile, set_up_logs
    from paxosblock.net.calls.call_server import asked

    out = None
    if settings.log_file:
        bounds = settings.log_file_size_bytes, settings.log_files
        out = RotatedFile(Path(settings.log_file), *bounds)
    if settings.log_format is LineForm.JSON:
        invocation.json = True  # the reason for its end is a line of the log, too
    set_up_logs(name, settings.log_level, out, settings.log_format, asked, batched=batched)


def _folders(paths: tuple[str, ...]) -> tuple[Path, ...]:
    folders = tuple(Path(part) for path in paths for part in path.split(",") if part)
    if not folders or len(set(folders)) < len(folders):
        raise ConfigError(f"--path {','.join(paths)}: name each volume's folder once")
    return folders
