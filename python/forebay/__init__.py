"""Simulated networks, and congestion control in them.

``run`` runs a plan, and ``sweep`` runs it on many threads, processes or machines. ``bench`` runs algorithms through the
benchmark, ``search`` finds the path where an algorithm is worst, and ``compare`` lists the significant differences between
two folders of results. ``algorithm`` makes a class in Python an algorithm, and ``forebay.conformance`` tests it against the
rules of all algorithms. ``forebay.charts`` gives the figures of a report (extra ``charts``).

Everything is simulated. The same plan, seed and version give the same figures as ``forebay run --backend sim``, bit for
bit, and both can use each other's folders of results. Only the ``forebay`` command runs plans on real kernels.
"""

from forebay._forebay import COMMIT, Limits, Measurement, Start
from forebay._forebay import VERSION as __version__

# Type checkers treat this name as true. Importing the module `typing` takes longer than importing the
# simulator.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from forebay import charts, conformance, rl
    from forebay.algorithms import Param, algorithm
    from forebay.errors import CallbackTimeout, Error, InputError, PlanError, RunError
    from forebay.experiments import Benchmark, Comparison, bench, compare, run, search
    from forebay.keys import PlanKeys
    from forebay.plans import Plan
    from forebay.results import Result, Table, load
    from forebay.sweeps import Sweep, sweep

__all__ = [
    "COMMIT",
    "Benchmark",
    "CallbackTimeout",
    "Comparison",
    "Error",
    "InputError",
    "Limits",
    "Measurement",
    "Param",
    "Plan",
    "PlanError",
    "PlanKeys",
    "Result",
    "RunError",
    "Start",
    "Sweep",
    "Table",
    "__version__",
    "algorithm",
    "bench",
    "charts",
    "compare",
    "conformance",
    "load",
    "rl",
    "run",
    "search",
    "sweep",
]

#: Modules that are imported when one of their names is first used: their own imports take most of the import time.
_HOMES: dict[str, tuple[str, ...]] = {
    "charts": (),
    "conformance": (),
    "rl": (),
    "algorithms": ("Param", "algorithm"),
    "errors": ("CallbackTimeout", "Error", "InputError", "PlanError", "RunError"),
    "experiments": ("Benchmark", "Comparison", "bench", "compare", "run", "search"),
    "keys": ("PlanKeys",),
    "plans": ("Plan",),
    "results": ("Result", "Table", "load"),
    "sweeps": ("Sweep", "sweep"),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names or name == home:
            module = import_module(f"forebay.{home}")
            if name == home:
                return module
            globals()[name] = value = getattr(module, name)
            return value
    raise AttributeError(f"module 'forebay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_HOMES})
