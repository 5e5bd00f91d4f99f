"""The user who runs this program."""

from __future__ import annotations

import functools
import getpass
import os
from typing import Final

HADOOP_USER_NAME: Final = "HADOOP_USER_NAME"
"""The variable by which programs of Hadoop say which user they act for."""


@functools.cache
def current_user() -> str:
    """Return the user's name; the user's number when the system knows no name.

    It is looked up once: asking the system takes longer than a call to a NameNode.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def claimed_user() -> str:
    """Return the name by which this process calls nodes, as HDFS's clients choose it."""
    return os.environ.get(HADOOP_USER_NAME) or current_user()
