"""Operations of WebHDFS about what belongs to names: attributes and access control lists."""

from __future__ import annotations

from typing import Final

import msgspec

from paxosblock.base.attribute_values import Encoding, decoded, encoded
from paxosblock.errors import ExistsError, NotFoundError
from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.webhdfs.hadoop_json import AclStatusJson, AttributeJson, answered, done
from paxosblock.gateway.webhdfs.operation_table import HadoopCall, operation
from paxosblock.gateway.webhdfs.parameters import invalid
from paxosblock.gateway.webhdfs.remote_exceptions import HadoopError, JavaError

_STICKY: Final = 0o1000
_SET_FLAGS: Final = frozenset({"CREATE", "REPLACE"})


@operation("GETXATTRS", "GET")
async def get_attributes(call: HadoopCall) -> Answer:
    """Show attributes, or those that `xattr.name` names."""
    written = call.parameters.text("encoding", Encoding.TEXT.value)
    try:
        encoding = Encoding(written.lower())
    except ValueError:
        raise invalid("encoding", f"there is no {written[:40]!r}") from None
    names = call.parameters.texts("xattr.name")
    found = await call.fs.get_attributes(call.path, *names)
    if not found.keys() >= {*names}:
        words = "At least one of the attributes provided was not found."
        raise HadoopError(JavaError.IO, words)
    shown = [AttributeJson(name, encoded(found[name], encoding)) for name in sorted(found)]
    return answered({"XAttrs": shown})


@operation("LISTXATTRS", "GET")
async def list_attributes(call: HadoopCall) -> Answer:
    """Show the names of attributes, as JSON in a text of JSON."""
    names = sorted(await call.fs.get_attributes(call.path))
    return answered({"XAttrNames": msgspec.json.encode(names).decode()})


@operation("SETXATTR", "PUT", lambda _: done())
async def set_attribute(call: HadoopCall) -> Answer:
    """Set an attribute, if it is there or not as `flag` says (CREATE, REPLACE or both)."""
    name = _name(call)
    flags = {flag.strip().upper() for flag in call.parameters.text("flag").split(",")}
    if not flags <= _SET_FLAGS:
        raise invalid("flag", "it is CREATE, REPLACE or both")
    try:
        value = decoded(call.parameters.text("xattr.value"))
    except ValueError:
        raise invalid("xattr.value", "it is not in the encoding that it begins with") from None
    # One flag alone decides whether it may be there; with both, either is fine.
    exist = None if flags == _SET_FLAGS else flags == {"REPLACE"}
    try:
        await call.fs.set_attributes(call.path, {name: value}, exist=exist)
    except ExistsError:
        words = f"XAttr: {name} already exists. The REPLACE flag must be specified."
        raise HadoopError(JavaError.IO, words) from None
    except NotFoundError as error:
        if "attribute" not in error.details:
            raise
        words = f"XAttr: {name} does not exist. The CREATE flag must be specified."
        raise HadoopError(JavaError.IO, words) from None
    return done()


@operation("REMOVEXATTR", "PUT", lambda _: done())
async def remove_attribute(call: HadoopCall) -> Answer:
    """Remove an attribute."""
    name = _name(call)
    try:
        await call.fs.set_attributes(call.path, {name: None}, exist=True)
    except NotFoundError as error:
        if "attribute" not in error.details:
            raise
        words = "No matching attributes found for remove operation"
        raise HadoopError(JavaError.IO, words) from None
    return done()


def _name(call: HadoopCall) -> str:
    name = call.parameters.text("xattr.name")
    if not name:
        raise invalid("xattr.name", "it is missing")
    return name


# -- access control lists --------------------------------------------------------------------------


@operation("GETACLSTATUS", "GET")
async def get_acl_status(call: HadoopCall) -> Answer:
    """Show the access control list of a file or directory."""
    status = await call.fs.get_acl_status(call.path)
    shown = AclStatusJson(
        entries=[str(entry) for entry in status.entries],
        group=status.group,
        owner=status.owner,
        permission=f"{status.permission:o}",
        sticky_bit=bool(status.permission & _STICKY),
    )
    return answered({"AclStatus": shown})


@operation("SETACL", "PUT")
async def set_acl(call: HadoopCall) -> Answer:
    """Replace an access control list by `aclspec`."""
    await call.fs.set_acl(call.path, _entries(call))
    return done()


@operation("MODIFYACLENTRIES", "PUT")
async def modify_acl_entries(call: HadoopCall) -> Answer:
    """Add the entries of `aclspec` to an access control list, or replace those for the same
    users."""
    await call.fs.modify_acl_entries(call.path, _entries(call))
    return done()


@operation("REMOVEACLENTRIES", "PUT")
async def remove_acl_entries(call: HadoopCall) -> Answer:
    """Remove the entries that `aclspec` names."""
    await call.fs.remove_acl_entries(call.path, _entries(call))
    return done()


@operation("REMOVEDEFAULTACL", "PUT")
async def remove_default_acl(call: HadoopCall) -> Answer:
    """Remove all default entries of a directory."""
    await call.fs.remove_default_acl(call.path)
    return done()


@operation("REMOVEACL", "PUT")
async def remove_acl(call: HadoopCall) -> Answer:
    """Remove an access control list, so that the permission bits alone count."""
    await call.fs.remove_acl(call.path)
    return done()


def _entries(call: HadoopCall) -> str:
    written = call.parameters.text("aclspec")
    if not written:
        raise invalid("aclspec", "it is missing")
    return written
