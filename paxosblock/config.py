"""Settings of a NameNode, a DataNode, a client and a gateway.

They are read from a TOML file, then the environment, then flags; later ones win::

    [namenode]
    lease_soft_limit = "60s"            # or PAXOSBLOCK_NAMENODE_LEASE_SOFT_LIMIT=60s
    block_size = "128MiB"

A setting is called like its attribute without the unit: `lease_soft_limit_s` is `lease_soft_limit`.
To add a setting, add a field: the loader reads everything it needs from the field's type.
"""

from __future__ import annotations

import enum
import os
import socket
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, NoReturn, TypeVar
from urllib.parse import urlsplit

from paxosblock.api.care import REPLICATION_MAX
from paxosblock.api.limits import MAX_BODY_BYTES, MAX_CHUNK_BYTES
from paxosblock.api.user_tokens import LONGEST_S
from paxosblock.base.loopback import is_loopback
from paxosblock.base.modes import UMASK
from paxosblock.base.rack import DEFAULT_RACK
from paxosblock.base.replacement import OnFailure, Replacement
from paxosblock.base.settings import (
    TOKEN,
    Bytes,
    BytesOrZero,
    BytesPerSecond,
    Command,
    Count,
    File,
    Flag,
    Groups,
    Host,
    Rack,
    Racks,
    Seconds,
    SecondsOrZero,
    Setting,
    Share,
    Text,
    Token,
    Umask,
    User,
    as_written,
    choice,
    did_you_mean,
    settings_of,
)
from paxosblock.base.units import KIB, MIB, format_duration, format_size
from paxosblock.errors import ConfigError
from paxosblock.host.logs import LineForm, LogLevel
from paxosblock.protocol.types import Durability

ENVIRONMENT_PREFIX: Final = "PAXOSBLOCK"

HEARTBEATS_PER_ELECTION: Final = 3
"""A NameNode waits for at least this many heartbeats of the leader before it calls the leader lost.
"""


BEATS_PER_SILENCE: Final = 4
"""Beats of a DataNode that fall into the shortest silence after which it counts as hung."""
SHORTEST_BEAT_S: Final = 0.01
"""A DataNode beats no faster than this, whatever a client asks for."""
PROCESSES_MAX: Final = 256
"""Processes of one gateway."""


class PageFor(enum.Enum):
    """The callers that get the status page of a node, where callers prove nothing."""

    LOOPBACK = "loopback"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Config:
    """One section of the configuration. Raises ConfigError for values that make no sense."""

    section: ClassVar[str]

    def __post_init__(self) -> None:
        for setting in settings_of(type(self)).values():
            value = getattr(self, setting.attribute)
            if not setting.kind.allows(value):
                shown = "..." if setting.kind is TOKEN else repr(value)
                raise ConfigError(
                    f"{setting.attribute} = {shown}: expected {setting.kind.expected}"
                )
        self.check()

    def check(self) -> None:
        """Raise ConfigError when two settings contradict each other."""


@dataclass(frozen=True, slots=True)
class ServerConfig(Config):
    """Limits that every server puts on its port, and what it logs."""

    max_connections: Count = 8192
    """Connections at a time, as far as the process has descriptors (see `ulimit -n`): a NameNode
    gives them three quarters, a DataNode, which keeps a file open for each block that is written,
    half. When more come, idle ones are closed, the longest idle first. Beside them an eighth as
    many, at least 16, may have proven nothing yet (the access secret, or without one a whole
    request): the oldest of these is closed when more come."""
    max_connections_per_address: Count = 4096
    """The same for those from one address, and never more than three quarters of all."""
    request_head_timeout_s: Seconds = 10.0
    """Seconds a connection may take to send the head of its first request, or the rest of one."""
    log_level: Annotated[LogLevel, choice(LogLevel)] = LogLevel.INFO
    """The least of what is logged: `info` tells what changes names and what is not usual, `debug`
    each step of each file."""
    log_format: Annotated[LineForm, choice(LineForm)] = LineForm.TEXT
    """Lines for people, or an object of JSON in each with the same facts."""
    log_file: File = ""
    """The file for the log. Without one it goes to standard error."""
    log_file_size_bytes: Bytes = 16 * MIB
    """Length at which the log goes on in another file, and the one before becomes FILE.1."""
    log_files: Count = 5
    """Files of the log that are kept; the oldest is removed for one more."""


