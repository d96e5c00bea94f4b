"""Sweeps of a plan from the command line, also for ``forebay run --engine``: ``python3 -m forebay.sweeps --help``."""

from __future__ import annotations

import argparse
import sys
import tomllib
from typing import Any

from forebay import _forebay
from forebay.errors import Error, InputError
from forebay.plans import Plan
from forebay.sweeps import sweep


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python3 -m forebay.sweeps",
        description="Simulates the runs of a plan that a folder or bucket does not have, and stores their rows there.",
    )
    parser.add_argument("plan", help="path of a file, or a name such as bundler/main")
    parser.add_argument("--on", default="threads", help="threads, processes, ray or ray://HOST:PORT")
    parser.add_argument("--seeds", help="seeds instead of the plan's, both ends included: 1..1000")
    parser.add_argument("--arms", type=lambda it: it.split(","), help="only these arms: a,b")
    parser.add_argument("--set", action="append", default=[], help="override a value: KEY=VALUE")
    parser.add_argument("--as-published", action="store_true", help="with the settings of the published experiment")
    parser.add_argument("--jobs", type=int, help="runs at a time; default: one per processor")
    parser.add_argument("--out", help="folder, or a URI such as s3://bucket/folder")
    parser.add_argument("--store", metavar="DIR", help="add the runs to the store of this folder, too")
    parser.add_argument("--over-time", action="store_true", help="keep quantities over time, too")
    parser.add_argument("--sources", help="digest of the sources that the simulator must be built from")
    return parser.parse_args()


def _set(text: str) -> tuple[str, Any]:
    key, is_there, value = text.partition("=")
    if not is_there:
        raise InputError(f"--set {text}: allowed is KEY=VALUE")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _run(arguments: argparse.Namespace) -> bool:
    """Whether every run is valid; always true with a store, where the caller checks that."""
    if arguments.sources not in (None, _forebay.SOURCES):
        here = f"the package forebay of {sys.executable} has commit {_forebay.COMMIT}"
        raise InputError(f"{here}: allowed is the commit of the program")
    sets = dict(map(_set, arguments.set))
    plan = Plan(arguments.plan, sets, as_published=arguments.as_published)
    if arguments.arms:
        plan = plan.with_arms(arguments.arms)
    how = {name: getattr(arguments, name) for name in ("on", "jobs", "over_time")}
    made = sweep(plan, arguments.seeds, arguments.out, **how)
    if arguments.store:
        made.store(arguments.store)
        return True
    print(made)
    return made.valid


def main() -> None:
    """Exit code 2: an argument is wrong; 1: another error, or a run is not valid."""
    try:
        code = 0 if _run(_parsed()) else 1
    except ModuleNotFoundError as error:
        code = _told(f"{error}: allowed is the package with its extra data, or ray", 1)
    except Error as error:
        code = _told(str(error), 2 if isinstance(error, InputError) else 1)
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)


def _told(error: str, code: int) -> int:
    print(f"error: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
