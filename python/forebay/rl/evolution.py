"""A learner that needs only numpy: evolution strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.errors import InputError
from forebay.progress import Told, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from forebay.rl.environments import VectorEnv
    from forebay.rl.policies import Layer

_Array = np.ndarray[Any, Any]

#: Standard deviation of the members of a generation around its mean.
_SIGMA = 0.1
#: Adam's initial step size, the decay of its means, and epsilon (Kingma and Ba, ICLR 2015, algorithm 1).
_STEP, _BETA_1, _BETA_2, _EPSILON = 0.02, 0.9, 0.999, 1e-8
#: Limit for the difference of a pair, in standard deviations.
_OUTLIER = 3.0
#: Generations between comparisons of the mean with the best mean so far.
_CHECK = 20


def evolve(
    environments: VectorEnv,
    *,
    hidden: Sequence[int] = (16,),
    generations: int = 1000,
    steps: int = 200,
    seed: int = 1,
    progress: bool | Told | None = None,
) -> list[Layer]:
    """Learns a policy of dense layers with tanh after each, as ``export`` takes them.

    A generation has a mean, and pairs of members at opposite sides of it that differ by noise. Both members of a pair meet
    the same paths. The mean moves towards the better members, in steps that become shorter (evolution strategies: Salimans
    et al., 2017, arXiv:1703.03864, algorithm 1, with mirrored noise and Adam). The learner needs no gradient of the network,
    and all members step together. It returns the best mean on held-out paths.

    The same arguments give the same layers, byte for byte, on one machine.

    Args:
        environments: An even number of environments, one per member; 64 is a good number. They are reset.
        hidden: Outputs of each layer except the last.
        generations: Number of generations. One with 64 environments takes a second or two on two cores.
        steps: Decisions of each member in a generation.
        seed: Seed of all random choices.
        progress: As in ``forebay.run``. It shows the mean reward per decision in the generation.

    Raises:
        InputError: An odd number of environments, or a number below 1.
    """
    if environments.num_envs % 2:
        allowed = "allowed is an even number, for pairs"
        raise InputError(f"num_envs = {environments.num_envs}: {allowed}")
    numbers = {"hidden": min(hidden, default=1), "generations": generations, "steps": steps}
    for key, value in numbers.items():
        if value < 1:
            raise InputError(f"{key} = {value}: allowed is 1 or more")
    draw, told = np.random.default_rng(seed), shown(progress)
    network = _Network(int(np.prod(environments.single_observation_space.shape or ())), hidden)
    pairs = environments.num_envs // 2
    held_out = _seeds(draw, 2 * pairs)
    mean, adam = network.start(draw), _Adam(network.size)
    best, best_reward = mean, -np.inf
    for generation in range(1, generations + 1):
        noise = draw.standard_normal((pairs, network.size))
        members = mean + _SIGMA * np.concatenate([noise, -noise])
        rewards = _rewards(environments, network, members, _seeds(draw, pairs) * 2, steps)
        gains = rewards[:pairs] - rewards[pairs:]
        # Rewards differ much more between paths than between members, so gains are scaled and clipped.
        gains = np.clip(gains / (gains.std() + _EPSILON), -_OUTLIER, _OUTLIER)
        share_left = 1 - (generation - 1) / generations
        mean = mean + share_left * adam.step(gains @ noise / pairs)
        if generation % _CHECK == 0 or generation == generations:
            members = np.broadcast_to(mean, members.shape)
            reward = _rewards(environments, network, members, held_out, steps).mean()
            if reward > best_reward:
                best, best_reward = mean, reward
        if told:
            told(f"reward {rewards.mean():.3f}", 1, 1, generation / generations, None)
    return network.layers(best)


def _seeds(draw: np.random.Generator, count: int) -> list[int]:
    return [int(seed) for seed in draw.integers(2**63, size=count)]


def _rewards(
    environments: VectorEnv, network: _Network, members: _Array, seeds: list[int], steps: int
) -> _Array:
    """The mean reward per decision of each member."""
    layers = network.of_members(members.astype(np.float32))
    observations, _ = environments.reset(seed=seeds)
    total, decisions = np.zeros(len(members)), np.zeros(len(members))
    begins = np.zeros(len(members), np.bool_)
    for _ in range(steps):
        actions = network.actions(layers, observations)
        observations, rewards, _, truncated, _ = environments.step(actions)
        # A step that begins an episode takes no decision.
        total += rewards
        decisions += ~begins
        begins = truncated
    return total / decisions


class _Network:
    """Dense layers whose parameters are a vector of length ``size``."""

    def __init__(self, inputs: int, hidden: Sequence[int]) -> None:
        ends = [inputs, *hidden, 1]
        self._shapes = list(zip(ends, ends[1:], strict=False))
        self.size = sum((inputs + 1) * outputs for inputs, outputs in self._shapes)

    def start(self, draw: np.random.Generator) -> _Array:
        """Initial parameters. The action is always 0, and layers before the last have unit gain."""
        parts: list[_Array] = []
        for inputs, outputs in self._shapes[:-1]:
            parts += [draw.standard_normal(inputs * outputs) / np.sqrt(inputs), np.zeros(outputs)]
        inputs, outputs = self._shapes[-1]
        return np.concatenate([*parts, np.zeros((inputs + 1) * outputs)])

    def of_members(self, members: _Array) -> list[tuple[_Array, _Array]]:
        """Weights (members, inputs, outputs) and biases (members, 1, outputs) of members of shape ``(members, size)``."""
        layers, place = [], 0
        for inputs, outputs in self._shapes:
            weights = members[:, place : place + inputs * outputs]
            place += inputs * outputs
            biases = members[:, place : place + outputs]
            place += outputs
            layers.append((weights.reshape(-1, inputs, outputs), biases.reshape(-1, 1, outputs)))
        return layers

    def actions(self, layers: list[tuple[_Array, _Array]], observations: _Array) -> _Array:
        """The action of each member for its observation, of shape ``(members, 1)``."""
        values = observations.reshape(len(observations), 1, -1)
        for weights, biases in layers:
            values = np.tanh(values @ weights + biases)
        return values[:, 0]

    def layers(self, numbers: _Array) -> list[Layer]:
        """The layers of one member, float32."""
        of_one = self.of_members(numbers.astype(np.float32)[None])
        return [(weights[0], biases[0, 0]) for weights, biases in of_one]


class _Adam:
    """Ascends along an estimate of the gradient."""

    def __init__(self, size: int) -> None:
        self._mean, self._square, self._count = np.zeros(size), np.zeros(size), 0

    def step(self, gradient: _Array) -> _Array:
        self._count += 1
        self._mean += (1 - _BETA_1) * (gradient - self._mean)
        self._square += (1 - _BETA_2) * (gradient**2 - self._square)
        mean = self._mean / (1 - _BETA_1**self._count)
        square = self._square / (1 - _BETA_2**self._count)
        return _STEP * mean / (np.sqrt(square) + _EPSILON)
