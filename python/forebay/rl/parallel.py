"""Environments of several agents, for PettingZoo."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
import pettingzoo

from forebay import _forebay
from forebay.errors import InputError
from forebay.rl.scenarios import spaces

_Floats = np.ndarray[Any, np.dtype[np.float32]]
_Infos = dict[str, dict[str, Any]]


class ParallelEnv(pettingzoo.ParallelEnv[str, _Floats, _Floats]):  # type: ignore[misc]
    """An environment whose agents are flows and bundles, made by ``make_parallel``.

    Each agent decides once per round trip of its own. A step continues to the next decision of any agent. In ``infos``,
    ``waits`` says whether an agent decides now. The environment ignores actions of the other agents, and their rewards are
    0. A waiting agent without an action keeps its window or rate. At the end of the episode all agents have a reward and
    are truncated. ``outcome`` covers the time between the agent's last two decisions, and ``now_ns`` is the time in the
    episode.

    Bundles are the first agents, with their names in the plan. Flows with a count have a number after their name.
    """

    metadata: dict[str, Any] = {"render_modes": [], "name": "forebay_plan_v0"}

    def __init__(self, scenario: _forebay.Scenario) -> None:
        self.possible_agents = scenario.agents
        self.agents: list[str] = []
        of_observations, of_actions = spaces(scenario)
        self.observation_spaces = dict.fromkeys(self.possible_agents, of_observations)
        self.action_spaces = dict.fromkeys(self.possible_agents, of_actions)
        self._native = _forebay.Environment.of(scenario)
        self._seeds = np.random.default_rng()

    def observation_space(self, agent: str) -> gymnasium.spaces.Box[Any]:
        """The space of the observations of an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.spaces.Box[Any]:
        """The space of the actions of an agent."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, _Floats], _Infos]:
        """Begins an episode, drawn from ``seed`` or, without it, from the sequence of the last seed. There are no options."""
        if seed is not None:
            self._seeds = np.random.default_rng(seed)
        # An episode ends if an exception is raised in it.
        self.agents = []
        self._native.reset(int(self._seeds.integers(2**63)))
        self.agents = list(self.possible_agents)
        waiting = set(self._native.waiting())
        return self._observations(), self._infos(waiting)

    def step(
        self, actions: Mapping[str, _Floats]
    ) -> tuple[dict[str, _Floats], dict[str, float], dict[str, bool], dict[str, bool], _Infos]:
        """Takes the actions of waiting agents, and continues to the next decision or the end of the episode."""
        if not self.agents:
            raise InputError("step: allowed after reset, until the episode ends")
        for place in self._native.waiting():
            action = actions.get(self.possible_agents[place])
            if action is not None:
                self._native.act(place, np.asarray(action, np.float32).item())
        self.agents = []
        goes_on = self._native.advance()
        every = range(len(self.possible_agents))
        waiting = set(self._native.waiting() if goes_on else every)
        rewards = {
            agent: self._native.reward(place) if place in waiting else 0.0
            for place, agent in enumerate(self.possible_agents)
        }
        terminated = dict.fromkeys(self.possible_agents, False)
        truncated = dict.fromkeys(self.possible_agents, not goes_on)
        infos = self._infos(waiting if goes_on else set())
        if goes_on:
            self.agents = list(self.possible_agents)
        return self._observations(), rewards, terminated, truncated, infos

    def _observations(self) -> dict[str, _Floats]:
        observations = {}
        for place, agent in enumerate(self.possible_agents):
            observations[agent] = np.empty(self.observation_spaces[agent].shape, np.float32)
            self._native.observe(place, observations[agent])
        return observations

    def _infos(self, waiting: set[int]) -> _Infos:
        now_ns = self._native.now_ns()
        return {
            agent: {
                "waits": place in waiting,
                "outcome": self._native.outcome(place),
                "now_ns": now_ns,
            }
            for place, agent in enumerate(self.possible_agents)
        }
