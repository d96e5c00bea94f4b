"""Plans as environments for learning congestion control, and learnt policies as files.

An environment is a plan in the simulator. The simulation pauses while an agent decides, once per mean round trip, at
intervals of 10 ms to 1 s. Agents are flows and bundles. ``make`` makes one environment with one agent (Gymnasium),
``make_vec`` many environments on threads in Rust, and ``make_parallel`` one with several agents (PettingZoo).
``gymnasium.make`` and ``gymnasium.make_vec`` know the first two as ``forebay/Plan-v0``. The extra ``rl`` installs both
libraries.

Observations are float32 of shape ``(history, 14)``, with the newest row last. A row has the seven values of ``FEATURES``,
dimensionless and within their bounds. After them follows a 1 for each known value and a 0 for each unknown one. Rows
before the first decision are 0. The values describe the time since the last decision:

- ``delivery_share``: delivery rate over send rate;
- ``queueing``: mean round trip over the minimum, minus 1;
- ``rtt_slope``: growth of the mean round trip over the row's time;
- ``loss``: bytes lost over bytes acknowledged or lost;
- ``marked``: bytes marked CE over bytes acknowledged;
- ``in_flight``: bytes in flight over the window;
- ``log_rate``: log2 of the segments delivered in a minimum round trip, over 10.

Actions ``a`` are float32 of shape ``(1,)``, -1 to 1, and multiply the window or rate by ``2**a``. A window that is less
than half full does not grow, and the least window is two segments. The end of a plan's time is a truncation; nothing
terminates.

An episode depends only on its scenario, its seed and the actions, byte for byte, for any number of threads.

All three functions take a plan or an argument of ``forebay.Plan``. The plan may also name the algorithm ``learner``. Their
keyword arguments are those in ``Settings``. They raise

- ``forebay.PlanError`` if the plan is invalid,
- ``forebay.InputError`` if another argument is wrong or the plan has no agent,
- ``forebay.RunError`` if a simulation fails, and the exceptions of algorithms in Python that take part.

``export`` writes numpy layers as a file for the algorithm ``policy`` (extra ``onnx``). ``Policy`` evaluates such a file.
``evolve`` is a learner that needs only numpy.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Unpack

import gymnasium

from forebay._forebay import FEATURES, REWARDS, Outcome
from forebay.rl.environments import Env, VectorEnv
from forebay.rl.evolution import evolve
from forebay.rl.policies import Layer, Policy, export
from forebay.rl.scenarios import PlanLike, Settings, scenario

if TYPE_CHECKING:
    from forebay.rl.parallel import ParallelEnv

__all__ = [
    "FEATURES",
    "REWARDS",
    "Env",
    "Layer",
    "Outcome",
    "Policy",
    "Settings",
    "VectorEnv",
    "evolve",
    "export",
    "make",
    "make_parallel",
    "make_vec",
]


def make(plan: PlanLike, **settings: Unpack[Settings]) -> Env:
    """The environment of a plan with one agent."""
    return Env(scenario(plan, **settings))


def make_vec(
    num_envs: int, plan: PlanLike, *, threads: int | None = None, **settings: Unpack[Settings]
) -> VectorEnv:
    """Several environments of a plan with one agent, stepped together.

    Args:
        num_envs: Number of environments.
        plan: The plan.
        threads: Threads that step the environments, started once. Default: one per processor. They change only the time
            that a step takes.
    """
    if threads is None:
        threads = os.cpu_count() or 1
    return VectorEnv(scenario(plan, **settings), num_envs, threads)


def make_parallel(plan: PlanLike, **settings: Unpack[Settings]) -> ParallelEnv:
    """The environment of a plan with any number of agents."""
    from forebay.rl.parallel import ParallelEnv

    return ParallelEnv(scenario(plan, **settings))


gymnasium.register(
    "forebay/Plan-v0", entry_point="forebay.rl:make", vector_entry_point="forebay.rl:make_vec"
)
