"""Policies of forms: what the maker of a form, who has a key, lets others send with it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from paxosblock.base.encoding import MALFORMED, json_decoder
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error, too_large

UNCHECKED: Final = frozenset(
    {"awsaccesskeyid", "file", "policy", "signature", "x-amz-signature", "bucket"}
)
"""The fields for which a policy needs no condition; the bucket is that of the request."""
IGNORED: Final = "x-ignore-"
"""The beginning of the names of fields that do nothing, and need no condition."""
_RANGE: Final = "content-length-range"
_decoder = json_decoder(dict[str, Any])


@dataclass(frozen=True, slots=True)
class PolicyCondition:
    """One condition: the value of a field."""

    kind: str
    field: str
    value: str

    def is_met_by(self, fields: Mapping[str, str]) -> bool:
        """True if the field is there, with such a value."""
        found = fields.get(self.field)
        if found is None or self.kind == "eq":
            return found == self.value
        # There may be several types, and each must begin so.
        parts = re.split(r"\s*,\s*", found) if self.field == "content-type" else [found]
        return all(part.startswith(self.value) for part in parts)


@dataclass(frozen=True, slots=True)
class PostPolicy:
    """The conditions that a form must meet, and their end."""

    until_s: float
    """The time in seconds since 1970 at which it ends."""
    conditions: tuple[PolicyCondition, ...]
    least_bytes: int = 0
    most_bytes: int | None = None
    """The bytes that the file may have; None: any number."""

    @classmethod
    def of(cls, text: str) -> PostPolicy:
        """Return the policy that a form has, in base64. Raises S3Error if it is none."""
        try:
            said = _decoder.decode(base64.b64decode(text.encode("ascii"), validate=True))
        except (*MALFORMED, binascii.Error, UnicodeEncodeError):
            raise _no_policy("Invalid JSON.") from None
        if not isinstance(said.get("conditions"), list):
            raise _no_policy("Policy missing conditions.")
        found: list[PolicyCondition] = []
        least, most = 0, None
        for each in said["conditions"]:
            if isinstance(each, list) and each[:1] == [_RANGE]:
                least, most = _range(each[1:])
            else:
                found += _conditions(each)
        return cls(_time(said.get("expiration")), tuple(found), least, most)

    def check(self, fields: Mapping[str, str], bucket: str, now_s: float) -> None:
        """Check that a form with these fields, by their names in small letters, may be sent.

        Raises:
            S3Error: the policy has ended, or a condition is not met, or a field has none.
        """
        if now_s >= self.until_s:
            raise _refused("Policy expired.")
        fields = {**fields, "bucket": bucket}
        for each in self.conditions:
            if not each.is_met_by(fields):
                shown = msgspec.json.encode([each.kind, f"${each.field}", each.value]).decode()
                raise _refused(f"Policy Condition failed: {shown}")
        named = {each.field for each in self.conditions}
        extra = fields.keys() - named - UNCHECKED
        if extra := {name for name in extra if not name.startswith(IGNORED)}:
            raise _refused(f"Extra input fields: {min(extra)[:80]}")
        if "bucket" not in named:
            raise _refused("Policy has no condition for the bucket")

    def check_size(self, size: int, *, is_all: bool) -> None:
        """Check that the file may have so many bytes, or, unless `is_all`, more. Raises S3Error."""
        if self.most_bytes is not None and size > self.most_bytes:
            raise too_large(self.most_bytes)
        if is_all and size < self.least_bytes:
            words = "Your proposed upload is smaller than the minimum allowed size"
            raise S3Error(
                S3Code.ENTITY_TOO_SMALL,
                words,
                ProposedSize=str(size),
                MinSizeAllowed=str(self.least_bytes),
            )


def _conditions(said: Any) -> Iterator[PolicyCondition]:
    match said:
        case dict() if said and all(isinstance(value, str) for value in said.values()):
            yield from (PolicyCondition("eq", name.lower(), value) for name, value in said.items())
        case [str(kind), str(name), str(value)] if name.startswith("$") and name[1:]:
            if kind.lower() not in ("eq", "starts-with"):
                raise _no_policy(f"Invalid condition {kind[:40]!r}.")
            yield PolicyCondition(kind.lower(), name[1:].lower(), value)
        case _:
            raise _no_policy("Invalid Simple-Condition.")


def _range(said: list[Any]) -> tuple[int, int]:
    match said:
        case [int(least), int(most)] if 0 <= least <= most and bool not in map(type, said):
            return least, most
    raise _no_policy(f"Invalid {_RANGE}.")


def _time(said: Any) -> float:
    try:
        found = datetime.fromisoformat(said)
        if found.tzinfo is not None:
            return found.timestamp()
    except (TypeError, ValueError, OverflowError):
        pass
    raise _no_policy("Invalid 'expiration' value.")


def _no_policy(why: str) -> S3Error:
    return S3Error(S3Code.INVALID_POLICY_DOCUMENT, f"Invalid Policy: {why}")


def _refused(why: str) -> S3Error:
    return S3Error(S3Code.ACCESS_DENIED, f"Invalid according to Policy: {why}")