@dataclass(frozen=True, slots=True)
class NodeConfig(ServerConfig):
    """The demands of both kinds of nodes on callers at their port."""

    request_stall_timeout_s: Seconds = 10.0
    """Seconds in which the body of a request may bring less than 64 KiB, unless it ends, of an
    answer less than 64 KiB may be read, and a data stream may bring no first frame, or nothing of a
    frame's rest (it is closed within twice that).
    """
    request_memory_bytes: Bytes = 128 * MIB
    """Bytes of long requests (above 16 KiB) that may be under way; a further one gets the answer to
    try again.
    """
    access_file: File = ""
    """A file with the secret of this cluster's callers and nodes, or several while it is changed, a
    line each: this node serves only callers that prove that they know it, and calls only such
    nodes. `PAXOSBLOCK_ACCESS_FILE` sets it for all sections. Without a file it serves everybody."""
    access_required: Flag = True
    """False, while a cluster that runs is given its first secret: this node proves that it knows
    it, but also serves callers, and calls nodes, that have none."""
    node_file: File = ""
    """A file with a second secret, or several while it is changed, which only nodes have: who knows
    that of `access_file` alone then is no node. With certificates it is not needed."""
    block_tokens: Flag = False
    """True: NameNodes sign what callers may do with each block that they are shown, and a DataNode
    serves only what was signed for it (HDFS: `dfs.block.access.token.enable`). Switch it on at all
    NameNodes first, and when all clients are of a version that knows it, at the DataNodes."""
    tls_cert: File = ""
    """A file in PEM with this node's certificate and its key, with which it speaks TLS at its port
    and where it calls others. It names the node: `paxosblock setup tls` makes one. Read again when
    it was replaced. `PAXOSBLOCK_TLS_CERT` sets it for all sections."""
    tls_ca: File = ""
    """A file in PEM with the certificates of the authorities that this node believes; several while
    one takes the place of another. Read again when it was replaced. `PAXOSBLOCK_TLS_CA` sets it for
    all sections."""
    tls_key: File = ""
    """A file in PEM with the key of the certificate, where that has one of its own, as Kubernetes
    gives them (`tls.crt`, `tls.key`). Without it the key is in `tls_cert`. Read again when it was
    replaced. `PAXOSBLOCK_TLS_KEY` sets it for all sections."""
    tls_required: Flag = True
    """False, while a cluster that runs is given its first certificates: this node speaks TLS with
    those that do so, and also serves callers, and calls nodes, that do not.
    `PAXOSBLOCK_TLS_REQUIRED` sets it for all sections."""
    page: Annotated[PageFor, choice(PageFor)] = PageFor.LOOPBACK
    """The callers that get the status page at `/`. Where callers must prove who they are, by the
    access secret or a certificate, all that do; elsewhere "loopback" gives it to callers on this
    machine, and "all" to every caller. "none": there is no page."""

    def check(self) -> None:
        """Raise ConfigError when a setting leaves no room for what is allowed otherwise."""
        if self.request_memory_bytes < MAX_BODY_BYTES:
            raise ConfigError(
                f"request_memory = {format_size(self.request_memory_bytes)} is less than "
                f"{format_size(MAX_BODY_BYTES)}, the longest request"
            )


