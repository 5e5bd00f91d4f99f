"""The access secret: callers and nodes of a cluster prove to each other that they know it. No I/O
but the reading of its file.

A node that has one (setting `access_file`) serves only callers that know it, and a caller that has
one calls only nodes that know it. On a connection that begins with an Upgrade (`upgrade.py`)::

    caller                                     node
    GET /calls, Access-Nonce: A,
      Access-To: the node's name, address ->
                                          <-   101, Access-Nonce: B, Access-Proof: proof of node
    proof of caller, 32 bytes             ->
    frames                                ->

This takes no further round trip, and no proof is good for a second connection (`handshake.py`), or
at another node: both cover `Access-To`, by which the node sees that it was meant (`own_names.py`).
A request without an Upgrade (`GET /backup`) of a program that has the secret brings a proof of its
own, `Authorization: Bearer END.PROOF`, which is good until END by the clock of the node, for paths
that begin with the one name that it was made for, at the one node that was dialled, which proves
itself in the headers of its answer.

Who brings the token of a user (`bearer.py`) need not know the secret.

Where nodes have a second secret (setting `node_file`), a node that calls says `Access-As: node`:
both ends then prove that one instead, and who knows the first alone is no node.

All of this is the same inside TLS (`tls.py`), where a cluster has certificates; a node that has no
secret then demands one of each caller. Without TLS nothing is encrypted, and frames are not signed:
an attacker who can change bytes on their way can use a connection that another caller began.
"""

from __future__ import annotations

import binascii
import contextlib
import hmac
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from paxosblock.errors import AccessDeniedError, ConfigError
from paxosblock.net.port.bearer import AUTHORIZATION, SCHEME, OwnToken, TokenDoor
from paxosblock.net.port.caller import claim
from paxosblock.net.port.certified import CertifiedKind, CertifiedName
from paxosblock.net.port.handshake import (
    NONCE_BYTES,
    Handshake,
    header_bytes,
    nonce_of,
)

if TYPE_CHECKING:
    from paxosblock.config import ClientConfig, NodeConfig
    from paxosblock.net.port.tls import Tls

NONCE: Final = "Access-Nonce"
TO: Final = "Access-To"
PROOF: Final = "Access-Proof"
"""Headers of an Upgrade and its answer; the answer has a proof for each secret of the node."""
AS: Final = "Access-As"
AS_NODE: Final = "node"
"""Header of an Upgrade by which a caller says that it proves the secret of nodes, and its value."""
SECRET_BYTES: Final = 32
"""Bytes of a secret. They are random: an attacker who heard a handshake could try many phrases at
home."""
PROOF_S: Final = 15 * 60
"""Seconds for which the proof of a request is good: clocks may differ by so much."""

SocketName = tuple[Any, ...]
"""The result of `getpeername` or `getsockname`: a host, a port, and more for IPv6."""

_OF_NODE: Final = b"access of node"
_OF_CALLER: Final = b"access of caller"
_OF_REQUEST: Final = b"access token "


def address_of(host: str, port: int) -> str:
    """Return host:port in the one way in which it is compared: small letters, no scope."""
    host = host.strip("[]").partition("%")[0].lower()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def dialled(host: str, port: int, peer: SocketName) -> str:
    """Return the text by which a caller names the node at host:port: that name, and the address
    `peer` of the other end of its socket."""
    return f"{address_of(host, port)} {address_of(*peer[:2])}"


