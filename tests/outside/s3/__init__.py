"""A suite of others that speaks S3, at a gateway and at a server of theirs."""