@dataclass(frozen=True, slots=True)
class NameNodeConfig(NodeConfig):
    """Settings of a NameNode, and those it gives to new files and writers."""

    section = "namenode"

    heartbeat_interval_s: Seconds = 1.0
    """Seconds between the heartbeats that are expected of DataNodes, and between the NameNode's
    looks at them."""
    datanode_stale_after_s: Seconds = 3.0
    """Silence after which a DataNode is chosen last for new replicas and reads."""
    datanode_dead_after_s: Seconds = 15.0
    """Silence after which a DataNode's replicas count as lost."""
    replicate_after_s: SecondsOrZero = 30.0
    """Seconds for which a DataNode is dead before its replicas are made again elsewhere: one that
    is back by then costs no copy. There is no such wait for a failed volume."""
    copies_per_source: Count = 4
    """Replicas that one DataNode sends at a time so that others can be made from them."""
    copies_per_target: Count = 4
    """Replicas that are made at one DataNode at a time."""
    lease_soft_limit_s: Seconds = 60.0
    """Silence of a writer after which another client may take over its file."""
    lease_hard_limit_s: Seconds = 20 * 60.0
    """Silence of a writer after which the NameNode itself closes its file."""
    balance_bandwidth_bytes_per_s: BytesPerSecond = 64 * MIB
    """Bytes per second that the balancer moves in the whole cluster unless told otherwise."""
    racks: Racks = ()
    """The rack of a DataNode by its name, or else by its machine's: it wins over what a DataNode
    says itself, and tells where clients on machines without a DataNode are."""
    audit_file: File = ""
    """A file that gets a line for each change of names or blocks and each refusal, in the form of
    HDFS's audit log. Without a file there are no such lines."""
    audit_file_size: Bytes = 64 * MIB
    """Length at which the audit log goes on in another file, and the one before becomes FILE.1."""
    audit_files: Count = 10
    """Files of the audit log that are kept; the oldest is removed for one more."""
    permissions: Flag = True
    """Check owner, group and mode of files and directories, as HDFS does. False: every user may do
    everything, for programs that keep users apart themselves. See docs/security.md."""
    supergroup: User = "supergroup"
    """The group whose members may do everything, as may the user who starts the NameNodes; it gets
    the root of a new cluster."""
    groups: Groups = ()
    """The groups of users; the operating system of the NameNode tells those of a user who is not
    there. A change takes effect with the next start."""
    oidc_issuer: Text = ""
    """The address of an OpenID issuer, as it calls itself: a caller who brings a token of it to a
    NameNode is the user that it names. `https`, or `http` at this machine. It takes the extra
    `paxosblock[oidc]`. Without it only tokens of this cluster are taken."""
    oidc_audience: Text = ""
    """The audience (`aud`) that tokens of the issuer must have: what this cluster is called
    there."""
    oidc_user_claim: Text = "sub"
    """The claim with the name of the user. It must be one that users cannot choose themselves; a
    name with dots may lead into nested ones."""
    oidc_groups_claim: Text = ""
    """The claim with the user's groups, a list. Without it, or where a token lacks it, they are
    those of `groups`, or of the operating system."""
    min_replication: Count = 1
    """Finalized replicas that a block must have to be complete."""
    replication: Count = 3
    """Replicas of a new file's blocks where the client does not say."""
    block_size: Bytes = 128 * MIB
    """User bytes after which a writer starts the next block."""
    chunk_size: Bytes = 512 * KIB
    """User bytes of a full chunk: the unit of agreement."""
    window: Count = 4
    """Chunks of one block that a writer may have under way."""
    max_chunks_per_block: Count = 16384
    """Chunks after which a block is full, however small they are."""
    recovery_timeout_s: Seconds = 5.0
    """Seconds the recovery of a block may take, all its attempts together; closing a file waits as
    long for its replicas, and one question to a DataNode for the answer."""
    votes_kept_s: Seconds = 3 * 86400.0
    """Seconds for which the votes that a recovery or an append was decided by are kept in the
    catalog, for `explain` and the page of a block; those of the last 10,000 decisions at most."""
    history_s: SecondsOrZero = 0.0
    """Seconds of history that are kept: the whole catalog can be read as it was at any time in
    them, and what was removed comes back by `fs undelete`. What is deleted keeps its room as long.
    0: none is kept."""
    safe_mode_threshold: Share = 0.999
    """Share of the finalized blocks, from 0 to 1, that DataNodes must have reported after a start
    or a fail-over before replicas are copied or taken away."""
    safe_mode_extension_s: SecondsOrZero = 30.0
    """Seconds for which this share must have been reached: the rest may be on its way."""
    block_key_interval_s: Seconds = 8 * 3600.0
    """Seconds after which the NameNodes sign block tokens with another key, and for which a token
    is good. DataNodes know a key this long before it is used and this long after."""
    master_key_file: File = ""
    """A file with the master key, which wraps the keys of encryption zones (`admin encrypt`):
    32 bytes in base64 or hex, as `paxosblock setup secret` makes them. With several lines the first
    one wraps, and the others unwrap until `admin encrypt --roll`. All NameNodes need the same."""
    master_key_command: Command = ""
    """In place of the file a command that prints these lines, such as one that asks a service for
    keys (KMS); it is run when the NameNode starts, and by `admin encrypt`."""
    join_within_s: Seconds = 30.0
    """Seconds for which a NameNode that is started with `--join` asks the others for their catalog,
    since one of them said last that it gives it, before it ends."""
    leader_heartbeat_s: Seconds = 0.1
    """Seconds after which the NameNode that leads tells the others so again."""
    election_min_s: Seconds = 0.4
    """Silence of the leader after which another one may be elected, and the leader of a minority
    gives up."""
    election_max_s: Seconds = 0.8
    """Silence after which a NameNode stands for election; drawn at random between the two."""
    snapshot_growth_bytes: Bytes = 64 * MIB
    """Growth of the log after which its content is flushed to the catalog's database and the log up
    to there dropped."""

    def check(self) -> None:
        """Raise ConfigError when two settings contradict each other."""
        NodeConfig.check(self)
        _in_order(self, "datanode_stale_after_s", "datanode_dead_after_s")
        _in_order(self, "lease_soft_limit_s", "lease_hard_limit_s")
        _in_order(self, "heartbeat_interval_s", "datanode_stale_after_s")
        _in_order(self, "min_replication", "replication")
        _check_replication(self)
        _in_order(self, "election_min_s", "election_max_s")
        self._check_heartbeat()
        _check_chunk_size(self)
        self._check_issuer()

    def _check_issuer(self) -> None:
        """An attacker who can change what the issuer says can be every user."""
        if self.oidc_issuer and not is_safe_url(self.oidc_issuer):
            raise ConfigError(
                f"oidc_issuer = {self.oidc_issuer!r}: expected an address that begins with https://"
            )
        if self.oidc_issuer and not self.oidc_audience:
            raise ConfigError(
                "oidc_issuer without oidc_audience: tokens that are for other programs would be"
                " taken, too"
            )

    def _check_heartbeat(self) -> None:
        """Losing two heartbeats must not cost the leader its place."""
        longest_s = self.election_min_s / HEARTBEATS_PER_ELECTION
        if self.leader_heartbeat_s > longest_s:
            raise ConfigError(
                f"leader_heartbeat = {format_duration(self.leader_heartbeat_s)} is more than "
                f"{format_duration(longest_s)}, a third of election_min"
            )


