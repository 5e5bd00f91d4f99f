"""TLS on the connections of one process: its certificate, the authorities that it believes, and one
line for each thing that can be wrong with them.

A file with a certificate also holds its key, unless that has a file of its own. The files are
looked at for every new connection: one that was replaced counts from then on, a certificate and a
key in two files once both were, and connections that are open go on as they are. Only processes
with such files import this module.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from paxosblock.errors import AccessDeniedError, ConfigError, PaxosBlockError, UnavailableError
from paxosblock.host.user import name_of_user
from paxosblock.net.port.certified import CertifiedKind, CertifiedName, names_in

_USUAL: Final = {
    CertifiedKind.NAMENODE: "paxosblock://CLUSTER/namenode",
    CertifiedKind.DATANODE: "paxosblock://CLUSTER/datanode/ID",
    CertifiedKind.USER: "paxosblock://CLUSTER/user/NAME",
}
_FROM_US: Final = "SSLV3_ALERT", "TLSV1_ALERT", "TLSV13_ALERT"
_ENDED, _NOT_YET, _PURPOSE = 10, 9, 26
_STRANGERS: Final = (2, 7, 18, 19, 20, 21)
_OTHER_MACHINE: Final = (62, 64)
"""Codes with which OpenSSL says what is wrong with a certificate (X509_V_ERR_*)."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The content of the files when they were last read."""

    stamp: tuple[tuple[int, ...], ...]
    server: ssl.SSLContext | None
    client: ssl.SSLContext
    names: tuple[CertifiedName, ...]
    ends_s: float
    """The time at which the own certificate ends, in seconds since 1970; 0 without one."""


