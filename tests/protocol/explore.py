"""`python -m tests.protocol.explore`: every reachable state of the larger configurations."""

from __future__ import annotations

import argparse
import sys

from tests.protocol.configurations import CI, LARGE
from tests.protocol.explorer import Result, explore
from tests.protocol.faults import FAULTS
from tests.protocol.world import Config


def main() -> int:
    """Run what was asked for, print a row for each; 1 when a fault was found."""
    arguments = _parser().parse_args()
    configs = {**CI, **LARGE}
    if arguments.fault:
        return _show_fault(arguments.fault)
    names = arguments.only or list(configs)
    if arguments.list:
        for name in names:
            _print(f"{name:26} {configs[name][0].meaning}")
        return 0
    _print("| run | meaning | states | depth | s | rules fired |\n|---|---|---|---|---|---|")
    faults = 0
    for name in names:
        config, pinned = configs[name]
        result = explore(config)
        _print(row(name, config, result))
        if result.states != pinned:
            _print(f"{result.states} states in {name}, {pinned} are pinned (configurations.py)")
        faults += not is_clean(config, result) or result.states != pinned
    return min(faults, 1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.protocol.explore", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="this one (repeatable)")
    parser.add_argument("--list", action="store_true", help="name the configurations")
    parser.add_argument("--fault", choices=FAULTS, help="plant this fault and print its trace")
    return parser


def _show_fault(name: str) -> int:
    """Plant one fault and tell how it was found."""
    fault = FAULTS[name]
    setattr(fault.owner, fault.name, fault.wrong)
    result = explore(fault.config)
    _print(row(name, fault.config, result))
    return 0 if result.fault else 1


def silent_rules(config: Config, result: Result) -> tuple[str, ...]:
    """Rules that the configuration is meant to reach and did not."""
    return tuple(rule for rule in config.must_fire if not result.fired[rule])


def is_clean(config: Config, result: Result) -> bool:
    """No fault, nothing left unvisited, every intended rule reached."""
    return result.fault is None and result.complete and not silent_rules(config, result)


def row(name: str, config: Config, result: Result) -> str:
    """The run as one line of a Markdown table, and its trace if it found a fault."""
    fired = " ".join(f"{rule}:{count}" for rule, count in sorted(result.fired.items()))
    line = (
        f"| {name} | {config.meaning} | {result.states} | {result.depth} "
        f"| {result.seconds:.1f} | {fired} |"
    )
    if silent := silent_rules(config, result):
        line += f"\nNEVER FIRED in {name}: {' '.join(silent)}"
    if result.fault:
        line += f"\nFAULT in {name}: {result.fault}\n" + "\n".join(
            f"{number:3} {step}" for number, step in enumerate(result.trace, 1)
        )
    return line


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