@dataclass(frozen=True, slots=True)
class DataNodeConfig(NodeConfig):
    """Settings of a DataNode: how it keeps and serves its replicas."""

    section = "datanode"

    heartbeat_interval_s: Seconds = 1.0
    """Seconds between the heartbeats of this node to the NameNodes."""
    block_report_interval_s: Seconds = 10 * 60.0
    """Seconds after which the NameNodes get the whole list of replicas again; longer where the
    cluster has more than ten thousand replicas for each of them."""
    block_report_page: Count = 1000
    """Replicas in one message of a block report."""
    sync_threads_per_volume: Count = 2
    """Threads that wait for `fdatasync` on one volume where the kernel does it only in such."""
    reserved_space_bytes: BytesOrZero = 64 * MIB
    """Room on each volume that replicas leave free."""
    max_read_bytes: Bytes = 4 * MIB
    """Most bytes in one reply to a read."""
    volume_hung_after_s: Seconds = 30.0
    """Seconds for which a volume does not answer before it counts as failed, until it does; one
    that hangs while the node starts is left out until the next start, and one that hangs while it
    ends is not waited for any longer."""
    rack: Rack = DEFAULT_RACK
    """The place of this node, a path such as `/dc1/r7`: replicas of a block are in two racks
    whenever there are two."""
    host: Host = field(default_factory=socket.gethostname)
    """This machine's name: the first replica of what a client with the same name writes is made
    here."""
    copy_bandwidth_bytes_per_s: BytesPerSecond = 64 * MIB
    """Bytes per second that copies of whole replicas may bring here, and as many that they may take
    away; a quarter of it while clients write or read here. Recoveries do not count."""
    delete_bandwidth_bytes_per_s: BytesPerSecond = 256 * MIB
    """Bytes per second of deleted replicas that are given back to the file system of each volume;
    without limit while less than a tenth of it is free."""
    short_circuit: Flag = True
    """True: clients on this machine get the descriptors of finalized replicas and read these
    themselves (HDFS: `dfs.client.read.shortcircuit`)."""
    scrub_period_s: SecondsOrZero = 3 * 7 * 24 * 3600.0
    """Seconds within which every replica is read and compared with its checksums; 0 never does."""
    scrub_bandwidth_bytes_per_s: BytesPerSecond = 16 * MIB
    """Most bytes per second that are read from each volume for that."""

    def check(self) -> None:
        """Raise ConfigError when a copy could not be finished in time."""
        NodeConfig.check(self)
        if self.copy_bandwidth_bytes_per_s < MIB:
            raise ConfigError(
                f"copy_bandwidth = {format_size(self.copy_bandwidth_bytes_per_s)}/s is less than "
                f"{format_size(MIB)}/s"
            )


