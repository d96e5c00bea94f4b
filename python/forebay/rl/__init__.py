"""Plans as environments in which congestion control is learnt, and what was learnt as a file.

An environment is a plan in the simulator, which stands still while an agent decides: once a mean round trip, 10 ms to
1 s apart. Agents are flows and bundles. ``make`` gives one environment with one agent (Gymnasium), ``make_vec`` many of
them on threads in Rust, ``make_parallel`` one with several agents (PettingZoo). ``gymnasium.make`` and
``gymnasium.make_vec`` know the first two as ``forebay/Plan-v0``. The extra ``rl`` brings both libraries.

Observations are float32 of shape ``(history, 14)``, the newest row last: the seven values of ``FEATURES``, each without
a scale and within its bounds, and behind them for each a 1 where it is known and a 0 where it is not. Rows before the
first decision are 0. Actions are float32 of shape ``(1,)``, -1 to 1: the window or rate is multiplied by 2 to the power
of it. The end of a plan's time is a truncation; nothing terminates.

An episode depends on its scenario, its seed and the actions alone, byte for byte, on however many threads.

All three take a plan, or what ``forebay.Plan`` takes; there the plan may name the algorithm ``learner``, too. They have
the keyword arguments of ``Settings``, and raise

- ``forebay.PlanError`` where the plan cannot be used,
- ``forebay.InputError`` where another argument is wrong or nobody decides,
- ``forebay.RunError`` where a simulation fails, and whatever an algorithm in Python that takes part in it raises.

``export`` writes layers of numpy as the file that the algorithm ``policy`` decides by (extra ``onnx``), ``Policy``
evaluates such a file, and ``evolve`` is a learner that needs numpy alone.
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
    """So many environments of a plan with one agent, stepped together.

    Args:
        num_envs: How many.
        plan: The plan.
        threads: Threads that step them, started once. Default: one for each processor. Nothing but the time depends on
            them.
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
