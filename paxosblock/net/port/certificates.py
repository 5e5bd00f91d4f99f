"""Makes certificates: a private authority, and what it says of nodes and users.

Nodes and clients do not need this: they read files, from wherever those come (`tls.py`). It wants
the package `cryptography`, the extra `[tls]`; without that the import raises ConfigError.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from paxosblock.errors import ConfigError, ExistsError, NotFoundError, StorageError
from paxosblock.host.whole_file import OWNER_ONLY, replace_file
from paxosblock.net.port.certified import CertifiedName

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise ConfigError(
        "certificates are made with the package cryptography: pip install 'paxosblock[tls]'"
    ) from error


CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca.key"
AUTHORITY_S: Final = 10 * 365 * 24 * 3600.0
"""Seconds for which an authority is good."""
NODE_S: Final = 2 * 365 * 24 * 3600.0
USER_S: Final = 90 * 24 * 3600.0
CLOCKS_DIFFER_S: Final = 3600.0
"""Seconds before now from which a certificate is good."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A private authority for one cluster, in a folder; its key stays with the operator."""

    folder: Path
    cluster: str

    @classmethod
    def made(cls, folder: Path, cluster: str, usual: str = "") -> Authority:
        """Make one for a cluster (of the `usual` name if no other is given), or return the one that
        lives in the folder.

        Raises:
            ExistsError: the authority there is that of another cluster.
            StorageError: the operating system refuses.
        """
        if (folder / CA_FILE).exists():
            found = cls.at(folder)
            if cluster and found.cluster != cluster:
                raise ExistsError(f"{folder} has the authority of the cluster {found.cluster!r}")
            return found
        made = cls(folder, cluster or usual)
        key = _new_key()
        try:
            folder.mkdir(0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError.of(folder, error) from error
        certificate = _authority(key, made.cluster)
        _write(folder / CA_KEY_FILE, _pem(key), secret=True)
        _write(folder / CA_FILE, _pem(certificate), secret=False)
        return made

    @classmethod
    def at(cls, folder: Path) -> Authority:
        """Return the one that lives in a folder.

        Raises:
            ConfigError: the files are not as this module writes them.
            NotFoundError: there is none.
        """
        if not (folder / CA_FILE).exists():
            raise NotFoundError(
                f"{folder} has no authority: `paxosblock setup tls` makes one", path=str(folder)
            )
        names = _read_certificate(folder / CA_FILE).subject
        words = names.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        return cls(folder, str(words[0].value) if words else "")

    def certify(
        self,
        file: Path,
        holder: CertifiedName | None,
        hosts: Iterable[str],
        for_s: float,
        now_s: float | None = None,
    ) -> float:
        """Write a certificate with its key to `file`, in the place of one that is there; return the
        time at which it ends, in seconds since 1970.

        Args:
            file: is there whole or not at all.
            holder: a node or a user; a user has no `hosts`. None: a gateway, whose certificate
                nodes do not believe.
            hosts: names and addresses of the machine at which others reach the holder.
            for_s: seconds for which it is good, but no longer than the authority.
            now_s: the time now, in seconds since 1970; None: by the clock of this machine.

        Raises:
            ConfigError: the authority's files are damaged, or a name or address is none.
            StorageError: the operating system refuses.
        """
        ca, ca_key = _read_certificate(self.folder / CA_FILE), _read_key(self.folder / CA_KEY_FILE)
        now_s, key = time.time() if now_s is None else now_s, _new_key()
        ends_s = min(now_s + for_s, ca.not_valid_after_utc.timestamp())
        called = "paxosblock gateway" if holder is None else str(holder)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, called[:64])])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        try:
            certificate = _builder(key, ca.subject, subject, now_s, ends_s)
            for each in (_key_usage(signs=False), *_holder(holder, tuple(hosts)), issuer):
                critical = isinstance(each, x509.KeyUsage)
                certificate = certificate.add_extension(each, critical=critical)
            signed = certificate.sign(ca_key, hashes.SHA256())
        except ValueError as error:
            raise ConfigError(f"{file}: no certificate of {called}: {error}") from error
        _write(file, _pem(signed) + _pem(key), secret=True)
        return ends_s


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _builder(
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    subject: x509.Name,
    now_s: float,
    ends_s: float,
) -> x509.CertificateBuilder:
    public = key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime.fromtimestamp(now_s - CLOCKS_DIFFER_S, datetime.UTC))
        .not_valid_after(datetime.datetime.fromtimestamp(ends_s, datetime.UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.BasicConstraints(issuer == subject, None), critical=True)
    )


def _authority(key: ec.EllipticCurvePrivateKey, cluster: str) -> x509.Certificate:
    words = ((NameOID.ORGANIZATION_NAME, cluster), (NameOID.COMMON_NAME, "paxosblock authority"))
    name = x509.Name([x509.NameAttribute(*each) for each in words])
    now_s = time.time()
    return (
        _builder(key, name, name, now_s, now_s + AUTHORITY_S)
        .add_extension(_key_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def _holder(holder: CertifiedName | None, hosts: tuple[str, ...]) -> list[x509.ExtensionType]:
    """Return what tells who the holder is, and that a user is no node."""
    uses, names = list[x509.ObjectIdentifier](), list[x509.GeneralName]()
    if holder is not None:
        uses.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        names.append(x509.UniformResourceIdentifier(str(holder)))
    if hosts:
        uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
    other = x509.SubjectAlternativeName([*names, *map(_general_name, hosts)])
    return [x509.ExtendedKeyUsage(uses), other]


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    return x509.DNSName(host)


def _pem(part: Any) -> bytes:
    if isinstance(part, x509.Certificate):
        return part.public_bytes(serialization.Encoding.PEM)
    found: bytes = part.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return found


def _read_certificate(file: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(file.read_bytes())
    except OSError as error:
        raise StorageError.of(file, error) from error
    except ValueError as error:
        raise ConfigError(f"{file}: it holds no certificate in PEM") from error


def _read_key(file: Path) -> Any:
    try:
        return serialization.load_pem_private_key(file.read_bytes(), None)
    except OSError as error:
        raise StorageError.of(file, error) from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{file}: it holds no key in PEM without a password") from error


def _write(file: Path, data: bytes, *, secret: bool) -> None:
    try:
        replace_file(file, data, OWNER_ONLY if secret else 0o644, synced=True)
    except OSError as error:
        raise StorageError.of(file, error) from error
