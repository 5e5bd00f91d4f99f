"""Refusals in the words of S3: a code that programs look for, and a status."""

from __future__ import annotations

import enum
from http import HTTPStatus
from typing import Final

from paxosblock.errors import (
    AccessDeniedError,
    ConfigError,
    DeadlineError,
    DirectoryNotEmptyError,
    ExistsError,
    InvalidRequestError,
    IsDirectoryError,
    LeaseError,
    NoSpaceError,
    NotDirectoryError,
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    OutcomeUnknownError,
    PaxosBlockError,
    PermissionDeniedError,
    SafeModeError,
    UnavailableError,
)
from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.s3.s3_xml import XML, Field, document


class S3Code(enum.Enum):
    """A code of S3 and the status that goes with it."""

    ACCESS_DENIED = "AccessDenied", HTTPStatus.FORBIDDEN
    AUTHORIZATION_HEADER_MALFORMED = "AuthorizationHeaderMalformed", HTTPStatus.BAD_REQUEST
    AUTHORIZATION_QUERY = "AuthorizationQueryParametersError", HTTPStatus.BAD_REQUEST
    BAD_DIGEST = "BadDigest", HTTPStatus.BAD_REQUEST
    BAD_REQUEST = "BadRequest", HTTPStatus.BAD_REQUEST
    BUCKET_EXISTS = "BucketAlreadyOwnedByYou", HTTPStatus.CONFLICT
    BUCKET_NOT_EMPTY = "BucketNotEmpty", HTTPStatus.CONFLICT
    CONTENT_SHA256_MISMATCH = "XAmzContentSHA256Mismatch", HTTPStatus.BAD_REQUEST
    ENTITY_TOO_LARGE = "EntityTooLarge", HTTPStatus.BAD_REQUEST
    ENTITY_TOO_SMALL = "EntityTooSmall", HTTPStatus.BAD_REQUEST
    EXPIRED_TOKEN = "ExpiredToken", HTTPStatus.BAD_REQUEST
    INCOMPLETE_BODY = "IncompleteBody", HTTPStatus.BAD_REQUEST
    INTERNAL_ERROR = "InternalError", HTTPStatus.INTERNAL_SERVER_ERROR
    INVALID_ACCESS_KEY_ID = "InvalidAccessKeyId", HTTPStatus.FORBIDDEN
    INVALID_ARGUMENT = "InvalidArgument", HTTPStatus.BAD_REQUEST
    INVALID_BUCKET_NAME = "InvalidBucketName", HTTPStatus.BAD_REQUEST
    INVALID_DIGEST = "InvalidDigest", HTTPStatus.BAD_REQUEST
    INVALID_OBJECT_STATE = "InvalidObjectState", HTTPStatus.FORBIDDEN
    INVALID_PART = "InvalidPart", HTTPStatus.BAD_REQUEST
    INVALID_PART_NUMBER = "InvalidPartNumber", HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
    INVALID_PART_ORDER = "InvalidPartOrder", HTTPStatus.BAD_REQUEST
    INVALID_POLICY_DOCUMENT = "InvalidPolicyDocument", HTTPStatus.BAD_REQUEST
    INVALID_RANGE = "InvalidRange", HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
    INVALID_REQUEST = "InvalidRequest", HTTPStatus.BAD_REQUEST
    INVALID_STORAGE_CLASS = "InvalidStorageClass", HTTPStatus.BAD_REQUEST
    INVALID_TAG = "InvalidTag", HTTPStatus.BAD_REQUEST
    INVALID_URI = "InvalidURI", HTTPStatus.BAD_REQUEST
    KEY_TOO_LONG = "KeyTooLongError", HTTPStatus.BAD_REQUEST
    MALFORMED_POST = "MalformedPOSTRequest", HTTPStatus.BAD_REQUEST
    MALFORMED_TRAILER = "MalformedTrailerError", HTTPStatus.BAD_REQUEST
    MALFORMED_XML = "MalformedXML", HTTPStatus.BAD_REQUEST
    MAX_POST_PRE_DATA = "MaxPostPreDataLengthExceededError", HTTPStatus.BAD_REQUEST
    METADATA_TOO_LARGE = "MetadataTooLarge", HTTPStatus.BAD_REQUEST
    METHOD_NOT_ALLOWED = "MethodNotAllowed", HTTPStatus.METHOD_NOT_ALLOWED
    MISSING_CONTENT_LENGTH = "MissingContentLength", HTTPStatus.LENGTH_REQUIRED
    NO_SUCH_BUCKET = "NoSuchBucket", HTTPStatus.NOT_FOUND
    NO_SUCH_KEY = "NoSuchKey", HTTPStatus.NOT_FOUND
    NO_SUCH_UPLOAD = "NoSuchUpload", HTTPStatus.NOT_FOUND
    NO_SUCH_VERSION = "NoSuchVersion", HTTPStatus.NOT_FOUND
    NOT_IMPLEMENTED = "NotImplemented", HTTPStatus.NOT_IMPLEMENTED
    OBJECT_PARENT_IS_OBJECT = "ObjectParentIsObject", HTTPStatus.CONFLICT
    OPERATION_ABORTED = "OperationAborted", HTTPStatus.CONFLICT
    PRECONDITION_FAILED = "PreconditionFailed", HTTPStatus.PRECONDITION_FAILED
    REQUEST_TIME_TOO_SKEWED = "RequestTimeTooSkewed", HTTPStatus.FORBIDDEN
    REQUEST_TIMEOUT = "RequestTimeout", HTTPStatus.BAD_REQUEST
    SIGNATURE_DOES_NOT_MATCH = "SignatureDoesNotMatch", HTTPStatus.FORBIDDEN
    SLOW_DOWN = "SlowDown", HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self, word: str, status: HTTPStatus) -> None:
        self.word = word
        self.status = status


