"""Write docs/s3.md: `make generate`.

The table of operations is made from the functions that answer them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from paxosblock.gateway.s3.s3_door import OPERATIONS
from paxosblock.gateway.s3.s3_errors import S3Code
from paxosblock.gateway.s3.s3_operation_table import LACKING, LACKING_HEADERS, S3Operation
from tests.make_api import REPOSITORY
from tests.outside.s3.differences import KINDS, VERSITYGW_TESTS

PAGE: Final = REPOSITORY / "docs" / "s3.md"

HEAD: Final = """# S3

Made by `make generate` from the code; a test compares them.

A *gateway* speaks S3, so programs for object stores come in unmodified. A bucket is a directory, an
object is a file, a key is the path of the file below its bucket: `s3://data/x`,
`webhdfs:///data/x` and `paxosblock fs cat /data/x` are one file, at once.

```console
$ paxosblock cluster up                  # it prints the variables of your key
$ eval "$(paxosblock admin s3-key)"      # so does this; here they are put into this shell
$ aws --endpoint-url http://127.0.0.1:9878 s3 mb s3://data
$ aws --endpoint-url http://127.0.0.1:9878 s3 cp notes.txt s3://data/notes.txt
$ paxosblock fs cat /data/notes.txt
$ paxosblock gateway --namenodes 127.0.0.1:9870 --s3-listen 127.0.0.1:9900   # one more, anywhere
```

Programs that know `AWS_ENDPOINT_URL` need no `--endpoint-url`: it is one of the variables.

```python
import boto3

s3 = boto3.client("s3", endpoint_url="http://127.0.0.1:9878")   # keys: from the environment
s3.put_object(Bucket="data", Key="a/b", Body=b"hello", IfNoneMatch="*")
```

```python
from pyarrow.fs import S3FileSystem

fs = S3FileSystem(endpoint_override="127.0.0.1:9878", scheme="http", region="us-east-1")
fs.copy_file("data/a/b", "data/a/c")
```

A gateway keeps nothing: start as many as you like. Its settings are `[gateway]` in
[settings.md](settings.md): `s3_root` is the directory whose directories are the buckets,
`s3_domain` lets programs name the bucket in the host (`data.s3.example.org`); otherwise it stands
in the path.

## Keys

Each request is signed with an access key, and is made as the user whose key it is; the NameNodes
check it as any other ([security.md](security.md)).

* Where nothing proves who calls the cluster, as on one machine, the id of a key is the name of a
  user, and the secret is the word `paxosblock`. The name is believed, as everywhere in such a
  cluster.