@dataclass(frozen=True, slots=True)
class Access:
    """The secrets and the certificate of one process; with neither it serves and calls everybody.

    There are several secrets while one takes the place of another: any of them is good.
    """

    secrets: tuple[bytes, ...] = ()
    required: bool = True
    """False while a cluster that runs is given its first secret: nodes and callers without one are
    served, and called."""
    user: str = ""
    """The user that this process claims to be as a caller; "": the one who runs it."""
    tls: Tls | None = None
    """Its certificate; None: it speaks no TLS."""
    node_secrets: tuple[bytes, ...] = ()
    """Those by which nodes know each other. One of `secrets` is among them while a cluster that
    runs is given its first: then nothing is proven by them."""
    token: OwnToken | None = None
    """The token that it sends as a caller."""
    door: TokenDoor = field(default_factory=TokenDoor, compare=False)
    """The check of the tokens that its callers bring."""

    @classmethod
    def of_client(cls, config: ClientConfig) -> Access:
        """Return that of a client with these settings.

        Raises:
            ConfigError: a file with a secret or a certificate is not as it should be.
        """
        token = None
        if config.token or config.token_file:
            file, over_plain = config.token_file, config.token_over_plain
            token = OwnToken(file, config.token, over_plain=over_plain)
        known = cls.of(config.access_file, user=config.user)
        return replace(known, tls=_tls_of(config), token=token)

    @classmethod
    def of_node(cls, config: NodeConfig, *, serves: bool = True) -> Access:
        """Return that of a node with these settings, or of one who only calls as it does.

        Raises:
            ConfigError: a file with a secret or a certificate is not as it should be.
        """
        kind = CertifiedKind(config.section)
        return replace(
            cls.of(config.access_file, required=config.access_required),
            tls=_tls_of(config, kind if serves else None),
            node_secrets=secrets_in_file("node_file", config.node_file),
        )

    @classmethod
    def of(cls, file: str, *, required: bool = True, user: str = "") -> Access:
        """Read the secrets, a line each: 32 bytes in base64 or hex. "" is no file and no secret.

        Raises:
            ConfigError: it cannot be read, holds none, or something else, or everybody may read it.
        """
        if not (secrets := secrets_in_file("access_file", file)):
            return cls(user=user)
        return cls(secrets, required, user)

    def at_datanodes(self) -> Access:
        """Return the access with which a client comes to DataNodes."""
        return self if self.token is None else replace(self, token=self.token.for_datanodes())

    @property
    def is_open(self) -> bool:
        """True if the node serves every caller that reaches it."""
        return not (self.secrets and self.required) and not self.wants_certificates

    @property
    def wants_certificates(self) -> bool:
        """True if nodes of this cluster show a certificate, and clients one or the secret."""
        return self.tls is not None and self.tls.required

    @property
    def scheme(self) -> str:
        """Return how addresses of pages of nodes begin in this cluster."""
        return "http" if self.tls is None else "https"

    @property
    def proves_nodes(self) -> bool:
        """True if each node of this cluster proves that it is one."""
        known = bool(self.node_secrets) and not {*self.node_secrets} & {*self.secrets}
        return known or self.wants_certificates

    def is_node(self, asked: Mapping[str, str]) -> bool:
        """True if the headers of an Upgrade say that the caller is a node, which it must prove then
        before anything else."""
        return bool(self.node_secrets) and asked.get(AS) == AS_NODE

    def demands(self, *, offered: bool) -> bool:
        """True if the other end must prove itself, which `offered` to do so or did not."""
        return bool(self.secrets) and (self.required or offered)

    @property
    def word(self) -> str:
        """The token that it sends now; "" without one."""
        return "" if self.token is None else self.token.word

    def check_certified(self, names: tuple[CertifiedName, ...], *, offered: bool) -> None:
        """Check, as the node, that a caller without a token has shown a certificate which has these
        `names`, if it need not prove the secret, which it `offered` to do or did not.

        Raises:
            AccessDeniedError: it has not.
        """
        if self.wants_certificates and not names and not self.demands(offered=offered):
            raise AccessDeniedError(
                "the node serves those only who show a certificate of this cluster, or bring a "
                "token: name the file of yours with PAXOSBLOCK_TLS_CERT or PAXOSBLOCK_TOKEN_FILE"
            )

    def __repr__(self) -> str:
        return f"<Access with {len(self.secrets)} secrets, {self.tls or 'no TLS'}>"

    # -- a connection with an Upgrade --------------------------------------------------------------

    @property
    def own_secrets(self) -> tuple[bytes, ...]:
        """Return the secrets that count at a node which this process calls: it must know one."""
        return self.node_secrets or self.secrets

    def introduction(self, path: str, dialled: str, *, hidden: bool = False) -> Introduction:
        """Begin, as the caller, the handshake of a connection to the `path` of the node that was
        `dialled` (what `dialled` returns); `hidden`: with TLS."""
        return Introduction(self, path, dialled, os.urandom(NONCE_BYTES), hidden)

    def challenge(
        self, path: str, asked: Mapping[str, str], is_own: Callable[[str], bool]
    ) -> Challenge | None:
        """Answer, as the node, the headers of a request for an Upgrade at `path`; None: no proof is
        wanted. `is_own` tells whether the caller that dialled so meant this node.

        Raises:
            AccessDeniedError: the caller does not offer one, or offers it to another node.
        """
        if self.is_node(asked):
            return replace(self, secrets=self.node_secrets, node_secrets=())._challenged(
                path, asked, is_own
            )
        return (
            self._challenged(path, asked, is_own) if self.demands(offered=NONCE in asked) else None
        )

    def _challenged(
        self, path: str, asked: Mapping[str, str], is_own: Callable[[str], bool]
    ) -> Challenge:
        nonce = nonce_of(asked.get(NONCE, ""))
        if nonce is None:
            raise _not_offered()
        if not is_own(meant := asked.get(TO, "")):
            raise AccessDeniedError(
                f"the caller wanted the node at {meant.partition(' ')[0]!r}, which is no address "
                "of this one: a node behind a port map needs the name by which it is called in "
                "--listen or --advertise"
            )
        handshake = Handshake("", f"{path} {meant}", nonce, os.urandom(NONCE_BYTES))
        return Challenge(self, handshake)

    # -- a request without ------------------------------------------------------------------------

    def request_proof(self, purpose: str, until_s: int, meant: str) -> str:
        """Return a proof for requests of `purpose` that is good until that time, in seconds since
        1970, at the node that was dialled so (what `dialled` returns)."""
        assert self.secrets, "a proof is made with a secret"
        return f"{until_s}.{_of_request(self.secrets[0], f'{purpose} {meant}', until_s)}"

    def check_request(self, authorization: str, now_s: float, purpose: str, meant: str) -> None:
        """Check the header `Authorization` of a request for `purpose`. `meant` is how the caller
        dialled this node, "" if it does not say or means another one.

        Raises:
            AccessDeniedError: a proof is wanted, and this is none, or one that has ended or is good
                for another purpose.
        """
        if not self.demands(offered=bool(authorization)):
            return
        if not (authorization.startswith(SCHEME) and meant):
            raise _not_offered()
        end, _, proof = authorization.removeprefix(SCHEME).strip().partition(".")
        until_s = int(end) if end.isascii() and end.isdecimal() and len(end) < NONCE_BYTES else 0
        proofs = (
            _of_request(secret, f"{purpose} {meant}", until_s).encode() for secret in self.secrets
        )
        if not any(hmac.compare_digest(header_bytes(proof), each) for each in proofs):
            raise AccessDeniedError(
                "the proof was not made with the access secret of this cluster, or not for this"
            )
        if not now_s < until_s <= now_s + 2 * PROOF_S:
            raise AccessDeniedError(
                "the proof has ended, or begins later: the clocks of caller and node differ by more"
                f" than {PROOF_S // 60} minutes"
            )


