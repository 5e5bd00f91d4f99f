"""Tokens of an OpenID issuer (Keycloak, Okta, Entra, ...), which a NameNode takes as those of ours.

Who brings one is the user that it names, until it ends. A NameNode checks it once for a connection.
Only it does: for DataNodes a client asks for a token of ours, with a call (`ISSUE_TOKEN`).

The issuer's keys are read when the first token comes, and again after an hour or for a token that
names an unknown one. Callers wait for that only if they need a key that is not here.

It wants the package `PyJWT`, the extra `[oidc]`; without that the import raises ConfigError.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import aiohttp
import msgspec

from paxosblock.api.user_tokens import (
    LONGEST_S,
    TokenRight,
    UserToken,
    roughly,
    shown_time,
)
from paxosblock.base.encoding import MALFORMED, json_decoder
from paxosblock.base.units import MIB, format_duration
from paxosblock.base.user_names import NAME_EXPECTED, is_user
from paxosblock.config import NameNodeConfig, is_safe_url
from paxosblock.errors import AccessDeniedError, ConfigError, PaxosBlockError, UnavailableError

try:
    import jwt
except ImportError as error:
    raise ConfigError(
        "oidc_issuer: tokens of an issuer are checked with the package PyJWT:"
        " pip install 'paxosblock[oidc]'"
    ) from error

KINDS_OF_KEYS: Final = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
"""The algorithms of each kind of public key; a secret key is never believed, and no word without a
signature."""
KEPT_S: Final = 3600.0
"""Seconds after which keys are read again, while those that were read go on to be good."""
OLDEST_S: Final = 24 * 3600.0
"""Seconds for which keys are good while the issuer does not answer."""
PAUSE_S: Final = 5.0
"""Shortest time between two reads, however many strange tokens come."""
ANSWER_WITHIN_S: Final = 10.0
"""Seconds that the issuer may take for one answer."""
CLOCKS_S: Final = 60.0
"""Seconds by which the clocks of issuer and node may differ."""
EVERYTHING: Final = TokenRight(sum(TokenRight))
"""With proof of the issuer one may do all that the user may, as with a certificate."""


class _Discovery(msgspec.Struct):
    issuer: str
    jwks_uri: str


class _KeySet(msgspec.Struct):
    keys: tuple[dict[str, Any], ...]


class Issuer:
    """The issuer whose tokens a NameNode takes, and its keys."""

    def __init__(
        self,
        config: NameNodeConfig,
        clock_s: Callable[[], float],
        now_s: Callable[[], float],
    ) -> None:
        """`clock_s` does not go back; `now_s` tells the seconds since 1970."""
        self._config = config
        self._name = config.oidc_issuer
        self._clock_s, self._now_s = clock_s, now_s
        self._keys: tuple[dict[str, Any], ...] = ()
        self._read_at_s = self._tried_at_s = -OLDEST_S
        self._reading: asyncio.Task[None] | None = None
        self._failure: PaxosBlockError | None = None

    async def close(self) -> None:
        """End a read that is under way."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def check(self, word: str) -> UserToken:
        """Return the token of ours that says what this one of the issuer does.

        Raises:
            AccessDeniedError: it is none of this issuer for this cluster, has ended, or names no
                user.
            UnavailableError: its key is not here, and the issuer does not answer.
        """
        try:
            header = jwt.get_unverified_header(word)
        except jwt.PyJWTError:
            raise AccessDeniedError(
                "this is no token of an issuer, or only a part of one: get another one from"
                f" {self._name}"
            ) from None
        algorithm, name = str(header.get("alg")), header.get("kid")
        if not any(algorithm in known for known in KINDS_OF_KEYS.values()):
            raise AccessDeniedError(
                f"the token is signed by {algorithm[:20]!r}, which proves nothing: let"
                f" {self._name} sign by RS256 or ES256"
            )
        key = await self._key(name if isinstance(name, str) else None, algorithm)
        return self._token(self._claims(word, key, algorithm))

    # -- what it says -----------------------------------------------------------------------------

    def _claims(self, word: str, key: jwt.PyJWK, algorithm: str) -> Mapping[str, Any]:
        audience = self._config.oidc_audience
        try:
            claims: Mapping[str, Any] = jwt.decode(
                word,
                key,
                [algorithm],
                {
                    "require": ["exp", "iss", "aud"],
                    "verify_exp": False,  # `_check_times` says by how much
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_sub": False,  # `_token` looks at the claim that counts
                    "verify_jti": False,
                },
                audience=audience,
                issuer=self._name,
            )
        except jwt.InvalidAudienceError:
            raise AccessDeniedError(
                f"the token is for another program than {audience!r} (`aud`): ask {self._name} for"
                " one with this audience, or set oidc_audience"
            ) from None
        except jwt.InvalidIssuerError:
            raise AccessDeniedError(
                f"the token is of another issuer than {self._name!r} (`iss`): get one from that,"
                " or set oidc_issuer exactly as the issuer calls itself"
            ) from None
        except jwt.MissingRequiredClaimError as error:
            raise AccessDeniedError(
                f"the token lacks {error.claim!r}: get one from {self._name} that has it"
            ) from None
        except jwt.PyJWTError:
            raise AccessDeniedError(
                f"the token was not signed by {self._name}, or was changed: get another one"
            ) from None
        self._check_times(claims)
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now_s = self._now_s()
        here = shown_time(now_s)
        begins, ends = (_second(claims, name) for name in ("nbf", "exp"))
        issued = _second(claims, "iat")
        if ends <= now_s - CLOCKS_S:
            raise AccessDeniedError(
                f"the token ended {roughly(now_s - ends)} ago: get another one from {self._name},"
                f" if the clock of this node is right ({here})"
            )
        if max(begins, issued) > now_s + CLOCKS_S:
            raise AccessDeniedError(
                f"the token begins in {roughly(max(begins, issued) - now_s)}: are the clocks of"
                f" {self._name} and of this node right? ({here})"
            )

    def _token(self, claims: Mapping[str, Any]) -> UserToken:
        config = self._config
        user = _claim(claims, config.oidc_user_claim)
        if not is_user(user):
            raise AccessDeniedError(
                f"the token names no user in {config.oidc_user_claim!r}, which is {NAME_EXPECTED}:"
                " set oidc_user_claim to a claim that does"
            )
        found = _claim(claims, config.oidc_groups_claim) if config.oidc_groups_claim else ()
        several = found if isinstance(found, list) else [found]
        groups = tuple(dict.fromkeys(str(each) for each in several if is_user(each)))
        until_s = min(_second(claims, "exp") + CLOCKS_S, self._now_s() + LONGEST_S)
        return UserToken(0, 0, str(user), groups, int(EVERYTHING), int(until_s))

    # -- its keys ---------------------------------------------------------------------------------

    async def _key(self, name: str | None, algorithm: str) -> jwt.PyJWK:
        """Return the key of this name (None: the only one there is) for an algorithm."""
        age_s = self._clock_s() - self._read_at_s
        if age_s > OLDEST_S:
            self._keys = ()
        if (found := self._find(name, algorithm)) is not None:
            if age_s > KEPT_S:
                self._read()
            return found
        if (reading := self._read()) is not None:
            await asyncio.shield(reading)
        if (found := self._find(name, algorithm)) is not None:
            return found
        if self._failure is not None:
            raise UnavailableError(str(self._failure))
        raise AccessDeniedError(
            f"{self._name} has no key {name!r} for {algorithm}: get another token from it"
            if name is not None
            else f"the token names no key (`kid`), and {self._name} has several or none for"
            f" {algorithm}"
        )

    def _find(self, name: str | None, algorithm: str) -> jwt.PyJWK | None:
        fitting = [
            each
            for each in self._keys
            if algorithm in KINDS_OF_KEYS.get(str(each.get("kty")), ())
            and each.get("alg") in (None, algorithm)
            and each.get("use") in (None, "sig")
            and name in (None, each.get("kid"))
        ]
        if not fitting or (name is None and len(fitting) > 1):
            return None
        try:
            return jwt.PyJWK.from_dict(fitting[0], algorithm)
        except jwt.PyJWTError:
            return None

    def _read(self) -> asyncio.Task[None] | None:
        """Return the read of the keys that is under way, or begin one if one may begin by now."""
        if self._reading is None and self._clock_s() - self._tried_at_s >= PAUSE_S:
            self._tried_at_s = self._clock_s()
            self._reading = asyncio.create_task(self._read_keys())
        return self._reading

    async def _read_keys(self) -> None:
        try:
            where = f"{self._name.rstrip('/')}/.well-known/openid-configuration"
            async with aiohttp.ClientSession() as session:
                found = await _fetched(session, where, _DISCOVERY)
                if found.issuer != self._name:
                    raise UnavailableError(
                        f"{where} is of the issuer {found.issuer!r}: set oidc_issuer to that"
                    )
                self._keys = (await _fetched(session, found.jwks_uri, _KEY_SET)).keys
            self._read_at_s, self._failure = self._clock_s(), None
        except PaxosBlockError as error:
            self._failure = error
        finally:
            self._reading = None


