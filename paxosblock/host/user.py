"""The user who runs this program: the owner of what it creates."""

from __future__ import annotations

import functools
import getpass


@functools.cache
def current_user() -> str:
    """Return the user's name, "" when the system does not know it.

    It is looked up once: asking the system takes longer than a call to a NameNode.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