* Where the cluster has an [access secret](operations.md#the-access-secret), `paxosblock admin
  s3-key` makes keys with it. The id of a key says its user, its end, and whether it is good for one
  bucket only or only to read; the secret is an HMAC of the id. No list of keys is kept: each
  gateway that has the access secret (`access_file` in `[client]`) knows the secret of each key.
  `paxosblock admin s3-key --revoke ID` ends one earlier, within five seconds.
* A cluster with certificates and without an access secret has no keys of S3, as there is nothing to
  make their secrets of.
* Requests that are not signed are refused, unless `s3_anonymous = true`: they are those of the user
  `nobody` then.
* A page in a browser gets nothing, unless `s3_cors_origins` names its origin: then `OPTIONS` is
  answered for it (CORS), it may read what is answered, and its forms are taken (`PostObject`). A
  form is signed by its policy, of version 4 or 2, such as boto3's `generate_presigned_post` makes.
  A policy needs a condition for the bucket and for each field, as in S3.

Signatures are those of version 4 in a header or in the query, with bodies whole, in signed chunks
or unsigned, for any region; and links of version 2, which boto3 makes unless it is told otherwise.
The clocks of a program and of the gateway may differ by 15 minutes. With
[`https_cert`](webhdfs.md#who-asks) the door speaks TLS and nothing else; without it a gateway
listens beyond its machine only with `--insecure`, and a proxy before it may speak TLS.

## Objects

* An object is there, whole, when all its bytes came with the right checksums, or not at all. Until
  then, and if the request breaks off or the gateway is killed, the old one is there.
* `If-None-Match: *` and `If-Match` of a write, and `If-Match` of a delete, are decided in the same
  change that makes or deletes the object: of all programs that try at once, at any number of
  gateways, one wins, and the others get `412 PreconditionFailed`. After a connection that broke off
  in the answer, a program that asks again may get 412 although it won, as with S3 itself.
* The ETag names one state of one file, and no other state ever has it. It is no MD5, and ends with
  `-1` so that programs know that. A file that came through another door has one, too.
* `GetObject` answers when the first bytes came: of an object that is replaced until then it sends
  the new one. A longer one that is replaced or deleted while it is sent may lose its blocks before
  they are read: the connection is cut then, short of the `Content-Length`, which programs report as
  an error. They ask again, with `If-Match` where the bytes must be of the object that they began
  with. No answer has bytes of two objects.
* `x-amz-expected-bucket-owner`, and that of a source, is compared with the user who owns the
  directory of the bucket: `AccessDenied` if it is another one.
* A file that another door is writing is no object until it is closed.
* Keys are paths: no part between slashes is empty, `.`, `..` or longer than 255 bytes
  (`InvalidArgument`), and a key has no keys below it (`ObjectParentIsObject`).
* A key that ends with `/` is a directory, and has no bytes, no headers or metadata, and no tags. A
  list shows each directory that a program asked for, through any door. With the last object below a
  prefix its directories go, but for those that a program asked for. To delete the key of one with
  objects below it takes that back: they stay, and it goes with the last of them. So of a directory
  whose keys are all deleted, in any order, nothing is left.
* Lists are in the order of bytes, each page as it was at one moment.
* Checksums that a program sends (CRC32, CRC32C, CRC64NVME, SHA-1, SHA-256, MD5) are compared before
  the object is made, and kept; CRC64NVME needs `pip install 'paxosblock[s3]'` at the gateway.
* Parts of a multipart upload may go to any gateways, in any order, and again. To complete it copies
  no byte, and one change makes the object, with the same conditions; asked again after a lost
  answer, or while it is under way, it answers the same. Each part but the last has 5 MiB at least,
  and an object at most 10,000 parts. Of more than 2,000 (or of more blocks) the first are joined
  before, and no part of them is shown: if the gateway is killed then, any goes on with it when it
  is asked to complete the same parts, and refuses others (`InvalidPart`). An upload that is not
  completed is deleted with its parts a week after its beginning.
* Tags of an object (`x-amz-tagging`, `PutObjectTagging`) are kept beside its headers, at most ten;
  to change them makes no other object, and a copy takes them along unless it names others.
* `CopyObject` and `UploadPartCopy` read and write the bytes at the gateway. An object that is
  copied onto itself gets other metadata, and no byte is read.
"""

OPERATIONS_HEAD: Final = """## Operations

| operation | request | what it does |
|---|---|---|"""

LACKING_HEAD: Final = """
Refused by name with `501 NotImplemented`, and nothing is done:

| asked for by | what a gateway lacks |
|---|---|"""

DIFFERENCES_HEAD: Final = """
## Beside versitygw

`python -m tests.outside.s3` runs the tests that versitygw has for itself at a gateway, and at
versitygw on a folder, which Go builds from its sources. What passes there passes here, but for
these kinds of ends:

| the test ends with | why |
|---|---|"""

ON_PURPOSE_HEAD: Final = """
And but on purpose:

| what differs | tests |
|---|---|"""

ERRORS_HEAD: Final = """
## Refusals

They have S3's XML: `<Error>` with `Code`, `Message`, `Resource` and `RequestId`.

| code | status |
|---|---|"""


def page() -> str:
    """Return the page."""
    parts = _operations(), _lacking(), _beside(), _refusals()
    return "\n".join([HEAD, OPERATIONS_HEAD, *itertools.chain(*parts), ""])


def _operations() -> Iterator[str]:
    for each in sorted(OPERATIONS.values(), key=lambda each: each.name):
        words = " ".join((each.run.__doc__ or "").split())
        yield f"| {each.name} | `{_request(each)}` | {words} |"


def _request(operation: S3Operation) -> str:
    path = {"service": "/", "bucket": "/BUCKET", "object": "/BUCKET/KEY"}[operation.level.value]
    query = f"?{operation.parameter}" if operation.parameter else ""
    copied = ", x-amz-copy-source" if operation.copies else ""
    return f"{operation.verb} {path}{query}{copied}"


def _lacking() -> Iterator[str]:
    yield LACKING_HEAD
    for parameter, words in sorted(LACKING.items()):
        done = sorted(each.name for each in OPERATIONS.values() if each.parameter == parameter)
        but = f" (there is {', '.join(done)})" if done else ""
        yield f"| `?{parameter}` | {words}{but} |"
    for header in LACKING_HEADERS:
        yield f"| `{header}` | what it asks for |"
    yield "| `x-amz-acl` | all but `private` and `bucket-owner-full-control` |"
    yield "| `x-amz-bucket-object-lock-enabled` | object lock |"
    yield "| `x-amz-object-ownership` | all but `BucketOwnerEnforced` |"


def _beside() -> Iterator[str]:
    yield DIFFERENCES_HEAD
    yield from (f"| {kind.word} | {kind.why} |" for kind in KINDS)
    yield ON_PURPOSE_HEAD
    for each in VERSITYGW_TESTS:
        yield f"| {each.why} | {', '.join(f'`{test}`' for test in each.tests)} |"


def _refusals() -> Iterator[str]:
    yield ERRORS_HEAD
    for code in sorted(S3Code, key=lambda code: (code.status, code.word)):
        yield f"| `{code.word}` | {int(code.status)} |"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
