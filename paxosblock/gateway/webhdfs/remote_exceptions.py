"""Refusals as Hadoop's servers word them: a class of Java, a message, and a status of HTTP."""

from __future__ import annotations

import enum
import re
from http import HTTPStatus
from typing import Final

import msgspec

from paxosblock.errors import (
    AccessDeniedError,
    DeadlineError,
    DirectoryNotEmptyError,
    ExistsError,
    InvalidRequestError,
    IsDirectoryError,
    LeaseError,
    NameQuotaError,
    NotDirectoryError,
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    OutcomeUnknownError,
    PaxosBlockError,
    PermissionDeniedError,
    SafeModeError,
    SpaceQuotaError,
    UnavailableError,
)
from paxosblock.gateway.exchange import Answer


class JavaError(enum.Enum):
    """The classes that programs know, each with its status."""

    ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException", HTTPStatus.BAD_REQUEST
    UNSUPPORTED = "java.lang.UnsupportedOperationException", HTTPStatus.BAD_REQUEST
    NOT_PROVEN = (
        "org.apache.hadoop.security.authentication.client.AuthenticationException",
        HTTPStatus.UNAUTHORIZED,
    )
    ACCESS_CONTROL = "org.apache.hadoop.security.AccessControlException", HTTPStatus.FORBIDDEN
    AUTHORIZATION = (
        "org.apache.hadoop.security.authorize.AuthorizationException",
        HTTPStatus.FORBIDDEN,
    )
    FILE_NOT_FOUND = "java.io.FileNotFoundException", HTTPStatus.NOT_FOUND
    FILE_EXISTS = "org.apache.hadoop.fs.FileAlreadyExistsException", HTTPStatus.FORBIDDEN
    PARENT_NOT_DIRECTORY = (
        "org.apache.hadoop.fs.ParentNotDirectoryException",
        HTTPStatus.FORBIDDEN,
    )
    NOT_DIRECTORY = "org.apache.hadoop.fs.PathIsNotDirectoryException", HTTPStatus.FORBIDDEN
    NOT_EMPTY = "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException", HTTPStatus.FORBIDDEN
    BEING_CREATED = (
        "org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException",
        HTTPStatus.FORBIDDEN,
    )
    SAFE_MODE = (
        "org.apache.hadoop.hdfs.server.namenode.SafeModeException",
        HTTPStatus.FORBIDDEN,
    )
    NAME_QUOTA = (
        "org.apache.hadoop.hdfs.protocol.NSQuotaExceededException",
        HTTPStatus.FORBIDDEN,
    )
    SPACE_QUOTA = (
        "org.apache.hadoop.hdfs.protocol.DSQuotaExceededException",
        HTTPStatus.FORBIDDEN,
    )
    STANDBY = "org.apache.hadoop.ipc.StandbyException", HTTPStatus.FORBIDDEN
    """Tells a program to ask another gateway."""
    RETRIABLE = "org.apache.hadoop.ipc.RetriableException", HTTPStatus.FORBIDDEN
    """Tells a program to ask this gateway again."""
    IO = "java.io.IOException", HTTPStatus.FORBIDDEN
    INVALID_TOKEN = (
        "org.apache.hadoop.security.token.SecretManager$InvalidToken",
        HTTPStatus.FORBIDDEN,
    )
    RUNTIME = "java.lang.RuntimeException", HTTPStatus.INTERNAL_SERVER_ERROR

    def __init__(self, full_name: str, status: HTTPStatus) -> None:
        self.full_name = full_name
        self.status = status

    @property
    def simple_name(self) -> str:
        """The name without its package, and without the class in which it stands."""
        return re.split(r"[.$]", self.full_name)[-1]


_OF_CLUSTER: Final = frozenset(
    {JavaError.SAFE_MODE, JavaError.STANDBY, JavaError.RETRIABLE, JavaError.RUNTIME}
)


class HadoopError(Exception):
    """A refusal that is decided here. It is `failed` if the gateway or its cluster is to blame."""

    def __init__(self, kind: JavaError, message: str, *, failed: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.failed = failed or kind in _OF_CLUSTER


class _Told(msgspec.Struct, rename="camel"):
    exception: str
    java_class_name: str
    message: str


class _Refusal(msgspec.Struct, rename="pascal"):
    remote_exception: _Told


_KINDS: Final[dict[type[PaxosBlockError], JavaError]] = {
    NotFoundError: JavaError.FILE_NOT_FOUND,
    NotDirectoryError: JavaError.FILE_NOT_FOUND,
    IsDirectoryError: JavaError.FILE_NOT_FOUND,
    ExistsError: JavaError.FILE_EXISTS,
    DirectoryNotEmptyError: JavaError.NOT_EMPTY,
    InvalidRequestError: JavaError.ILLEGAL_ARGUMENT,
    AccessDeniedError: JavaError.ACCESS_CONTROL,
    PermissionDeniedError: JavaError.ACCESS_CONTROL,
    LeaseError: JavaError.BEING_CREATED,
    SafeModeError: JavaError.SAFE_MODE,
    NameQuotaError: JavaError.NAME_QUOTA,
    SpaceQuotaError: JavaError.SPACE_QUOTA,
    NotLeaderError: JavaError.STANDBY,
    UnavailableError: JavaError.STANDBY,
    NotReadyError: JavaError.RETRIABLE,
    DeadlineError: JavaError.RETRIABLE,
    OutcomeUnknownError: JavaError.RETRIABLE,
}


def as_hadoop_error(error: PaxosBlockError, path: str) -> HadoopError:
    """Return what Hadoop's server would answer where ours says `error` about `path`.

    Programs look for some of the words.
    """
    kind = _KINDS.get(type(error), JavaError.IO)
    match error:
        case NotFoundError() | NotDirectoryError():
            return HadoopError(kind, f"File does not exist: {path}")
        case IsDirectoryError():
            return HadoopError(kind, f"Path is not a file: {path}")
        case DirectoryNotEmptyError():
            return HadoopError(kind, f"`{path} is non empty': Directory is not empty")
    return HadoopError(kind, error.message, failed=type(error) not in _KINDS)


def refusal_of(error: HadoopError) -> Answer:
    """Return the answer that tells of a refusal."""
    told = _Told(error.kind.simple_name, error.kind.full_name, error.message)
    headers = {}
    if error.kind is JavaError.NOT_PROVEN:
        headers["WWW-Authenticate"] = "Bearer"
    body = msgspec.json.encode(_Refusal(told))
    return Answer(error.kind.status, body, headers, failed=error.failed)
