"""The log that the catalog's journal and the small replicas share: bytes, files, mark."""
