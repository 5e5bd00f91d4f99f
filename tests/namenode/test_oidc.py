"""Tokens of an OpenID issuer at a NameNode: who they are, and each refusal in a line that says what
to do."""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from paxosblock.api.user_tokens import LONGEST_S, TokenRight, UserToken
from paxosblock.config import NameNodeConfig
from paxosblock.errors import AccessDeniedError, ConfigError, UnavailableError
from paxosblock.namenode.oidc import KEPT_S, OLDEST_S, PAUSE_S, Issuer
from paxosblock.net.port.bearer import AUTHORIZATION, SCHEME, TokenDoor
from tests.openid_issuer import AUDIENCE, PRIVATE, OpenIdIssuer

HOUR_S = 3600
_OFF = (-3 * HOUR_S, 3 * HOUR_S)


class World:
    """An issuer, and a NameNode that believes it, whose clocks the test sets."""

    def __init__(self, there: OpenIdIssuer) -> None:
        self.there = there
        self.clock_s, self.late_s = 1000.0, 0.0
        self.here = self.namenode()

    def namenode(self, **settings: str) -> Issuer:
        config = NameNodeConfig(oidc_issuer=self.there.url, oidc_audience=AUDIENCE, **settings)  # type: ignore[arg-type]  # all of them are texts
        return Issuer(config, lambda: self.clock_s, lambda: time.time() + self.late_s)

    async def refused(self, word: str, kind: type[Exception] = AccessDeniedError) -> str:
        with pytest.raises(kind) as error:
            await self.here.check(word)
        text = str(error.value)
        assert "\n" not in text
        for part in word.split("."):
            assert len(part) < 10 or part not in text
        return text


@pytest.fixture
async def world() -> AsyncIterator[World]:
    there = OpenIdIssuer()
    await there.start()
    there.add_key("one")
    world = World(there)
    yield world
    if there.held is not None:
        there.held.set()
    await world.here.close()
    await there.stop()


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_who_brings_one_is_its_user_until_it_ends(world: World, algorithm: str) -> None:
    world.there.add_key("other", algorithm, alg=algorithm)
    ends_s = int(time.time()) + 600
    token = await world.here.check(world.there.token("other", algorithm, exp=ends_s))
    assert (token.user, token.groups) == ("ann", ())
    assert token.rights == sum(TokenRight)
    assert ends_s <= token.until_s <= ends_s + 60
    token.check_end(time.time())


async def test_a_key_without_a_name_and_several_audiences_are_good(world: World) -> None:
    word = world.there.token(None, aud=["another", AUDIENCE])
    assert (await world.here.check(word)).user == "ann"
    world.there.add_key("two")
    world.clock_s += 2 * KEPT_S
    await world.here.check(word)  # which reads the keys again
    assert world.here._reading is not None
    await world.here._reading
    assert "names no key (`kid`)" in await world.refused(word)


async def test_user_and_groups_are_in_the_claims_that_settings_name(world: World) -> None:
    here = world.namenode(oidc_user_claim="email", oidc_groups_claim="realm_access.roles")
    facts: dict[str, Any] = {
        "email": "ann@example.org",
        "realm_access": {"roles": ["dev", "no:name", 7, "dev", "ops"]},
    }
    token = await here.check(world.there.token(**facts))
    assert (token.user, token.groups) == ("ann@example.org", ("dev", "ops"))
    word = world.there.token(email="ann@example.org")
    assert (await here.check(word)).groups == ()
    here = world.namenode(oidc_groups_claim="https://example.org/groups")
    word = world.there.token(**{"https://example.org/groups": "dev"})
    assert (await here.check(word)).groups == ("dev",)