_DISCOVERY: Final = json_decoder(_Discovery)
_KEY_SET: Final = json_decoder(_KeySet)


async def _fetched(
    session: aiohttp.ClientSession, url: str, decoder: msgspec.json.Decoder[Any]
) -> Any:
    """Return what the issuer shows at `url`. Raises UnavailableError if that is not what it should.

    It follows no redirection: what it is told must be where the operator said, or the issuer.
    """
    if not is_safe_url(url):
        raise UnavailableError(f"the issuer names {url[:200]!r} for its keys, which is not https")
    try:
        async with (
            asyncio.timeout(ANSWER_WITHIN_S),
            session.get(url, allow_redirects=False) as answer,
        ):
            if answer.status != 200:
                raise UnavailableError(f"{url} answered {answer.status}: is oidc_issuer right?")
            body = await answer.content.read(MIB)
            while len(body) < MIB and (more := await answer.content.read(MIB - len(body))):
                body += more
            return decoder.decode(body)
    except TimeoutError:
        why = f"no answer in {format_duration(ANSWER_WITHIN_S)}"
    except (aiohttp.ClientError, OSError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
    except MALFORMED as error:
        why = f"the answer is not what an issuer shows: {error}"
    raise UnavailableError(
        f"the issuer's keys cannot be read from {url}: {why}. Can this NameNode reach it?"
    )


def _claim(claims: Mapping[str, Any], name: str) -> object:
    """Return a claim; a name with dots that no claim has is a way into nested ones."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _second(claims: Mapping[str, Any], name: str) -> float:
    """Return a time. Raises AccessDeniedError if it is none."""
    found = claims.get(name, 0)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1 << 40:
        raise AccessDeniedError(f"the token has a {name!r} that is no time in seconds since 1970")
    return found
