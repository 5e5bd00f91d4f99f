"""`paxosblock admin s3-key`: access keys with which programs of S3 come to a gateway."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Final

import click

from paxosblock.base.modes import OF_DIRECTORIES
from paxosblock.cli.group import Verb, seconds
from paxosblock.cli.invocation import Invocation
from paxosblock.errors import ConfigError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from paxosblock.gateway.s3.access_keys import AccessKey, KeyMaker

ENDPOINT: Final = "http://127.0.0.1:9878"


@click.command("s3-key", cls=Verb)
@click.option(
    "--for",
    "lasts",
    default="90d",
    show_default=True,
    metavar="DURATION",
    help="The time for which it is good.",
)
@click.option("--user", default="", help="The user who comes with it.  [default: you]")
@click.option("--bucket", default="", help="The one bucket for which it is good.  [default: all]")
@click.option("--read-only", is_flag=True, help="It changes nothing.")
@click.option(
    "--endpoint", default=ENDPOINT, show_default=True, metavar="URL", help="Where the gateway is."
)
@click.option("--revoke", metavar="ID", help="Let no gateway believe this key any more.")
@click.pass_obj
def s3_key(
    invocation: Invocation,
    *,
    lasts: str,
    user: str,
    bucket: str,
    read_only: bool,
    endpoint: str,
    revoke: str | None,
) -> None:
    """Make an access key of S3, and print it as a shell reads it: nothing shows it again.

    \b
      $ eval "$(paxosblock admin s3-key)"
      $ aws s3 ls
      $ paxosblock admin s3-key --user etl --bucket data --for 30d > ~/.etl-key
      $ paxosblock admin s3-key --revoke PXBSKQTUKYLOM...

    The key is made with the access secret of the cluster, which this command and the gateways have
    (PAXOSBLOCK_ACCESS_FILE), and no node is asked: its id says whose it is, until when it is good
    and what it may. Where a cluster has no access secret, nothing proves who calls: the key is the
    name of the user and a word that all know.

    To revoke one takes a superuser. Gateways refuse it within five seconds.
    """
    from paxosblock.gateway.s3.access_keys import KeyMaker
    from paxosblock.gateway.s3.s3_call import is_bucket_name
    from paxosblock.host.user import claimed_user

    access = invocation.access
    if not access.secrets and (access.tls is not None or access.token is not None):
        raise ConfigError(
            "access keys of S3 are made with the access secret of the cluster: name its file with "
            "PAXOSBLOCK_ACCESS_FILE"
        )
    maker = KeyMaker(access.secrets)
    if revoke is not None:
        _revoke(invocation, maker, revoke)
        return
    if bucket and not is_bucket_name(bucket):
        raise InvalidRequestError(f"{bucket!r}: no bucket can be called so")
    if not access.secrets and (bucket or read_only):
        raise ConfigError("only a key that is made with an access secret may do less than its user")
    until_s = int(time.time() + seconds(lasts))
    made = maker.make(user or claimed_user(), until_s, bucket, read_only=read_only)
    variables = variables_of(made, endpoint)
    invocation.say(exported(variables), variables)


def variables_of(key: AccessKey, endpoint: str) -> dict[str, str]:
    """Return the variables of the environment from which programs of S3 take a key, and the URL of
    the gateway."""
    return {
        "AWS_ACCESS_KEY_ID": key.id,
        "AWS_SECRET_ACCESS_KEY": key.secrets[0],
        "AWS_ENDPOINT_URL": endpoint,
    }


def exported(variables: Mapping[str, str]) -> str:
    """Return the lines by which a shell gives variables to its commands."""
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _revoke(invocation: Invocation, maker: KeyMaker, key_id: str) -> None:
    from paxosblock.api.namenode import MKDIRS, MakeDirectories
    from paxosblock.gateway.s3.access_keys import NoKeyError, revoked_path

    try:
        key = maker.find(key_id)
    except NoKeyError:
        raise InvalidRequestError(f"{key_id[:40]!r} is no id of an access key") from None
    if key.until_s is None:
        raise ConfigError("without an access secret there are no keys that could be revoked")
    left_s = key.until_s - time.time()
    if left_s > 0:
        request = MakeDirectories(revoked_path(key_id), True, OF_DIRECTORIES & ~0o022, ttl_s=left_s)
        invocation.call_once(MKDIRS, request)
    invocation.tell({"id": key_id, "revoked": True})