async def test_one_that_is_good_for_years_is_so_for_as_long_as_a_token_may(world: World) -> None:
    now_s = time.time()
    token = await world.here.check(world.there.token(exp=int(now_s) + 10**9))
    assert token.until_s <= now_s + LONGEST_S + 60
    token.check_end(now_s)


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": -3 * HOUR_S}, ["the token ended 3h ago: get another one from http", "if the"]),
        ({"nbf": 3 * HOUR_S}, ["the token begins in 3h: are the clocks of"]),
        ({"iat": 3 * HOUR_S}, ["the token begins in 3h: are the clocks of"]),
        ({"iss": "https://elsewhere"}, ["of another issuer than 'http", "set oidc_issuer"]),
        ({"aud": "another"}, ["for another program than 'our-cluster'", "set oidc_audience"]),
        ({"aud": None}, ["the token lacks 'aud'"]),
        ({"exp": None}, ["the token lacks 'exp'"]),
        ({"exp": "soon"}, ["'exp' that is no time"]),
        ({"sub": None}, ["names no user in 'sub'", "set oidc_user_claim"]),
        ({"sub": "an:n"}, ["names no user in 'sub'"]),
        ({"sub": 7}, ["names no user in 'sub'"]),
    ],
)
async def test_what_a_token_says_is_refused_in_one_line(
    world: World, claims: dict[str, Any], told: list[str]
) -> None:
    now_s = int(time.time())
    timed = {name: now_s + value for name, value in claims.items() if value in _OFF}
    text = await world.refused(world.there.token(**claims | timed))
    for part in told:
        assert part in text


@pytest.mark.parametrize(("late_s", "told"), [(4, "ended 3h ago"), (-4, "begins in 4h")])
async def test_a_node_whose_clock_is_hours_off_says_what_time_it_has(
    world: World, late_s: int, told: str
) -> None:
    word = world.there.token()
    world.late_s = late_s * HOUR_S
    text = await world.refused(word)
    assert told in text
    assert time.strftime("%Y-%m-%d %H:", time.gmtime(time.time() + world.late_s)) in text


