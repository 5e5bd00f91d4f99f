"""S3: from a signed request to a call of a client, and back to XML."""