class Tls:
    """The certificate of one process, and the authorities that it believes."""

    FIRST_BYTE: Final = b"\x16"
    """The first byte of each connection with TLS; no other connection begins with it."""
    END_S: Final = 2.0
    """Seconds that the other end of a connection may take to say that it closes it, too."""
    CERT: ClassVar[str] = "tls_cert"
    KEY: ClassVar[str] = "tls_key"
    """The settings that name the files."""
    MAKE: ClassVar[str] = "`paxosblock setup tls`"
    MAKE_FOR_USER: ClassVar[str] = "`paxosblock setup tls-user`"
    """The commands that make a certificate."""

    def __init__(
        self,
        cert: str,
        ca: str,
        *,
        key: str = "",
        required: bool = True,
        serves: CertifiedKind | None = None,
    ) -> None:
        """Read the files.

        Args:
            cert: PEM, a certificate (and those between it and its authority) and its key; "" for a
                client that has none.
            ca: PEM, the certificates of authorities.
            key: PEM, the key alone; "": it is in `cert`.
            required: False while a cluster that runs is given its first certificates: nodes and
                callers without TLS are served, and called.
            serves: the kind of node that the process is.

        Raises:
            ConfigError: a file cannot be read, or does not hold what it should, or everybody may
                read the key, or the certificate is not good now.
        """
        if key and not cert:
            raise ConfigError(f"tls_key {key}: tls_cert is missing: the certificate of this key")
        if not ca:
            raise ConfigError(f"tls_cert {cert}: tls_ca is missing: the authority that made it")
        if serves and not cert:
            raise ConfigError(f"tls_ca {ca}: tls_cert is missing: what this node shows to others")
        self.required, self._serves = required, serves
        self._begin(cert, ca, key)

    required = True
    _serves: CertifiedKind | None = None
    plain_refusal = b""
    """The answer to a caller who does not speak TLS, where that is required; b"": that of a node.
    """

    def _begin(self, cert: str, ca: str, key: str) -> None:
        self._cert, self._ca, self._key = cert, ca, key
        self._loaded = self._read_whole()
        self._refused: tuple[tuple[int, ...], ...] = ()

    def __repr__(self) -> str:
        return f"<Tls {self._cert or 'without a certificate'}, {self._ca}>"

    @property
    def server(self) -> ssl.SSLContext:
        """The context for a connection that was accepted now."""
        context = self._now().server
        assert context is not None, "only a node accepts"
        return context

    @property
    def client(self) -> ssl.SSLContext:
        """The context for a connection that is made now."""
        return self._now().client

    @property
    def ends_s(self) -> float:
        """The time at which the certificate ends, in seconds since 1970; 0 without one."""
        return self._now().ends_s

    @property
    def names(self) -> tuple[CertifiedName, ...]:
        """The names in the certificate of this process."""
        return self._now().names

    @property
    def has_certificate(self) -> bool:
        """True if this process shows one."""
        return bool(self._cert)

    def own_id(self, wanted: str | None) -> str | None:
        """Return the id of the DataNode that this process is: the one that the certificate says.

        Raises:
            ConfigError: another one is `wanted`.
        """
        found = [each.name for each in self.names if each.kind is CertifiedKind.DATANODE]
        if wanted is not None and wanted not in found:
            raise ConfigError(
                f"--id {wanted}: tls_cert {self._cert} is that of DataNode {', '.join(found)}"
            )
        return wanted or found[0]

    # -- the other end ----------------------------------------------------------------------------

    def certified(self, certificate: Mapping[str, Any] | None) -> tuple[CertifiedName, ...]:
        """Return the names that count in a certificate which the other end has shown, as
        `getpeercert` gives it: those in our cluster. None of them: it is a stranger."""
        names = names_in(certificate)
        own = self.names
        return tuple(each for each in names if not own or each.cluster == own[0].cluster)

    def check_node(
        self,
        peer: str,
        certificate: Mapping[str, Any] | None,
        kind: CertifiedKind | None = None,
    ) -> None:
        """Check that the process at `peer`, which we called, has shown the certificate of a node,
        of this `kind` if one is given.

        Raises:
            AccessDeniedError: it is that of a user, another kind of node, or another cluster.
        """
        names = self.certified(certificate)
        if not any(each.is_node and kind in (None, each.kind) for each in names):
            whose = ", ".join(map(str, names_in(certificate))) or "without a name of this kind"
            wanted = "node" if kind is None else kind.value
            raise AccessDeniedError(
                f"{peer} shows a certificate that is not of a {wanted} of this cluster: {whose}",
                peer=peer,
            )

    def may_be_plain(self, error: OSError) -> bool:
        """True if a handshake failed because the node does not speak TLS, and need not."""
        return not self.required and speaks_plain(error)

    def explained(self, peer: str, error: BaseException | None) -> PaxosBlockError | None:
        """Return what a failure of TLS with the node at `peer` means; None for one of others."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return AccessDeniedError(f"{peer}: {self._distrust(error)}", peer=peer)
        if isinstance(error, ssl.SSLError):
            reason = error.reason or str(error)
            if speaks_plain(error):
                return UnavailableError(
                    f"{peer} speaks no TLS, and tls_required demands it", peer=peer
                )
            if reason.startswith(_FROM_US):
                return AccessDeniedError(f"{peer} {self._refusal(reason)}", peer=peer)
            words = reason.lower().replace("_", " ")
            return UnavailableError(f"{peer}: TLS failed: {words}", peer=peer)
        return None

    def _distrust(self, error: ssl.SSLCertVerificationError) -> str:
        """Say why we do not believe the certificate of a node that we called."""
        match error.verify_code:
            case code if code == _ENDED:
                return "its certificate has ended: give it another one"
            case code if code == _NOT_YET:
                return "its certificate is not good yet: is the clock of either machine wrong?"
            case code if code in _STRANGERS:
                return f"no authority in tls_ca {self._ca} made its certificate"
            case code if code == _PURPOSE:
                return "its certificate is a user's, not a node's"
            case code if code in _OTHER_MACHINE:
                return f"its certificate is of another machine: {error.verify_message.lower()}"
        return f"its certificate is not believed: {error.verify_message}"

    def _refusal(self, alert: str) -> str:
        """Say why a node does not believe our certificate, by its `alert`."""
        own = f"our certificate {self._cert}" if self._cert else "a caller without a certificate"
        if alert.endswith("UNKNOWN_CA"):
            return f"refuses {own}: no authority that it believes made it"
        if alert.endswith("CERTIFICATE_EXPIRED"):
            return f"refuses {own}: it has ended, by the clock there"
        if alert.endswith("BAD_CERTIFICATE"):
            return f"refuses {own}: it is not good there: is the clock of either machine wrong?"
        return f"refuses {own}: {alert.partition('ALERT_')[2].lower().replace('_', ' ')}"

    # -- the files --------------------------------------------------------------------------------

    def _now(self) -> TlsFiles:
        """Return what the files hold, or held when they were last as they should be."""
        try:
            stamp = self._stamp()
            if stamp in (self._loaded.stamp, self._refused):
                return self._loaded
            # The connections of this moment all find it, in whichever thread.
            self._loaded = self._read_whole()
        except ConfigError as error:
            with contextlib.suppress(ConfigError):
                self._refused = self._stamp()
            _log.warning("goes on with the certificate that it has: %s", error)
        else:
            self._refused = ()
            _log.info("has another certificate, or other authorities, from now on")
        return self._loaded

    def _read_whole(self) -> TlsFiles:
        """Read the files; again if others took their places meanwhile, as then the one read may not
        fit the other. Raises ConfigError if they are not as they should be."""
        while True:
            stamp = self._stamp()
            try:
                return self._read(stamp)
            except ConfigError:
                if self._stamp() == stamp:
                    raise

    @property
    def _made_by(self) -> str:
        return self.MAKE if self._serves else self.MAKE_FOR_USER

    def _stamp(self) -> tuple[tuple[int, ...], ...]:
        """Return what tells whether the files were replaced."""
        found = []
        files = (self.CERT, self._cert), (self.KEY, self._key), ("tls_ca", self._ca)
        for setting, file in files:
            if not file:
                continue
            try:
                seen = os.stat(file)
            except (OSError, ValueError) as error:
                raise ConfigError(f"{setting} {file}: {_unread(error)}") from error
            found.append((seen.st_mtime_ns, seen.st_size, seen.st_ino, seen.st_mode))
        return tuple(found)

    def _read(self, stamp: tuple[tuple[int, ...], ...]) -> TlsFiles:
        """Read the files. Raises ConfigError as the constructor."""
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.minimum_version = ssl.TLSVersion.TLSv1_3
        self._believe(client)
        if not self._cert:
            return TlsFiles(stamp, None, client, (), 0)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.minimum_version = ssl.TLSVersion.TLSv1_3
        # A ticket that comes by itself would make an idle connection of a command look used.
        server.num_tickets = 0
        server.verify_mode = ssl.CERT_OPTIONAL
        self._believe(server)
        for context in (client, server):
            self._show(context)
        seen = self._seen(server)
        names = names_in(seen)
        kind = self._serves
        if not any(kind in (None, each.kind) for each in names):
            wanted = _USUAL[kind or CertifiedKind.USER]
            raise ConfigError(
                f"tls_cert {self._cert}: it needs a URI such as {wanted} among its names: "
                f"{self._made_by} writes one"
            )
        ends_s = ssl.cert_time_to_seconds(seen["notAfter"])
        return TlsFiles(stamp, server if self._serves else None, client, names, ends_s)

    def _believe(self, context: ssl.SSLContext) -> None:
        try:
            context.load_verify_locations(self._ca)
        except ssl.SSLError as error:
            raise ConfigError(f"tls_ca {self._ca}: it holds no certificate in PEM") from error
        except OSError as error:
            raise ConfigError(f"tls_ca {self._ca}: {_unread(error)}") from error

    def _show(self, context: ssl.SSLContext) -> None:
        key, asked = self._key or self._cert, list[str]()
        which = f"{self.KEY if self._key else self.CERT} {key}"

        def password() -> str:
            asked.append("OpenSSL would ask for it at the terminal")
            return ""

        try:
            with open(key, "rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o007:
                    raise ConfigError(f"{which}: everybody may read the key: chmod o= it")
            context.load_cert_chain(self._cert, key, password=password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                other = f" than {self.CERT} {self._cert}" if self._key else ""
                why = f"its key is that of another certificate{other}"
            elif asked:
                why = "its key is locked with a password, which a node cannot type"
            elif self._key:
                cert = f"{self.CERT} {self._cert}"
                why = f"it must hold the key, and {cert} its certificate, both in PEM"
            else:
                why = "it must hold a certificate and its key, both in PEM"
            raise ConfigError(f"{which}: {why}") from error
        except OSError as error:
            raise ConfigError(f"{which}: {_unread(error)}") from error

    def _seen(self, server: ssl.SSLContext) -> dict[str, Any]:
        """Return our certificate as others see it, who believe whom we believe.

        Raises:
            ConfigError: they would not believe it.
        """
        caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        caller.check_hostname = False
        caller.verify_mode = ssl.CERT_REQUIRED if self._serves else ssl.CERT_NONE
        self._believe(caller)
        self._show(caller)
        try:
            return meeting(server, caller)[0]
        except ssl.SSLError as error:
            raise self._not_good(error) from error

    def _not_good(self, error: ssl.SSLError) -> ConfigError:
        """Return what to say of our certificate where others would not believe it."""
        if not isinstance(error, ssl.SSLCertVerificationError):
            return ConfigError(f"{self.CERT} {self._cert}: {error.reason or error}")
        code = error.verify_code
        if code == _ENDED:
            why = f"it has ended: {self._made_by} makes another one"
        elif code == _NOT_YET:
            here = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            why = f"it is not good yet: is the clock of this machine right? ({here})"
        elif code in _STRANGERS:
            why = f"no authority in tls_ca {self._ca} made it"
        elif code == _PURPOSE:
            why = "it is not for a node: its purposes must be those of servers and of clients"
        else:
            why = f"it is not good (OpenSSL says {code})"
        return ConfigError(f"{self.CERT} {self._cert}: {why}")


def _unread(error: OSError | ValueError) -> str:
    """Say why a file cannot be read, and what to do where its rights are wrong."""
    words = getattr(error, "strerror", None) or str(error)
    if isinstance(error, PermissionError):
        user = name_of_user(os.geteuid())
        return f"{words}: the user {user}, who runs this, must be able to read it"
    return words


def speaks_plain(error: BaseException) -> bool:
    """True if a handshake failed because the other end does not speak TLS."""
    return isinstance(error, ssl.SSLError) and error.reason in {
        "WRONG_VERSION_NUMBER",
        "HTTP_REQUEST",
        "PACKET_LENGTH_TOO_LONG",
        "RECORD_LAYER_FAILURE",
    }


def meeting(
    server: ssl.SSLContext, caller: ssl.SSLContext
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Let two ends meet in memory; return the certificate of the caller as the server sees it, and
    that of the server as the caller does, where they ask for one and believe it."""
    to_node, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    node = server.wrap_bio(to_node, to_caller, server_side=True)
    calling = caller.wrap_bio(to_caller, to_node)
    for end in (calling, node, calling, node):
        with contextlib.suppress(ssl.SSLWantReadError):
            end.do_handshake()
    return node.getpeercert() or {}, calling.getpeercert() or {}