def encoded(part: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


async def test_a_word_that_is_not_signed_by_a_key_of_the_issuer_is_refused(world: World) -> None:
    good = world.there.token()
    header, body, signature = good.split(".")
    assert (await world.here.check(good)).user == "ann"
    other = encoded({**json.loads(base64.b64decode(body + "==")), "sub": "root"})
    assert "or was changed" in await world.refused(f"{header}.{other}.{signature}")
    # No signature at all.
    none = encoded({"alg": "none", "kid": "one"})
    assert "signed by 'none', which proves nothing" in await world.refused(f"{none}.{body}.")
    assert "or was changed" in await world.refused(f"{header}.{body}.")
    # What everybody may read, taken for a secret that only two know.
    pem = (
        PRIVATE["RS256"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    signer = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    said = f"{encoded({'alg': 'HS256', 'kid': 'one'})}.{body}"
    forged = base64.urlsafe_b64encode(signer.sign(said.encode(), pem)).rstrip(b"=").decode()
    assert "signed by 'HS256', which proves nothing" in await world.refused(f"{said}.{forged}")
    # Parts of one.
    for part in (good[:40], "eyJ.a.b", f"eyJ{good}", header):
        assert "no token of an issuer" in await world.refused(part)


async def test_a_key_is_good_for_its_own_algorithm_alone(world: World) -> None:
    world.there.add_key("curve", "ES256")
    world.there.add_key("narrow", "RS256", alg="RS512")
    world.there.add_key("sealing", "RS256", use="enc")
    world.there.keys["secret"] = {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"}
    for name in ("curve", "narrow", "sealing", "secret"):
        assert f"has no key '{name}' for RS256" in await world.refused(world.there.token(name))
    # By its own, with the name of another one.
    world.clock_s += PAUSE_S
    text = await world.refused(world.there.token("one", "ES256"))
    assert "has no key 'one' for ES256" in text


# -- keys ------------------------------------------------------------------------------------------


async def test_keys_are_read_once_and_again_for_one_that_is_new(world: World) -> None:
    for _ in range(5):
        await world.here.check(world.there.token())
    assert world.there.reads == 1
    world.there.add_key("two", "ES256")
    world.clock_s += PAUSE_S
    assert (await world.here.check(world.there.token("two", "ES256"))).user == "ann"
    assert world.there.reads == 2
    # However many come whose key is nowhere.
    for number in range(50):
        assert "has no key" in await world.refused(world.there.token(f"strange-{number}"))
    assert world.there.reads == 2


async def test_a_key_that_the_issuer_took_away_is_no_good_after_an_hour(world: World) -> None:
    word = world.there.token()
    await world.here.check(word)
    del world.there.keys["one"]
    world.there.add_key("two", "ES256")
    world.clock_s += KEPT_S + 1
    await world.here.check(word)  # it waits for no read, and begins one
    assert world.here._reading is not None
    await world.here._reading
    assert "has no key 'one'" in await world.refused(word)


async def test_an_issuer_that_hangs_holds_up_those_alone_who_need_it(world: World) -> None:
    await world.here.check(world.there.token())
    world.there.held = asyncio.Event()
    world.there.add_key("two", "ES256")
    world.clock_s += PAUSE_S
    waiting = [
        asyncio.create_task(world.here.check(world.there.token("two", "ES256"))) for _ in range(20)
    ]
    for _ in range(100):
        assert (await world.here.check(world.there.token())).user == "ann"
    assert not any(each.done() for each in waiting)
    world.there.held.set()
    assert [(await each).user for each in waiting] == ["ann"] * 20
    assert world.there.reads == 2, "all of them waited for one read"


async def test_one_who_gives_up_takes_no_read_from_others(world: World) -> None:
    world.there.held = asyncio.Event()
    first = asyncio.create_task(world.here.check(world.there.token()))
    other = asyncio.create_task(world.here.check(world.there.token()))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    world.there.held.set()
    assert (await other).user == "ann"


async def test_an_issuer_that_does_not_answer_is_named_and_asked_again(world: World) -> None:
    await world.here.check(world.there.token())
    known, word = world.there.token(), world.there.token("two", "ES256")
    world.there.status = 503
    world.clock_s += PAUSE_S
    text = await world.refused(word, UnavailableError)
    assert "openid-configuration answered 503: is oidc_issuer right?" in text
    # Those whose key is known are let in for a day.
    world.clock_s += OLDEST_S - 2 * PAUSE_S
    assert (await world.here.check(known)).user == "ann"
    if world.here._reading is not None:
        await world.here._reading
    world.clock_s += 2 * PAUSE_S
    assert "answered 503" in await world.refused(known, UnavailableError)
    world.there.status = 200
    world.there.add_key("two", "ES256")
    world.clock_s += PAUSE_S
    assert (await world.here.check(word)).user == "ann"


async def test_an_issuer_that_sends_one_elsewhere_is_not_followed(world: World) -> None:
    """It may be to where others can change what is shown."""
    world.there.moved = True
    text = await world.refused(world.there.token(), UnavailableError)
    assert "openid-configuration answered 302" in text


async def test_nothing_listens_where_the_issuer_was(world: World) -> None:
    await world.there.stop()
    text = await world.refused(world.there.token(), UnavailableError)
    assert "the issuer's keys cannot be read from http://127.0.0.1:" in text
    assert "Can this NameNode reach it?" in text


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        ({"issuer": "https://elsewhere"}, "is of the issuer 'https://elsewhere': set oidc_issuer"),
        ({"jwks_uri": "http://10.0.0.1/keys"}, "names 'http://10.0.0.1/keys' for its keys"),
        ({"jwks_uri": 7}, "is not what an issuer shows"),
        ({"more": "x" * (1 << 20)}, "is not what an issuer shows"),
    ],
)
async def test_an_issuer_that_says_what_makes_no_sense_is_told(
    world: World, shown: dict[str, Any], told: str
) -> None:
    world.there.shown = shown
    assert told in await world.refused(world.there.token(), UnavailableError)


@pytest.mark.parametrize(
    ("issuer", "audience", "told"),
    [
        ("http://example.org", "a", "begins with https://"),
        ("example.org", "a", "begins with https://"),
        ("https://example.org", "", "without oidc_audience"),
    ],
)
def test_settings_that_would_let_strangers_in_are_refused(
    issuer: str, audience: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        NameNodeConfig(oidc_issuer=issuer, oidc_audience=audience)
    assert NameNodeConfig(oidc_issuer="https://example.org", oidc_audience="a")


async def test_a_node_without_an_issuer_says_who_takes_one(world: World) -> None:
    door = TokenDoor()
    headers = {AUTHORIZATION: SCHEME + world.there.token()}
    with pytest.raises(AccessDeniedError, match="takes no token of an issuer: a NameNode does"):
        await door.shown(headers)
    door.issuer = world.here
    found = await door.shown(headers)
    assert isinstance(found, UserToken)
    assert found.user == "ann"


def test_without_the_package_a_node_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    monkeypatch.delitem(sys.modules, "paxosblock.namenode.oidc")
    with pytest.raises(ConfigError, match=r"pip install 'paxosblock\[oidc\]'"):
        importlib.import_module("paxosblock.namenode.oidc")
