"""The certificate of a server whose callers know nothing of the cluster, such as a browser or a
program of Hadoop: they believe the authorities that their system believes, and show none."""

from __future__ import annotations

import ssl
from typing import ClassVar

from paxosblock.net.port.tls import Tls, TlsFiles, meeting


class HttpsCertificate(Tls):
    """A certificate with its key, in one file or two, which are read again when they were replaced.

    Where the port speaks TLS, callers who do not are refused with one answer.
    """

    CERT: ClassVar = "https_cert"
    KEY: ClassVar = "https_key"
    MAKE: ClassVar = "`paxosblock setup tls DIR --gateways NAME`"
    MAKE_FOR_USER: ClassVar = MAKE

    def __init__(self, cert: str, key: str = "", *, refusal: bytes) -> None:
        """Read the files.

        Args:
            cert: PEM, a certificate, those between it and its authority, and its key.
            key: PEM, the key alone; "": it is in `cert`.
            refusal: the answer to a caller who does not speak TLS.

        Raises:
            ConfigError: a file cannot be read, or does not hold what it should, or everybody may
                read the key, or the certificate is not good now.
        """
        self.plain_refusal = refusal
        self._begin(cert, "", key)

    def _read(self, stamp: tuple[tuple[int, ...], ...]) -> TlsFiles:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.minimum_version = ssl.TLSVersion.TLSv1_2  # as Java 8 speaks
        self._show(server)
        caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        caller.check_hostname = False
        # Which authority made it is its callers' affair: the certificate itself is the anchor here.
        caller.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        caller.load_verify_locations(self._cert)
        try:
            _, seen = meeting(server, caller)
        except ssl.SSLError as error:
            raise self._not_good(error) from error
        return TlsFiles(stamp, server, caller, (), ssl.cert_time_to_seconds(seen["notAfter"]))
