"""The base class that HdfsCLI's tests import as `test.util`, which its archive lacks."""

from __future__ import annotations

import itertools
import os
import posixpath
from typing import Any

from hdfs import InsecureClient


class _IntegrationTest:
    """A client at the server of `HDFSCLI_TEST_URL`, and an empty directory for each test."""

    client: Any = None
    _tests = itertools.count()

    @classmethod
    def setup_class(cls) -> None:
        url, user = os.environ["HDFSCLI_TEST_URL"], os.environ["HDFSCLI_TEST_USER"]
        cls.client = InsecureClient(url, user=user, root=posixpath.join("/", cls.__name__))

    def setup_method(self) -> None:
        if self.client is not None:  # a class without one has said that its subject is lacking
            # The one before stays, as a snapshot may be left in it.
            self.client.root = f"/{type(self).__name__}/{next(self._tests)}"
            self.client._mkdirs("")

    def _read(self, path: str, encoding: str | None = None) -> Any:
        with self.client.read(path, encoding=encoding) as reader:
            return reader.read()

    def _write(self, path: str, data: Any, encoding: str | None = None) -> None:
        self.client.write(path, data, encoding=encoding)

    def _exists(self, path: str) -> bool:
        return self.client.status(path, strict=False) is not None
