"""The user who runs this program."""

from __future__ import annotations

import functools
import getpass
import grp
import os
import pwd
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


def name_of_user(number: int) -> str:
    """Return the name of a user of this machine; the number when the system knows no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def name_of_group(number: int) -> str:
    """Return the name of a group of this machine; the number when the system knows no name."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
