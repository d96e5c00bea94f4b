"""Environments of one agent, one at a time and many together, for Gymnasium."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from forebay import _forebay
from forebay.errors import InputError
from forebay.rl.scenarios import spaces

_Floats = np.ndarray[Any, np.dtype[np.float32]]
_Info = dict[str, Any]

#: Seeds are below this.
_SEEDS = 2**63


class Env(gymnasium.Env[_Floats, _Floats]):
    """An environment with one agent, made by ``make``.

    ``info`` has ``outcome``, an ``Outcome`` of the time since the last decision (unknown values are None), and ``now_ns``, the
    time in the episode.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, scenario: _forebay.Scenario) -> None:
        agents = scenario.agents
        if len(agents) != 1:
            allowed = "allowed is one agent, or make_parallel"
            raise InputError(f"agents {', '.join(agents)}: {allowed}")
        self.observation_space, self.action_space = spaces(scenario)
        self._native = _forebay.Environment.of(scenario)
        self._goes_on = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Floats, _Info]:
        """Begins an episode, drawn from ``seed`` or, without it, from the sequence of the last seed. There are no options."""
        super().reset(seed=seed)
        # An episode ends if an exception is raised in it.
        self._goes_on = False
        self._native.reset(int(self.np_random.integers(_SEEDS)))
        self._goes_on = True
        return self._observation(), self._info()

    def step(self, action: _Floats) -> tuple[_Floats, float, bool, bool, _Info]:
        """Takes an action, and continues to the next decision or the end of the episode."""
        if not self._goes_on:
            raise InputError("step: allowed after reset, until the episode ends")
        self._native.act(0, np.asarray(action, np.float32).item())
        self._goes_on = False
        self._goes_on = self._native.advance()
        reward = self._native.reward(0)
        return self._observation(), reward, False, not self._goes_on, self._info()

    @property
    def parameters(self) -> dict[str, str]:
        """All values of the episode's experiment, by the dotted keys of the plan."""
        return dict(self._native.parameters())

    def _observation(self) -> _Floats:
        observation = np.empty(self.observation_space.shape or (), np.float32)
        self._native.observe(0, observation)
        return observation

    def _info(self) -> _Info:
        return {"outcome": self._native.outcome(0), "now_ns": self._native.now_ns()}


class VectorEnv(gymnasium.vector.VectorEnv[_Floats, _Floats, np.ndarray[Any, Any]]):
    """Environments of one scenario with one agent each, made by ``make_vec``.

    They step in Rust on permanent threads without the interpreter lock, into arrays of the caller. After the end of an
    episode, the next step begins a new episode: it takes no action and its reward is 0 (``AutoresetMode.NEXT_STEP``).
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, scenario: _forebay.Scenario, num_envs: int, threads: int) -> None:
        self._native = _forebay.Vector.of(scenario, num_envs, threads)
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = spaces(scenario)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[_Floats, _Info]:
        """Begins an episode in every environment.

        Args:
            seed: A seed, to which each environment adds its number, or a list with a seed for each. Environments with the
                same seed have the same sequence of episodes. None for random seeds.
            options: Not used.

        Returns:
            Observations of shape ``(num_envs, history, 14)``, and an empty dict.
        """
        if options and options.get("reset_mask") is not None:
            raise InputError("reset_mask: allowed is to reset all environments")
        wanted: list[int | None] = [None] * self.num_envs
        if isinstance(seed, Sequence):
            wanted = list(seed)
        elif seed is not None:
            super().reset(seed=int(seed))
            wanted = [(int(seed) + number) % _SEEDS for number in range(self.num_envs)]
        seeds = [int(self.np_random.integers(_SEEDS)) if it is None else int(it) for it in wanted]
        into = self._arrays()
        self._native.reset(seeds, _buffers(*into))
        return into[0], {}

    def step(
        self, actions: _Floats
    ) -> tuple[_Floats, np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any], _Info]:
        """Takes an action in every environment, after a ``reset``.

        Args:
            actions: Shape ``(num_envs, 1)``.

        Returns:
            Observations as in ``reset``; rewards (float64), whether an episode terminated (never) and whether it was
            truncated, each of shape ``(num_envs,)``; and an empty dict.
        """
        into = self._arrays()
        self._native.step(np.ascontiguousarray(actions, np.float32), _buffers(*into))
        observations, rewards, truncated = into
        return observations, rewards, np.zeros(self.num_envs, np.bool_), truncated, {}

    @property
    def outcomes(self) -> list[_forebay.Outcome]:
        """The outcome of the last decision in each environment. Rewards are computed from it."""
        return self._native.outcomes()

    def _arrays(self) -> tuple[_Floats, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        observations = np.empty(self.observation_space.shape or (), np.float32)
        return observations, np.empty(self.num_envs), np.empty(self.num_envs, np.bool_)


def _buffers(
    observations: _Floats, rewards: np.ndarray[Any, Any], truncated: np.ndarray[Any, Any]
) -> tuple[_Floats, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    # The native side fills booleans as bytes.
    return observations, rewards, truncated.view(np.uint8)
