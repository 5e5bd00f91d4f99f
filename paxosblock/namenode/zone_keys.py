"""The keys of encryption zones in the clear, and the master keys that wrap them in the catalog.

The master key comes from a file (`master_key_file`), a line each as in an access file, or from a
command that prints such lines, which may ask a service for keys (`master_key_command`). The first
one wraps; the others only unwrap, until `admin encrypt --roll` has wrapped all with the first.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import shlex
import subprocess
from collections.abc import Callable
from typing import Final

from paxosblock.api.encryption import DataKey
from paxosblock.base.chunk_cipher import KEY_BYTES, NONCE_BYTES, aes, key_of_block
from paxosblock.config import NameNodeConfig
from paxosblock.errors import AccessDeniedError, ConfigError
from paxosblock.namenode.catalog.records import BlockEntry, Zone
from paxosblock.net.port.access import secrets_in, secrets_in_file
from paxosblock.net.port.bearer import stamp_of
from paxosblock.net.port.caller import CALLER

COMMAND_S: Final = 10.0
"""Seconds that the command may take."""
TURN_S: Final = 5.0
"""Seconds between looks for a master key that was missing."""
_NAME_BYTES: Final = 6
_NAMED: Final = b"paxosblock master key"
_WRAPPED: Final = b"paxosblock zone %d"

_log = logging.getLogger(__name__)


def name_of(master: bytes) -> str:
    """Return the name by which records know a master key, which tells nothing of the key."""
    return hmac.digest(master, _NAMED, "sha256")[:_NAME_BYTES].hex()


class ZoneKeys:
    """Wraps and unwraps; keeps the keys of zones that were asked for, which never change."""

    def __init__(self, config: NameNodeConfig, find: Callable[[int], Zone]) -> None:
        """`find` returns the record of a zone. Without a setting there is no master key."""
        self._config = config
        self._find = find
        self._masters: dict[str, bytes] = {}
        self._keys: dict[int, bytes] = {}
        self.why = "neither master_key_file nor master_key_command is set in [namenode]"
        """The reason that there is no master key, "" if there is one."""
        self._missing = False
        """A key was asked for that no master key here unwraps."""
        self._stamp: tuple[int, ...] = ()
        """Of the file, when it was read."""

    def __repr__(self) -> str:
        return f"<ZoneKeys {', '.join(self._masters) or self.why}>"

    @property
    def is_set(self) -> bool:
        """True if a setting says where the master key comes from."""
        return bool(self._config.master_key_file or self._config.master_key_command)

    @property
    def master(self) -> str:
        """The name of the master key that wraps; "" if there is none."""
        return next(iter(self._masters), "")

    async def refresh(self) -> None:
        """Read the master keys again; where that fails, go on with those of before, and say why."""
        if not self.is_set:
            return
        self._stamp = self._stamp_now()
        try:
            found = await asyncio.to_thread(_read, self._config)
        except ConfigError as error:
            self.why = str(error)
            _log.warning("no master key for encryption zones: %s", error)
        else:
            self._masters, self.why, self._missing = {name_of(key): key for key in found}, "", False

    async def turn(self) -> None:
        """Read the master keys again if one was missing since the last time, or the file was
        replaced: so the NameNode that leads next has a key that was rolled."""
        if self._missing or self._stamp_now() != self._stamp:
            await self.refresh()

    def made(self, number: int, now_ms: int) -> Zone:
        """Return the record of a new zone, with a key of its own."""
        return self._wrapped(number, secrets.token_bytes(KEY_BYTES), now_ms)

    def wrapped_again(self, number: int, zone: Zone) -> Zone:
        """Return the record of a zone, wrapped by the first master key. Raises ConfigError."""
        if zone.master == self.master:
            return zone
        return self._wrapped(number, self._unwrapped(number, zone), zone.made_ms)

    def of_block(self, entry: BlockEntry) -> DataKey | None:
        """Return the key of a block for the caller, who may read or write it; None: it has none.

        Raises:
            AccessDeniedError: others can read what the caller is sent.
            ConfigError: the zone's key cannot be unwrapped here.
        """
        number, block = entry.zone, entry.record.block
        if not number:
            return None
        if not CALLER.get().private:
            raise AccessDeniedError(
                f"block {block}: is encrypted, and its key goes only over TLS or to a client on the"
                " NameNode's machine",
                block=block,
            )
        key = self._keys.get(number)
        if key is None:
            key = self._keys[number] = self._unwrapped(number, self._find(number))
        return DataKey(key_of_block(key, block))

    def _stamp_now(self) -> tuple[int, ...]:
        try:
            return stamp_of(self._config.master_key_file)
        except OSError:
            return ()  # there is none, or a command

    def _wrapped(self, number: int, key: bytes, made_ms: int) -> Zone:
        name = self.master
        assert name, "whoever makes or rolls a zone has read the master keys before"
        nonce = os.urandom(NONCE_BYTES)
        wrapped = aes(self._masters[name]).encrypt(nonce, key, _WRAPPED % number)
        return Zone(nonce + wrapped, name, made_ms)

    def _unwrapped(self, number: int, zone: Zone) -> bytes:
        master = self._masters.get(zone.master)
        if master is None:
            self._missing = True
            why = self.why or f"it has {', '.join(self._masters)}"
            raise ConfigError(
                f"the key of an encryption zone is wrapped by master key {zone.master}, which this"
                f" NameNode has not ({why}): give it that key in a line of its own"
            )
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an extra

        nonce, wrapped = zone.wrapped[:NONCE_BYTES], zone.wrapped[NONCE_BYTES:]
        try:
            return aes(master).decrypt(nonce, wrapped, _WRAPPED % number)
        except InvalidTag:
            text = f"the key of encryption zone {number} was changed: bring the catalog back"
            raise ConfigError(text) from None


def _read(config: NameNodeConfig) -> tuple[bytes, ...]:
    """Return the master keys, the one that wraps first. Raises ConfigError."""
    if config.master_key_file:
        return secrets_in_file("master_key_file", config.master_key_file)
    command = config.master_key_command
    try:
        done = subprocess.run(
            shlex.split(command), capture_output=True, timeout=COMMAND_S, check=False
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise ConfigError(f"master_key_command {command!r}: {error}") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().partition("\n")[0]
        text = f"master_key_command {command!r}: exit code {done.returncode}: {said}"
        raise ConfigError(text)
    return secrets_in("what master_key_command printed", done.stdout)
