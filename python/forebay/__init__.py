"""Simulated networks, and congestion control in them.

Runs the plans of forebay (``run``), on clusters, too (``sweep``), puts algorithms through its benchmark (``bench``),
finds where they are worst (``search``) and says what differs between two folders of results (``compare``). A congestion
control may be a class in Python (``algorithm``), which ``forebay.conformance`` holds to the rules of all. Figures are
those of the report (``forebay.charts``, with the extra ``charts``).

Everything is simulated: the same plan, seed and version give the same figures as ``forebay run --backend sim``, bit for
bit, and both take up each other's folders of results. What runs on real kernels is the ``forebay`` command's.
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

#: Modules that are imported once one of their names is used, for what they need of Python's own takes longest.
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
