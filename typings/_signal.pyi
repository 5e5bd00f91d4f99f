# The built-in module behind `signal`, of which typeshed has nothing.
from collections.abc import Callable

SIGINT: int
SIG_DFL: int

def getsignal(number: int, /) -> object: ...
def signal(number: int, handler: int, /) -> object: ...

default_int_handler: Callable[..., object]
