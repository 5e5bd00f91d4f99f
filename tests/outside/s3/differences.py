"""Tests of versitygw that pass there and not at a gateway, on purpose: docs/s3.md has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.outside.comparison import Difference


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of end that many tests have, by what versitygw says of it."""

    word: str
    pattern: str
    """An expression that is in what it says."""
    why: str


KINDS: Final[tuple[Kind, ...]] = (
    Kind(
        "refused by name",
        r"NotImplemented|StatusCode: 501|\b(?:got|instad got) 501",
        "a gateway refuses by name what it lacks: policies, ACLs, object lock, ownership, versions,"
        " tags and CORS of buckets, websites",
    ),
    Kind(
        "other words",
        r"expected error message to be ",
        "code and status are the same, and the words of the refusal others",
    ),
    Kind(
        "needs users of versitygw",
        r"^exit status 1$",
        "the test makes users by versitygw's own calls for administrators",
    ),
    Kind(
        "unknown checksum",
        r"Checksum algorithm provided is unsupported",
        "a gateway knows CRC32, CRC32C, CRC64NVME, SHA1 and SHA256, and refuses MD5, SHA512 and"
        " XXHASH as checksums",
    ),
)

VERSITYGW_TESTS: Final[tuple[Difference, ...]] = (
    Difference(
        "where nothing proves who calls the cluster, each name is the id of a key",
        (
            "Authentication_credentials_non_existing_access_key",
            "PostObject_non_existing_access_key",
            "PresignedAuth_non_existing_access_key_id",
        ),
    ),
    Difference(
        "any region is taken for the one that is here",
        (
            "Authentication_credentials_incorrect_region",
            "CreateBucket_invalid_location_constraint",
            "PostObject_incorrect_region",
            "PresignedAuth_creds_incorrect_region",
        ),
    ),
    Difference("links of version 2 are taken", ("PresignedAuth_sigv2_not_supported",)),
    Difference(
        "the signature is looked at before anything else, so what is not signed is refused with"
        " AccessDenied whatever else is wrong",
        (
            "PostObject_invalid_content_type",
            "PostObject_invalid_policy_document",
            "PostObject_missing_boundary",
            "PostObject_partial_auth_fields",
            "PresignedAuth_security_token_with_permanent_credentials",
            "Router*",
        ),
    ),
    Difference(
        "the ETag is that of a state of a file, and no MD5",
        ("CompleteMultipartUpload_racey_data_integrity", "PutObject_success"),
    ),
    Difference(
        "no checksum is computed that nobody asked for",
        (
            "CompleteMultipartUpload_should_ignore_the_final_checksum",
            "CopyObject_to_itself_by_replacing_the_checksum",
            "ListParts_null_checksums",
            "PutObject_default_checksum",
            "UnsignedStreamingPayloadTrailer_no_trailer_should_calculate_crc64nvme",
        ),
    ),
    Difference(
        "the gateway computes the checksum of a part for which the program tells none, and looks at"
        " those of the algorithm of the upload alone",
        (
            "CompleteMultipartUpload_different_checksum_part",
            "CompleteMultipartUpload_missing_part_checksum",
            "CompleteMultipartUpload_multiple_checksum_part",
            "UnsignedStreamingPayloadTrailer_UploadPart_no_trailer_composite_checksum",
            "UploadPart_no_checksum_with_composite_checksum_type",
        ),
    ),
    Difference(
        "a key that ends with `/` is a directory, without bytes, headers, metadata, tags and"
        " checksums",
        (
            "CopyObject_non_existing_dir_object",
            "CreateMultipartUpload_dir_obj",
            "GetObject_dir_object_checksum",
            "GetObject_dir_with_range",
            "HeadObject_dir_with_range",
            "PutObject_dir_obj_with_data",
            "PutObject_dir_object_checksums_success",
            "PutObject_dir_object_default_checksum",
            "PutObject_tagging",
            "PutObject_with_metadata",
        ),
    ),
    Difference(
        "keys are paths of files, which are refused with InvalidArgument and ObjectParentIsObject",
        (
            "CopyObject_overwrite_same_dir_object",
            "CopyObject_overwrite_same_file_object",
            "DeleteObject_name_too_long",
            "PostObject_invalid_object_names",
            "PutObject_invalid_object_names",
            "PutObject_name_too_long",
            "PutObject_overwrite_*",
            "PutObject_with_slashes",
        ),
    ),
    Difference(
        "an object that came in parts has none: they were joined",
        ("GetObject_mp_part_number_success", "HeadObject_mp_part_number_success"),
    ),
    Difference(
        "of an object without bytes no range can be had, as in S3",
        ("GetObject_zero_len_with_range", "HeadObject_zero_len_with_range"),
    ),
    Difference(
        "the storage class STANDARD is not told in headers, as in S3",
        ("CopyObject_cross_bucket_server_side_copy", "GetObject_directory_success"),
    ),
    Difference(
        "lists have empty elements, as in S3, a token of their own for the next page, and do not"
        " tell checksums; one may begin behind an upload that is gone",
        (
            "ListMultipartUploads_invalid_uploadId_marker",
            "ListObjectsV2_both_start_after_and_continuation_token",
            "ListObjectsV2_list_all_objs",
            "ListObjects_list_all_objs",
            "ListParts_with_checksums",
        ),
    ),
    Difference(
        "pages that may ask are those of the setting `s3_cors_origins`; others hear AccessDenied",
        ("PreflightOPTIONS_*",),
    ),
    Difference(
        "what is wrong with a request is looked for in another order",
        (
            "CopyObject_invalid_checksum_algorithm",
            "CopyObject_invalid_copy_source",
            "GetObjectAttributes_non_existing_bucket",
            "GetObject_invalid_part_number",
            "HeadObject_invalid_part_number",
            "UploadPartCopy_invalid_copy_source",
            "UploadPartCopy_non_existing_bucket",
        ),
    ),
    Difference(
        "the refusal has another code, or lacks an element beside code and words",
        (
            "Authentication_unsupported_signature_version",
            "CompleteMultipartUpload_invalid_checksum_part",
            "CompleteMultipartUpload_invalid_final_composite_checksum",
            "CompleteMultipartUpload_invalid_part_number",
            "CopyObject_should_replace_tagging",
            "CreateMultipartUpload_with_tagging",
            "DeleteObjects_empty_input",
            "GetObjectAttributes_empty_attrs",
            "PostObject_signature_mismatch",
            "PutObjectTagging_invalid_tags",
            "Server_large_http_header",
            "SignedStreamingPayloadTrailer_missing_x_amz_trailer_header",
            "UploadPartCopy_exceeding_copy_source_range",
        ),
    ),
    Difference(
        "chunks of a body have any size",
        (
            "SignedStreamingPayload_invalid_chunk_size",
            "UnsignedStreamingPayloadTrailer_invalid_chunk_size",
        ),
    ),
    Difference(
        "a form is good until its policy ends, and its answer has no namespace, as in S3",
        ("PostObject_expired_due_to_date", "PostObject_success_status_201"),
    ),
    Difference(
        "metadata that a copy does not take are not looked at", ("CopyObject_long_metadata",)
    ),
    Difference(
        "a delete with a condition of size or time is refused by name, which ends the test",
        ("DeleteObject_conditional_writes",),
    ),
    Difference(
        "checksums of other algorithms, refused with InvalidRequest",
        (
            "PostObject_checksums_success",
            "PutObject_incorrect_checksums",
            "SignedStreamingPayloadTrailer_bad_digest",
        ),
    ),
)
BY_TIME: Final = frozenset(
    {
        "CopyObject_with_special_characters",
        "ListMultipartUploads_keyMarker_not_from_list",
        "PostObject_success_double_dash_boundary",
    }
)
"""Tests that pass or fail by chance: two read a body when they gave up the request, and one depends
on the order of ids that versitygw draws."""
