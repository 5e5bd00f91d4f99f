"""A small OpenID issuer for tests, with real keys, served by aiohttp at this machine."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "our-cluster"
PRIVATE: dict[str, Any] = {
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
}
"""Made once: that takes long."""
PUBLIC: dict[str, dict[str, Any]] = {
    "RS256": json.loads(RSAAlgorithm.to_jwk(PRIVATE["RS256"].public_key())),
    "ES256": json.loads(ECAlgorithm.to_jwk(PRIVATE["ES256"].public_key())),
    "EdDSA": json.loads(OKPAlgorithm.to_jwk(PRIVATE["EdDSA"].public_key())),
}


class OpenIdIssuer:
    """It shows its configuration and its keys, those that are in `keys` now."""

    def __init__(self) -> None:
        self.url = ""
        self.keys: dict[str, dict[str, Any]] = {}
        self.reads = 0
        """The number of reads of its keys."""
        self.shown: dict[str, Any] = {}
        """The parts of its configuration that are not as they should be."""
        self.status = 200
        self.moved = False
        """True: it sends who asks for its configuration to another address of its own."""
        self.held: asyncio.Event | None = None
        """No answer is given before it is set."""
        self._runner: web.AppRunner | None = None

    def add_key(self, name: str, algorithm: str = "RS256", **facts: Any) -> None:
        """Show a key under this name."""
        self.keys[name] = {**PUBLIC[algorithm], "kid": name, "use": "sig", **facts}

    def token(self, name: str | None = "one", algorithm: str = "RS256", **claims: Any) -> str:
        """Sign a token for an hour; a claim that is None is left out."""
        now_s = int(time.time())
        usual = {"iss": self.url, "aud": AUDIENCE, "sub": "ann", "iat": now_s, "exp": now_s + 3600}
        said = {key: value for key, value in (usual | claims).items() if value is not None}
        headers = {} if name is None else {"kid": name}
        word: str = jwt.encode(said, PRIVATE[algorithm], algorithm, headers)
        return word

    async def start(self) -> None:
        """Listen at a port that is free."""
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._configuration)
        app.router.add_get("/elsewhere", self._show_configuration)
        app.router.add_get("/keys", self._show_keys)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def stop(self) -> None:
        """Answer no more."""
        assert self._runner is not None
        await self._runner.cleanup()

    async def _configuration(self, request: web.Request) -> web.Response:
        if self.moved:
            raise web.HTTPFound(f"{self.url}/elsewhere")
        return await self._show_configuration(request)

    async def _show_configuration(self, _: web.Request) -> web.Response:
        return await self._answer({"issuer": self.url, "jwks_uri": f"{self.url}/keys"} | self.shown)

    async def _show_keys(self, _: web.Request) -> web.Response:
        self.reads += 1
        return await self._answer({"keys": list(self.keys.values())})

    async def _answer(self, body: dict[str, Any]) -> web.Response:
        if self.held is not None:
            await self.held.wait()
        return web.json_response(body, status=self.status)


@contextmanager
def issuer_beside() -> Iterator[OpenIdIssuer]:
    """One that answers in a thread of its own, while the test waits for other processes."""
    issuer, loop, begun = OpenIdIssuer(), asyncio.new_event_loop(), threading.Event()

    async def serve() -> None:
        await issuer.start()
        begun.set()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.run_forever()
        loop.run_until_complete(issuer.stop())
        loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert begun.wait(30)
        yield issuer
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
