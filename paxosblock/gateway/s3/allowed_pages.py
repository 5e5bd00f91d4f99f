"""Pages in browsers that may ask: those of the origins which the settings name (CORS)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

from paxosblock.errors import ConfigError
from paxosblock.gateway.exchange import Answer

ORIGIN = "Origin"
WANTED_METHOD = "Access-Control-Request-Method"
WANTED_HEADERS = "Access-Control-Request-Headers"
METHODS = "GET, HEAD, PUT, POST, DELETE"
KEPT_S = 3600
"""Seconds for which a browser need not ask again."""


@dataclass(frozen=True, slots=True)
class AllowedPages:
    """The origins whose pages may ask."""

    origins: frozenset[str] = frozenset()

    @classmethod
    def of(cls, text: str) -> AllowedPages:
        """Return those that a setting names, with commas between them. Raises ConfigError."""
        found = frozenset(each for each in text.split(",") if each)
        for each in found:
            if not _is_origin(each):
                raise ConfigError(
                    f"s3_cors_origins: {each!r} is no origin of pages, such as "
                    "https://app.example.org"
                )
        return cls(found)

    def preflight(self, method: str, headers: Mapping[str, str]) -> Answer | None:
        """Return the answer to a browser that asks if a page may ask; None: it does not ask
        that."""
        if method != "OPTIONS" or WANTED_METHOD not in headers or not self._origin(headers):
            return None
        told = {"Access-Control-Allow-Methods": METHODS, "Access-Control-Max-Age": str(KEPT_S)}
        if wanted := headers.get(WANTED_HEADERS):
            told["Access-Control-Allow-Headers"] = wanted
        return Answer(HTTPStatus.OK, b"", told)

    def tell(self, headers: Mapping[str, str], answer: Answer) -> None:
        """Let a page read the answer to its request, which has these headers, if it may ask."""
        if origin := self._origin(headers):
            answer.headers |= {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Expose-Headers": "*",
                "Vary": ORIGIN,
            }

    def _origin(self, headers: Mapping[str, str]) -> str:
        origin = headers.get(ORIGIN, "")
        return origin if origin in self.origins else ""


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    is_one = parts.scheme in ("http", "https") and bool(parts.netloc)
    return is_one and text == f"{parts.scheme}://{parts.netloc}".lower()
