"""Suites of others that speak WebHDFS, at a gateway and at HDFS's own server."""
