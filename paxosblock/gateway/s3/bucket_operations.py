"""Operations of S3 on buckets."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.transaction import AssertAbsent, MakeDirectory
from paxosblock.errors import DirectoryNotEmptyError, ExistsError, NotFoundError
from paxosblock.gateway.exchange import Answer
from paxosblock.gateway.s3.object_facts import owner, xml_time
from paxosblock.gateway.s3.request_documents import body_of, root_of
from paxosblock.gateway.s3.s3_call import S3Call, answered, is_bucket_name
from paxosblock.gateway.s3.s3_errors import S3Code, S3Error, no_such_bucket, not_implemented
from paxosblock.gateway.s3.s3_operation_table import Level, s3_operation
from paxosblock.gateway.s3.s3_xml import Field

REGION: Final = "us-east-1"


@s3_operation("ListBuckets", "GET", Level.SERVICE)
async def list_buckets(call: S3Call) -> Answer:
    """Show the buckets: the directories of the root whose names a bucket can have."""
    prefix = call.parameter("prefix")
    most = call.number("max-buckets", 10_000, least=1, most=10_000)
    after, more, shown = call.parameter("continuation-token"), "", list[FileStatus]()
    pages = call.fs.pages(call.root or "/", after, one_state=False)
    async for page in pages:
        found = (each for each in page.entries if _is_shown(call, each, prefix))
        shown += found
        if len(shown) > most:
            shown = shown[:most]
            more = shown[-1].name
            break
    buckets = [
        Field(
            "Bucket",
            [
                Field("Name", each.name),
                Field("CreationDate", xml_time(each.created_s)),
                Field("BucketRegion", REGION),
            ],
        )
        for each in shown
    ]
    user = call.signed.key.user
    fields = [
        Field("Owner", [Field("ID", user), Field("DisplayName", user)]),
        Field("Buckets", buckets),
        *([Field("ContinuationToken", more)] if more else []),
        *([Field("Prefix", prefix)] if prefix else []),
    ]
    return answered("ListAllMyBucketsResult", fields)


def _is_shown(call: S3Call, entry: FileStatus, prefix: str) -> bool:
    only = call.signed.key.bucket
    return (
        entry.kind is Kind.DIRECTORY
        and is_bucket_name(entry.name)
        and entry.name.startswith(prefix)
        and only in ("", entry.name)
    )


@s3_operation("CreateBucket", "PUT", Level.BUCKET, changes=True)
async def create_bucket(call: S3Call) -> Answer:
    """Make a bucket, a directory. A region that the program names is taken for the one that is
    here."""
    await _check_configuration(call)
    path = call.bucket_path()
    try:
        await call.fs.transact([AssertAbsent(path), MakeDirectory(path)])
    except ExistsError:
        words = "Your previous request to create the named bucket succeeded and you already own it."
        raise S3Error(S3Code.BUCKET_EXISTS, words, BucketName=call.bucket) from None
    arn = f"arn:aws:s3:::{call.bucket}"
    return Answer(HTTPStatus.OK, b"", {"Location": f"/{call.bucket}", "x-amz-bucket-arn": arn})


async def _check_configuration(call: S3Call) -> None:
    body = await body_of(call)
    if not body:
        return
    if root_of(body, "CreateBucketConfiguration").find("Tags") is not None:
        raise not_implemented("tags of buckets")


@s3_operation("HeadBucket", "HEAD", Level.BUCKET)
async def head_bucket(call: S3Call) -> Answer:
    """Tell that a bucket is there."""
    await call.bucket_status()
    return Answer(HTTPStatus.OK, b"", {"x-amz-bucket-region": REGION})


@s3_operation("DeleteBucket", "DELETE", Level.BUCKET, changes=True)
async def delete_bucket(call: S3Call) -> Answer:
    """Delete a bucket in which there is no object. Directories that a program asked for,
    through any door, are objects."""
    await call.bucket_status()
    try:
        try:
            await call.fs.delete(call.bucket_path())
        except DirectoryNotEmptyError:
            await _delete_empty_ones(call)
            await call.fs.delete(call.bucket_path())
    except DirectoryNotEmptyError:
        words = "The bucket you tried to delete is not empty"
        raise S3Error(S3Code.BUCKET_NOT_EMPTY, words, BucketName=call.bucket) from None
    except NotFoundError:
        raise no_such_bucket() from None
    return Answer(HTTPStatus.NO_CONTENT)


async def _delete_empty_ones(call: S3Call) -> None:
    """Delete the directories of a bucket without any key: they were there for keys that are gone.

    Each is deleted only while it is empty, so that what is written meanwhile stays.
    """
    path = call.bucket_path()
    if (await call.fs.list_keys(path, limit=1)).keys:
        raise DirectoryNotEmptyError("there is a key")
    below = [each.path async for each in call.fs.walk(path) if each.kind is Kind.DIRECTORY]
    for each in reversed(below):
        await call.fs.delete(each)


@s3_operation("GetBucketLocation", "GET", Level.BUCKET, "location")
async def get_bucket_location(call: S3Call) -> Answer:
    """Tell the region, which is us-east-1, whatever a program signs for."""
    await call.bucket_status()
    return answered("LocationConstraint", [])


@s3_operation("GetBucketVersioning", "GET", Level.BUCKET, "versioning")
async def get_bucket_versioning(call: S3Call) -> Answer:
    """Tell that no versions are kept."""
    await call.bucket_status()
    return answered("VersioningConfiguration", [])


@s3_operation("GetBucketAcl", "GET", Level.BUCKET, "acl")
async def get_bucket_acl(call: S3Call) -> Answer:
    """Tell the owner, who may do everything; the rest is in the permissions of the directory."""
    return acl_of_owner(await call.bucket_status())


def acl_of_owner(status: FileStatus) -> Answer:
    """Return the answer that gives the owner all."""
    xsi = "http://www.w3.org/2001/XMLSchema-instance"
    grantee = (
        f'<Grantee xmlns:xsi="{xsi}" xsi:type="CanonicalUser">'
        f"{Field('ID', status.owner).written()}{Field('DisplayName', status.owner).written()}"
        "</Grantee>"
    )
    answer = answered(
        "AccessControlPolicy",
        [
            owner(status),
            Field("AccessControlList", [Field("Grant", [Field("Permission", "FULL_CONTROL")])]),
        ],
    )
    assert isinstance(answer.body, bytes), "it is a document"
    answer.body = answer.body.replace(b"<Grant>", b"<Grant>" + grantee.encode())
    return answer
