"""The URL and the storage options, which name the cluster and the client's settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from paxosblock.base.settings import did_you_mean
from paxosblock.client.names.url import SCHEME, parse_url, path_of
from paxosblock.config import ClientConfig, load_config, with_settings
from paxosblock.errors import ConfigError

NAMENODES: Final = "namenodes"
STAGING_TTL: Final = "staging_ttl"
TOKEN: Final = "token"

_OF_FSSPEC: Final = frozenset({"use_listings_cache", "listings_expiry_time", "max_paths"})
"""fsspec's own, for file systems that remember listings. Ours does not, so they mean nothing here.
"""


def options_of_url(url: str) -> dict[str, str]:
    """Return the storage options in a URL; none if it names no host or is only a path.

    Raises:
        ConfigError: a host or port that makes no sense.
    """
    if not url.startswith(SCHEME) or url.removeprefix(SCHEME).startswith("/") or url == SCHEME:
        return {}
    return {NAMENODES: ",".join(parse_url(url).namenodes)}


def path_of_url(url: str) -> str:
    """Return the path in a URL or a plain path: absolute, without a slash at the end.

    Raises InvalidRequestError: a URL ends with `?at=` and what is no time, or in the future.
    """
    if url.startswith(SCHEME):
        _, slash, path = url.removeprefix(SCHEME).partition("/")
        url = path_of(slash + path)
    return "/" + url.strip("/")


def config_of(options: Mapping[str, Any]) -> ClientConfig:
    """Return the client's settings, from storage options over the environment over the defaults.

    Args:
        options: settings as `Client` takes them, by the names of `ClientConfig`'s attributes.

    Raises:
        ConfigError: an option that is unknown, or a value that makes no sense.
    """
    settings = {name: value for name, value in options.items() if name not in _OF_FSSPEC}
    known = [NAMENODES, STAGING_TTL, *(field.name for field in dataclasses.fields(ClientConfig))]
    for name in settings:
        if name not in known:
            raise ConfigError(f"unknown storage option {name!r}{did_you_mean(name, known)}")
    return with_settings(load_config(ClientConfig), settings)
