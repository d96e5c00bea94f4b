"""Scenarios of environments: a plan, its agents, and the values that are drawn for each episode."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, TypedDict

import gymnasium
import numpy as np

from forebay import _forebay
from forebay.plans import Plan, Sets, pairs

PlanLike = Plan | str | os.PathLike[str] | Mapping[str, Any]


class Settings(TypedDict, total=False):
    """Options that make a plan a scenario. All have a default.

    Attributes:
        sets: Values to replace in the plan, as ``sets`` of ``forebay.Plan``. ``{"flow.web.cc": "learner"}`` makes flows
            agents.
        ranges: Values that are drawn for each episode, by dotted keys: ``{"bottleneck.rtt": "10ms..100ms"}``. With
            ``:log`` at the end they are uniform in the logarithm. Ranges are rates, times, packets (``"30p..300p"``),
            percentages or numbers. An episode has one cell of the plan's grid. Values that the cell sets stay.
        reward: The reward of a decision: a name in ``REWARDS``. ``power`` (default) is log2 of the segments delivered per
            second, less log2 of the mean round trip over the smallest one. ``aurora`` and ``orca`` follow their papers
            (Jay et al., ICML 2019; Abbasloo et al., SIGCOMM 2020). For another reward, wrap the environment and use
            ``info["outcome"]``, or ``outcomes`` of many environments.
        learner: The agent that replaces ``aut`` in a plan: ``"learner"`` (default), or with parameters
            ``"learner(history=4, steers=rate)"``. ``history`` is 1 to 64 rows (10), and ``steers`` is ``cwnd`` (the window)
            or ``rate`` (the pacing rate).
        arm: Name of the arm of the plan. Default: the first.
    """

    sets: Sets
    ranges: Mapping[str, str]
    reward: str
    learner: str
    arm: str | None


def scenario(
    plan: PlanLike,
    *,
    sets: Sets | None = None,
    ranges: Mapping[str, str] | None = None,
    reward: str = "power",
    learner: str = "learner",
    arm: str | None = None,
) -> _forebay.Scenario:
    """The scenario of a plan; see ``Settings``."""
    given: _forebay.Plan | tuple[str, str] | str
    if isinstance(plan, Plan):
        given = plan._native
    elif isinstance(plan, Mapping):
        given = (json.dumps(plan, allow_nan=False), os.getcwd())
    else:
        given = os.fspath(plan)
    asked = {
        "learner": learner,
        "arm": arm,
        "sets": pairs(sets),
        "ranges": [f"{key}={low_high}" for key, low_high in (ranges or {}).items()],
        "reward": reward,
    }
    return _forebay.Scenario.of(given, asked)


def spaces(scenario: _forebay.Scenario) -> tuple[gymnasium.spaces.Box[Any], gymnasium.spaces.Box[Any]]:
    """The observation and action spaces of an agent."""
    lows = [low for _, low, _ in _forebay.FEATURES] + [0.0] * len(_forebay.FEATURES)
    highs = [high for _, _, high in _forebay.FEATURES] + [1.0] * len(_forebay.FEATURES)
    low, high = (np.tile(np.array(row, np.float32), (scenario.history, 1)) for row in (lows, highs))
    return gymnasium.spaces.Box(low, high, dtype=np.float32), gymnasium.spaces.Box(-1, 1, (1,), np.float32)