OPEN: Final = Access()
"""Access for everybody."""


@dataclass(frozen=True, slots=True)
class Introduction:
    """The caller's part of a handshake."""

    access: Access
    path: str
    dialled: str
    nonce: bytes
    hidden: bool = False

    def proof_header(self, purpose: str, now_s: float) -> dict[str, str]:
        """Return the header with a proof for a request without an Upgrade, which is made now; none
        without a secret, or where a token takes its place. A process that answers in the place of
        that node cannot use it."""
        if not self.access.secrets or self.access.token is not None:
            return {}
        proof = self.access.request_proof(purpose, int(now_s) + PROOF_S, self.dialled)
        return {AUTHORIZATION: SCHEME + proof}

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the request. Raises as `claim` and `OwnToken.header`."""
        headers = claim(self.access.user)
        if self.access.token is not None:
            peer = self.dialled.rpartition(" ")[2].rpartition(":")[0].strip("[]")
            headers |= self.access.token.header(peer, hidden=self.hidden)
        if self.access.node_secrets:
            headers[AS] = AS_NODE
        if self.access.own_secrets:
            headers |= {NONCE: self.nonce.hex(), TO: self.dialled}
        return headers

    def key(self, answered: Mapping[str, str]) -> bytes:
        """Return the key that both ends have since the handshake, by the first secret; b"" without
        one."""
        nonce = nonce_of(answered.get(NONCE.lower(), ""))
        if nonce is None or not self.access.secrets:
            return b""
        return self._handshake(nonce).key(self.access.secrets[0])

    def _handshake(self, nonce: bytes) -> Handshake:
        return Handshake("", f"{self.path} {self.dialled}", self.nonce, nonce)

    def proof(self, peer: str, answered: Mapping[str, str]) -> bytes:
        """Return the bytes to send first, for the headers of the answer, by small letters.

        Raises:
            AccessDeniedError: the node at `peer` does not prove that it knows a secret of ours.
        """
        if not self.access.own_secrets:
            return b""
        if not self.access.required and NONCE.lower() not in answered:
            return b""
        nonce = nonce_of(answered.get(NONCE.lower(), ""))
        proofs = header_bytes(answered.get(PROOF.lower(), "")).split(b",")
        if nonce is not None:
            handshake = self._handshake(nonce)
            for secret in self.access.own_secrets:
                wanted = handshake.purpose(secret, _OF_NODE).hex().encode()
                if any(hmac.compare_digest(each, wanted) for each in proofs):
                    return handshake.purpose(secret, _OF_CALLER)
        which = "another access secret than ours" if nonce else "no access secret, and we have one"
        raise AccessDeniedError(f"{peer} has {which}", peer=peer)


@dataclass(frozen=True, slots=True)
class Challenge:
    """The node's part of a handshake."""

    access: Access
    handshake: Handshake

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the answer."""
        proofs = ",".join(proof.hex() for proof in self._proofs(_OF_NODE))
        return {NONCE: self.handshake.called_nonce.hex(), PROOF: proofs}

    @property
    def key(self) -> bytes:
        """Return the key that both ends have once it is met (`Introduction.key`)."""
        return self.handshake.key(self.access.secrets[0])

    def met_by(self, proof: bytes) -> bool:
        """Return True if only a holder of one of the secrets could send this."""
        return any(hmac.compare_digest(proof, each) for each in self._proofs(_OF_CALLER))

    def _proofs(self, purpose: bytes) -> Iterator[bytes]:
        return (self.handshake.purpose(secret, purpose) for secret in self.access.secrets)


def _tls_of(config: ClientConfig | NodeConfig, serves: CertifiedKind | None = None) -> Tls | None:
    if not (config.tls_cert or config.tls_ca or config.tls_key):
        return None
    from paxosblock.net.port.tls import Tls  # noqa: PLC0415 - few processes need ssl

    return Tls(
        config.tls_cert,
        config.tls_ca,
        key=config.tls_key,
        required=config.tls_required,
        serves=serves,
    )


def make_secret(file: Path) -> None:
    """Write a new secret to a file that only its owner may read, and that is not there yet.

    Raises:
        OSError: it is there, or cannot be written.
    """
    line = binascii.b2a_base64(os.urandom(SECRET_BYTES))
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as out:
        out.write(line)
        out.flush()
        os.fsync(descriptor)


def secrets_in_file(setting: str, file: str) -> tuple[bytes, ...]:
    """Return the secrets in the file that a setting names, a line each: 32 bytes in base64 or hex.
    "" is no file and no secret.

    Raises:
        ConfigError: it cannot be read, holds none, or something else, or everybody may read it.
    """
    if not file:
        return ()
    try:
        lines = Path(file).read_bytes()
        for_everybody = Path(file).stat().st_mode & 0o007
    except FileNotFoundError as error:
        hint = "put it there, or let `paxosblock setup secret` make one"
        raise ConfigError(f"{setting} {file}: {error.strerror}: {hint}") from error
    except OSError as error:
        raise ConfigError(f"{setting} {file}: {error.strerror}") from error
    if for_everybody:
        raise ConfigError(f"{setting} {file}: everybody may read the secret: chmod o= it")
    return secrets_in(f"{setting} {file}", lines)


def secrets_in(what: str, text: bytes) -> tuple[bytes, ...]:
    """Return the secrets in a text. Raises ConfigError, which begins with `what`."""
    lines = enumerate(text.split(b"\n"), 1)
    secrets = [(number, _secret(line)) for number, line in lines if line.strip()]
    if not secrets:
        raise ConfigError(f"{what}: it holds no secret")
    for number, secret in secrets:
        if secret is None:
            raise ConfigError(
                f"{what}: line {number} is no secret, one word of base64 or hex of "
                f"{SECRET_BYTES} bytes: `paxosblock setup secret` makes one"
            )
    return tuple(secret for _, secret in secrets if secret is not None)


def _secret(line: bytes) -> bytes | None:
    """Return the secret that a line holds; None if it is something else."""
    for decode in (binascii.unhexlify, partial(binascii.a2b_base64, strict_mode=True)):
        with contextlib.suppress(ValueError):
            if len(secret := decode(line.strip())) == SECRET_BYTES:
                return secret
    return None


def _not_offered() -> AccessDeniedError:
    return AccessDeniedError(
        "the node serves those only who know the cluster's access secret: name its file with "
        "PAXOSBLOCK_ACCESS_FILE, or bring a token (`paxosblock admin token issue`)"
    )


def _of_request(secret: bytes, purpose: str, until_s: int) -> str:
    text = f"{until_s} {purpose}".encode(errors="surrogateescape")
    return hmac.digest(secret, _OF_REQUEST + text, "sha256").hex()
