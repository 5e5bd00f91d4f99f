"""Names that are imported when they are first used (PEP 562).

`import paxosblock` must stay light: `paxosblock --help` should not pay for a network stack.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = (
    False  # `typing` and `collections` take longer than all else that a command begins with
)
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def lazy_names(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return a module-level `__getattr__` and `__dir__` for `package`.

    `homes` maps each public name to the full name of the module that defines it. Asking for any
    other name raises AttributeError, as a plain module would.
    """

    def get(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module  # noqa: PLC0415 - see above

        return getattr(import_module(home), name)

    return get, lambda: sorted({*vars(sys.modules[package]), *homes})