class S3Error(Exception):
    """A refusal that is decided here."""

    def __init__(self, code: S3Code, message: str, **facts: str) -> None:
        """`facts` stand beside the message, by S3's names for them."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.facts = facts
        self.headers: dict[str, str] = {}


_CODES: Final[dict[type[PaxosBlockError], S3Code]] = {
    NotFoundError: S3Code.NO_SUCH_KEY,
    NotDirectoryError: S3Code.OBJECT_PARENT_IS_OBJECT,
    IsDirectoryError: S3Code.OBJECT_PARENT_IS_OBJECT,
    ExistsError: S3Code.PRECONDITION_FAILED,
    DirectoryNotEmptyError: S3Code.BUCKET_NOT_EMPTY,
    InvalidRequestError: S3Code.INVALID_ARGUMENT,
    AccessDeniedError: S3Code.ACCESS_DENIED,
    PermissionDeniedError: S3Code.ACCESS_DENIED,
    ConfigError: S3Code.ACCESS_DENIED,
    LeaseError: S3Code.OPERATION_ABORTED,
    SafeModeError: S3Code.SLOW_DOWN,
    NoSpaceError: S3Code.SLOW_DOWN,
    NotLeaderError: S3Code.SLOW_DOWN,
    NotReadyError: S3Code.SLOW_DOWN,
    UnavailableError: S3Code.SLOW_DOWN,
    DeadlineError: S3Code.SLOW_DOWN,
    OutcomeUnknownError: S3Code.SLOW_DOWN,
}


def as_s3_error(error: PaxosBlockError) -> S3Error:
    """Return what S3 would answer where ours says `error`."""
    code = _CODES.get(type(error), S3Code.INTERNAL_ERROR)
    if code is S3Code.NO_SUCH_KEY:
        return no_such_key()
    return S3Error(code, error.message)


def no_such_key() -> S3Error:
    """Return the refusal of a key at which there is no object."""
    return S3Error(S3Code.NO_SUCH_KEY, "The specified key does not exist.")


def no_such_bucket() -> S3Error:
    """Return the refusal of a bucket that is not there."""
    return S3Error(S3Code.NO_SUCH_BUCKET, "The specified bucket does not exist")


def precondition_failed(condition: str) -> S3Error:
    """Return the refusal of a request whose condition, a header, is not met."""
    words = "At least one of the pre-conditions you specified did not hold"
    return S3Error(S3Code.PRECONDITION_FAILED, words, Condition=condition)


def too_large(most_bytes: int, **details: str) -> S3Error:
    """Return the refusal of an object of more bytes than it may have."""
    words = "Your proposed upload exceeds the maximum allowed size"
    return S3Error(S3Code.ENTITY_TOO_LARGE, words, **details, MaxSizeAllowed=str(most_bytes))


def invalid_argument(message: str) -> S3Error:
    """Return the refusal of a value that makes no sense."""
    return S3Error(S3Code.INVALID_ARGUMENT, message)


def not_implemented(what: str) -> S3Error:
    """Return the refusal of what a gateway does not do, by its name."""
    words = f"A header or operation that you asked for is not implemented here: {what}"
    return S3Error(S3Code.NOT_IMPLEMENTED, words)


def error_document(error: S3Error, resource: str, request_id: str) -> bytes:
    """Return the XML of a refusal."""
    fields = [
        Field("Code", error.code.word),
        Field("Message", error.message),
        *(Field(name, text) for name, text in error.facts.items()),
        Field("Resource", resource),
        Field("RequestId", request_id),
    ]
    return document("Error", fields, namespace="")


def refusal_of(error: S3Error, resource: str, request_id: str) -> Answer:
    """Return the answer that tells of a refusal of a request for `resource`."""
    headers = {"Content-Type": XML, **error.headers}
    if error.code is S3Code.SLOW_DOWN:
        headers["Retry-After"] = "1"
    return Answer(error.code.status, error_document(error, resource, request_id), headers)