@dataclass(frozen=True, slots=True)
class ClientConfig(Config):
    """Settings of a client: how it writes and reads, and how long it waits."""

    section = "client"

    chunk_size: Bytes = 512 * KIB
    """User bytes of a full chunk: the unit of agreement."""
    window: Count = 4
    """Chunks of one block that may be under way; bounds the memory of a writer."""
    block_size: Bytes = 128 * MIB
    """User bytes after which the next block starts."""
    max_chunks_per_block: Count = 16384
    """Chunks after which the next block starts, however small they are."""
    replication: Count = 3
    """Replicas of each block."""
    durability: Annotated[Durability, choice(Durability)] = Durability.DISK
    """The meaning of a vote for a chunk."""
    on_failure: Annotated[OnFailure, choice(OnFailure)] = OnFailure.SEAL
    """The fate of a block when one of its DataNodes fails while it is written: it ends, and the
    file goes on in another one, or it is rebuilt and goes on with other members."""
    replace_on_failure: Annotated[Replacement | None, choice(Replacement, none="")] = None
    """HDFS's policy for replacing a DataNode that failed. If none is named, the block after one
    that ended is placed like any other, and a block is rebuilt by "default"."""
    replace_best_effort: Flag = False
    """True: a writer goes on when there are too few DataNodes for that policy; otherwise it waits.
    """
    connect_timeout_s: Seconds = 2.0
    """Seconds that connecting to a node may take."""
    hung_after_s: Seconds = 0.6
    """Silence on the stream to a DataNode, which beats several times as often, after which it
    counts as hung, and blocks are recovered without it; longer while its beats come irregularly."""
    vote_timeout_s: Seconds = 10.0
    """Seconds a DataNode that is not silent may take to vote, its disk being slow, before the
    block is recovered without it; half of that while votes come fast."""
    disk_hung_after_s: Seconds = 1.0
    """Seconds after which a DataNode's disk counts as hung: an answer is owed, and nothing else has
    come back from the disk either. Blocks go on without it if enough other members answered; longer
    while votes usually take long. A disk that is only slow has `vote_timeout`."""
    rpc_timeout_s: Seconds = 10.0
    """Seconds that one control call may take."""
    retry_for_s: SecondsOrZero = 30.0
    """Seconds for which a verb repeats a request that may succeed later; 0 never repeats."""
    lease_interval_s: Seconds = 1.0
    """Seconds between renewals of the leases of files being written; far below the soft limit."""
    prefetch_size: BytesOrZero = 16 * MIB
    """Bytes a sequential reader fetches ahead."""
    short_circuit: Flag = True
    """True: the client reads finalized replicas on this machine from their files, if the DataNode
    lends these; otherwise all by the DataNode."""
    host: Host = field(default_factory=socket.gethostname)
    """This machine's name: its DataNodes, those with the same one, are near."""
    access_file: File = ""
    """A file with the secret of this cluster's callers and nodes, or several while it is changed, a
    line each: the client calls only nodes that prove that they know it. `PAXOSBLOCK_ACCESS_FILE`
    sets it for all sections."""
    user: User = ""
    """The user for whom the client calls, as it claims without a proof: see docs/security.md.
    Without it that is `HADOOP_USER_NAME`, or else the user who runs the program."""
    umask: Umask = UMASK
    """The bits that files and directories lack which the client makes, in octal digits (HDFS:
    `fs.permissions.umask-mode`). Where the directory above has default entries in its access
    control list, those decide alone."""
    trash_interval_s: SecondsOrZero = 0.0
    """For how long the command `fs expunge` keeps what `fs rm` has moved to the user's trash (HDFS:
    `fs.trash.interval`). 0: there is no trash, deleted is deleted. A `Client` deletes at once."""
    tls_cert: File = ""
    """A file in PEM with the user's certificate and its key, which is shown to nodes: `paxosblock
    setup tls-user` makes one. Read again when it was replaced. `PAXOSBLOCK_TLS_CERT` sets it for
    all sections."""
    tls_ca: File = ""
    """A file in PEM with the certificates of the authorities that the client believes: with it, it
    speaks TLS with nodes. Read again when it was replaced. `PAXOSBLOCK_TLS_CA` sets it for all
    sections."""
    tls_key: File = ""
    """A file in PEM with the key of the certificate, where that has one of its own. Without it the
    key is in `tls_cert`. Read again when it was replaced. `PAXOSBLOCK_TLS_KEY` sets it for all
    sections."""
    tls_required: Flag = True
    """False, while a cluster that runs is given its first certificates: nodes that do not speak TLS
    are called, too. `PAXOSBLOCK_TLS_REQUIRED` sets it for all sections."""
    token_file: File = ""
    """A file with the token of a user, as whom the client calls: `paxosblock admin token issue`
    makes one. Read again when it was replaced. `PAXOSBLOCK_TOKEN_FILE` sets it, too."""
    token: Token = field(default="", repr=False)
    """The token itself, in place of a file: only programs set it (`Client(url, token=...)`), as
    files of settings, environments and command lines are shown."""
    token_over_plain: Flag = False
    """True: the token is also sent to other machines where no TLS hides it, because the way there
    is safe."""
    job_token_s: Seconds = 24 * 3600.0
    """Seconds for which the token of a Spark job is good, at most seven days; after half of them
    the driver asks for another one. A batch write gets one for twice its `jobTtl`, if that is
    longer."""

    @property
    def shows_proof(self) -> bool:
        """True if these settings prove something to the nodes, or have the nodes prove it: then no
        name of a user is believed."""
        return any((self.access_file, self.tls_cert, self.tls_ca, self.token_file))

    def check(self) -> None:
        """Raise ConfigError when two settings contradict each other."""
        if self.token and self.token_file:
            raise ConfigError("token and token_file: name one of them")
        if self.job_token_s > LONGEST_S:
            raise ConfigError(
                f"job_token = {format_duration(self.job_token_s)}: a token is good for at most"
                f" {format_duration(LONGEST_S)}"
            )
        _check_chunk_size(self)
        _check_replication(self)
        soft_limit_s = NameNodeConfig().lease_soft_limit_s
        if self.lease_interval_s > soft_limit_s / 2:
            raise ConfigError(
                f"lease_interval = {format_duration(self.lease_interval_s)} is more than "
                f"{format_duration(soft_limit_s / 2)}, half of the NameNodes' lease_soft_limit"
            )
        if self.hung_after_s < BEATS_PER_SILENCE * SHORTEST_BEAT_S:
            raise ConfigError(
                f"hung_after = {format_duration(self.hung_after_s)} is less than "
                f"{format_duration(BEATS_PER_SILENCE * SHORTEST_BEAT_S)}, the time of "
                f"{BEATS_PER_SILENCE} beats"
            )


