"""The work of a server before it starts, and what it refuses."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "from paxosblock.host.startup import refuse_optimized_python as refuse; refuse()"


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", PROGRAM]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("option", ["-O", "-OO"])
def test_a_server_does_not_start_without_its_assertions(option: str) -> None:
    refused = run(option)
    assert refused.returncode == 1
    assert "ConfigError: python -O and PYTHONOPTIMIZE switch off assertions" in refused.stderr


def test_a_server_starts_with_its_assertions() -> None:
    assert run().returncode == 0


@pytest.mark.parametrize("chosen", [None, "of-the-operator.pem"])
def test_a_server_imports_without_reading_certificates_and_leaves_no_trace(
    chosen: str | None,
) -> None:
    program = """
import gc, os, ssl
from paxosblock.host.startup import quick_imports
with quick_imports():
    print(gc.isenabled(), ssl.create_default_context().cert_store_stats()["x509"])
print(gc.isenabled(), os.environ.get("SSL_CERT_FILE"))
"""
    inherited = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    ran = subprocess.run(
        [sys.executable, "-c", program],
        env=inherited | ({"SSL_CERT_FILE": chosen} if chosen else {}),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert ran.stdout.splitlines() == ["False 0", f"True {chosen}"]


def test_a_command_looks_for_garbage_hardly_ever_and_not_at_its_end() -> None:
    """That took a quarter of the time of the short ones."""
    program = """
import gc, sys
from paxosblock.__main__ import main
looks = []
gc.callbacks.append(lambda phase, info: phase == "start" and looks.append(info["generation"]))
sys.argv[1:] = ["fs", "cat", "--help"]
try:
    main()
finally:
    print(looks, gc.get_freeze_count() > 10_000, gc.isenabled())
"""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.splitlines()[-1] == "[] True True"


def test_a_server_looks_seldom_and_leaves_out_what_it_began_with() -> None:
    program = """
import gc
from paxosblock.host.startup import collect_seldom
collect_seldom()
print(gc.get_threshold(), gc.get_freeze_count() > 1_000)
"""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout.split() == ["(20000,", "10,", "10)", "True"]


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="the C library is another one")
def test_what_a_gateway_frees_goes_back_to_the_system() -> None:
    """It kept more than a crowd had needed: freed buffers, with small ones in use between them."""
    program = """
from paxosblock.host.startup import return_freed_memory
return_freed_memory()
def resident_mib():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) >> 10
before, kept = resident_mib(), []
for _ in range(2):  # the first free tells the C library what is usual here
    crowd = []
    for _ in range(256):
        crowd.append(bytearray(b"x") * (512 << 10))
        kept.append(bytes(1000))
    crowd.clear()
print(resident_mib() - before)
"""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert int(ran.stdout) < 16


@pytest.mark.parametrize(
    ("started", "imported"),
    [
        ("exec(open('bin/paxosblock').read())", ""),
        ("import paxosblock.__main__", " __main__ base base.lazy"),
    ],
    ids=["the script", "python -m"],
)
def test_a_command_minds_ctrl_c_before_it_imports_anything_that_can_wait(
    repository: Path, started: str, imported: str
) -> None:
    """Ctrl-C before that shows a traceback of whatever import it comes into."""
    program = f"""
import os, sys, _signal
sys.path.insert(0, os.getcwd())
_signal.signal(_signal.SIGINT, _signal.default_int_handler)  # a background job ignores it
before = set(sys.modules)
def note(*arguments):
    print(*sorted(sys.modules.keys() - before), flush=True)
    os._exit(0)  # the rest of the command is not wanted
_signal.signal = note
{started}
"""
    command = [sys.executable, "-S", "-c", program]
    ran = subprocess.run(
        command, cwd=repository, capture_output=True, text=True, check=True, timeout=60
    )
    ours = [name.removeprefix("paxosblock.") for name in ran.stdout.split()]
    assert ours == (["__future__", "paxosblock", *imported.split()] if imported else [])