@dataclass(frozen=True, slots=True)
class GatewayConfig(ServerConfig):
    """Settings of a gateway. It reaches the cluster by those of a client."""

    section = "gateway"

    processes: Count = 1
    """Processes that serve at the ports of one gateway; at most 256. Each has the other bounds of
    this section for itself."""
    request_memory_bytes: Bytes = 512 * MIB
    """Bytes of memory for files on their way through the gateway. A request for which there is no
    room waits five seconds for some, and is then asked to try again; an eighth is for what came
    with those that wait, and with more of them waiting a request is asked at once."""
    idle_stream_s: Seconds = 10 * 60.0
    """Seconds for which a program that writes or reads a file may send or take nothing of it."""
    users_kept: Count = 64
    """Users whose connections to the cluster are kept open between their requests."""
    proxy_users: Text = ""
    """The users who may act for others in WebHDFS (`doas`), as `hadoop.proxyuser.*` of HDFS:
    rules `NAME@HOSTS=USERS` with `;` between them, such as `hue@10.0.0.5,10.1.0.0/16=ann,bob`; `*`
    is all hosts, or all users. Only where names of users are believed."""
    page: Annotated[PageFor, choice(PageFor)] = PageFor.LOOPBACK
    """The callers that get the gateway's status page at `/`, which names no file and no user:
    "loopback" those on this machine, "all" every caller. "none": there is no page."""
    https_cert: File = ""
    """A file in PEM with the certificate that the gateway shows to programs, those between it and
    its authority, and its key: with it the gateway speaks TLS at its ports, and nothing else.
    `paxosblock setup tls DIR --gateways NAME` makes one. Read again when it was replaced."""
    https_key: File = ""
    """A file in PEM with the key of the certificate, where that has one of its own. Without it the
    key is in `https_cert`. Read again when it was replaced."""
    s3_root: Text = "/"
    """The directory whose directories are the buckets of S3."""
    s3_domain: Text = ""
    """The name of the gateway by which programs ask for a bucket in the name of the host, such as
    `s3.example.org` for `data.s3.example.org`; without it the bucket stands in the path."""
    s3_cors_origins: Text = ""
    """The origins whose pages in browsers may ask at the door of S3, with commas between them, such
    as `https://app.example.org`; without it no page may."""
    s3_anonymous: Flag = False
    """Answer requests of S3 that are not signed, as those of a caller who names no user."""

    def check(self) -> None:
        """Raise ConfigError when there are more processes than any machine has use for."""
        if self.processes > PROCESSES_MAX:
            raise ConfigError(f"processes = {self.processes} is more than {PROCESSES_MAX}")


def is_safe_url(url: str) -> bool:
    """True if no attacker on the way can change what is shown at this address."""
    try:
        near = is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        near = False
    return url.startswith("https://") or (url.startswith("http://") and near)


C = TypeVar("C", bound=Config)

SHARED: Final = ("access_file", "tls_cert", "tls_ca", "tls_key", "tls_required", "token_file")
"""Settings which `PAXOSBLOCK_<NAME>` sets in all sections that have them."""
SECTIONS: Final[tuple[type[Config], ...]] = (
    NameNodeConfig,
    DataNodeConfig,
    ClientConfig,
    GatewayConfig,
)
COMMON_VARIABLES: Final = (
    "PAXOSBLOCK_NAMENODES",
    *(f"{ENVIRONMENT_PREFIX}_{name.upper()}" for name in SHARED),
)
OTHER_VARIABLES: Final = ("PAXOSBLOCK_SECRET_FILE", "PAXOSBLOCK_PEERS")
"""Variables that are no settings: of `paxosblock namenode --secret-file`, and of the tests of this
project that run other systems beside it."""


def load_config(
    kind: type[C],
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> C:
    """Return the configuration of `kind` from `file`, `environment` (default: `os.environ`) and
    `flags`.

    `flags` maps settings by name (`chunk_size`) to what the user wrote; None means not given. A
    file may hold the sections of all kinds. Raises ConfigError, one line that names the place, for
    an unreadable file, an unknown section or setting, a variable of ours that does not exist, and a
    value that is wrong.
    """
    environment = os.environ if environment is None else environment
    check_variables(environment)
    settings = settings_of(kind)
    values: dict[str, Any] = {}
    for where, name, written in (
        *_from_file(kind, file),
        *_typed(settings, _from_environment(kind, environment)),
        *_typed(settings, _from_flags(flags or {})),
    ):
        if name not in settings:
            _refuse(where, "setting", name, settings)
        if settings[name].kind is TOKEN:
            raise ConfigError(f"{where}: a token stands in a file of its own: name it, token_file")
        values[settings[name].attribute] = settings[name].read(written, where)
    return kind(**values)


def with_settings(config: C, changes: Mapping[str, object]) -> C:
    """Return `config` with other values of some settings, each by the name of its attribute.

    A value is what the attribute holds (`retry_for_s=5`), or what a user writes for it ("5s").
    Raises ConfigError for a setting that does not exist and for a value that makes no sense.
    """
    settings = {each.attribute: each for each in settings_of(type(config)).values()}
    values = {}
    for name, value in changes.items():
        if name not in settings:
            raise ConfigError(f"unknown setting {name!r}{did_you_mean(name, settings)}")
        values[name] = settings[name].read(value, name) if isinstance(value, str) else value
    return replace(config, **values) if values else config


def changed_settings(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield the settings that differ from their default: name, value and default, as written."""
    defaults = type(config)()
    for setting in settings_of(type(config)).values():
        value, usual = (getattr(each, setting.attribute) for each in (config, defaults))
        if value != usual:
            yield setting.name, as_written(setting, value), as_written(setting, usual)


def check_variables(environment: Mapping[str, str]) -> None:
    """Raise ConfigError for a variable that begins as ours do and is none: one that is misspelt
    would be ignored.
    """
    ours = [name for name in environment if name.startswith(f"{ENVIRONMENT_PREFIX}_")]
    if not all(name in COMMON_VARIABLES for name in ours):  # seldom: the names of all settings
        known = {
            f"{ENVIRONMENT_PREFIX}_{kind.section}_{name}".upper()
            for kind in SECTIONS
            for name in settings_of(kind)
        } | {*COMMON_VARIABLES, *OTHER_VARIABLES}
        for name in sorted(ours):
            if name not in known:
                raise ConfigError(f"unknown variable {name}{did_you_mean(name, known)}")


_Written = tuple[str, str, object]
"""The place where a setting was written, its name, and what was written."""


def _from_file(kind: type[Config], file: Path | None) -> Iterator[_Written]:
    if file is None:
        return
    document = _read_toml(file)
    known = [section.section for section in SECTIONS]
    for section in document:
        if section not in known:
            _refuse(f"{file}: [{section}]", "section", section, known)
    table = document.get(kind.section, {})
    if not isinstance(table, dict):
        raise ConfigError(f"{file}: {kind.section} = {table!r}: expected a section")
    for name, written in table.items():
        yield f"{file}: [{kind.section}] {name}", name, written


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigError(f"{file}: {error}") from error


def _from_environment(kind: type[Config], environment: Mapping[str, str]) -> Iterator[_Written]:
    for name in settings_of(kind).keys() & {*SHARED}:
        if (variable := f"{ENVIRONMENT_PREFIX}_{name.upper()}") in environment:
            yield variable, name, environment[variable]
    prefix = f"{ENVIRONMENT_PREFIX}_{kind.section.upper()}_"
    for variable in sorted(environment):
        if variable.startswith(prefix):
            name = variable.removeprefix(prefix).lower()
            yield variable, name, environment[variable]


def _from_flags(flags: Mapping[str, object]) -> Iterator[_Written]:
    for name, written in flags.items():
        if written is not None:
            yield f"--{name.replace('_', '-')}", name, written


def _typed(settings: Mapping[str, Setting], given: Iterator[_Written]) -> Iterator[_Written]:
    """Yield what TOML would have read: the environment and flags have no types."""
    for where, name, written in given:
        untyped = isinstance(written, str) and name in settings
        yield where, name, settings[name].kind.from_text(str(written)) if untyped else written


def _refuse(where: str, what: str, name: str, known: Iterable[str]) -> NoReturn:
    raise ConfigError(f"{where}: unknown {what} {name!r}{did_you_mean(name, known)}")


def _in_order(config: Config, low: str, high: str) -> None:
    if getattr(config, low) > getattr(config, high):
        raise ConfigError(
            f"{low} = {getattr(config, low)} is more than {high} = {getattr(config, high)}"
        )


def _check_replication(config: NameNodeConfig | ClientConfig) -> None:
    if config.replication > REPLICATION_MAX:
        raise ConfigError(f"replication = {config.replication} is more than {REPLICATION_MAX}")


def _check_chunk_size(config: NameNodeConfig | ClientConfig) -> None:
    most = min(config.block_size, MAX_CHUNK_BYTES)
    if config.chunk_size > most:
        raise ConfigError(
            f"chunk_size = {format_size(config.chunk_size)} is more than {format_size(most)},"
            " the smaller of block_size and what one frame carries"
        )
