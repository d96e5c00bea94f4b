"""Environments for learning congestion control."""

import warnings

import numpy as np
import pytest
from conftest import DOCUMENT

import forebay

gymnasium = pytest.importorskip("gymnasium")
rl = pytest.importorskip("forebay.rl")

RANGES = {"bottleneck.rate": "6Mbit/s..24Mbit/s:log", "bottleneck.rtt": "20ms..60ms"}


def episode(env, seed, action):
    """All observations and rewards of an episode with a constant action."""
    steps = [(env.reset(seed=seed)[0], 0.0)]
    truncated = False
    while not truncated:
        observation, reward, terminated, truncated, info = env.step(np.float32([action]))
        assert not terminated and env.observation_space.contains(observation)
        steps.append((observation, reward))
    assert info["now_ns"] == 4_000_000_000
    return steps


def test_gymnasium_checker_accepts_environment():
    from gymnasium.utils.env_checker import check_env

    env = gymnasium.make("forebay/Plan-v0", plan=DOCUMENT, ranges=RANGES)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        check_env(env.unwrapped)


def test_episode_depends_only_on_seed_and_actions():
    env = rl.make(DOCUMENT, ranges=RANGES)
    first, drawn = episode(env, 1, 0.1), env.parameters["bottleneck.rate"]
    again = episode(env, 1, 0.1)
    assert len(first) == len(again) > 20
    for (observation, reward), (other, other_reward) in zip(first, again, strict=True):
        assert np.array_equal(observation, other) and reward == other_reward
    episode(env, 2, 0.1)
    assert env.parameters["bottleneck.rate"] != drawn
    assert episode(env, 1, 0.0)[-1][1] != first[-1][1]


def test_reward_follows_from_outcome():
    env = rl.make(DOCUMENT)
    env.reset(seed=1)
    rewards = {}
    for _ in range(10):
        _, rewards["power"], _, _, info = env.step(np.float32([0.0]))
    outcome = info["outcome"]
    segments_per_s = outcome.acked_bytes / outcome.mss_bytes / (outcome.interval_ns / 1e9)
    expected = np.log2(segments_per_s) - np.log2(outcome.rtt_mean_ns / outcome.rtt_min_ns)
    assert rewards["power"] == pytest.approx(expected)
    for name in set(rl.REWARDS) - {"power"}:
        other = rl.make(DOCUMENT, reward=name)
        other.reset(seed=1)
        rewards[name] = [other.step(np.float32([0.0]))[1] for _ in range(10)][-1]
    assert len(set(rewards.values())) == len(rl.REWARDS) == 3


@pytest.mark.parametrize("what", ["plan", "path", "learner in it", "cc"])
def test_make_accepts_every_form_of_plan(what, tmp_path):
    flow = DOCUMENT["flow"][0]
    settings = {}
    if what == "plan":
        plan = forebay.Plan(DOCUMENT).with_sets({"stop": "2s"})
    elif what == "path":
        plan = tmp_path / "path.toml"
        plan.write_text(
            'name = "p"\nstop = "2s"\nwarmup = "1s"\naut = "cubic"\n'
            '[bottleneck]\nrate = "9Mbit/s"\nrtt = "20ms"\nqdisc = { kind = "fifo", limit = "60p" }\n'
            '[[flow]]\nname = "bulk"\ncc = "aut"\ntraffic = { kind = "greedy" }\n'
        )
    elif what == "learner in it":
        plan = {**DOCUMENT, "stop": "2s", "flow": [{**flow, "cc": "learner"}]}
    else:
        plan = {**DOCUMENT, "stop": "2s"}
        settings = {"sets": {"flow.bulk.cc": "learner(history=3)"}}
    env = rl.make(plan, **settings)
    assert env.observation_space.shape == (3 if settings else 10, 14)
    env.reset(seed=1)
    assert env.step(np.float32([0.2]))[4]["now_ns"] > 0


def vector(threads, environments=5):
    settings = {"ranges": RANGES, "learner": "learner(history=2)"}
    return rl.make_vec(environments, DOCUMENT, threads=threads, **settings)


def test_threads_change_nothing():
    alone, several = vector(1), vector(3)
    seen = [envs.reset(seed=3)[0] for envs in (alone, several)]
    assert np.array_equal(*seen) and alone.observation_space.contains(seen[0])
    ended, episodes = np.zeros(5, bool), 0
    for step in range(250):
        actions = np.full((5, 1), [0.3, -0.2, 0.0][step % 3], np.float32)
        one, other = alone.step(actions), several.step(actions)
        for theirs, ours in zip(one[:4], other[:4], strict=True):
            assert np.array_equal(theirs, ours)
        observations, rewards, terminated, truncated, _ = one
        assert observations.dtype == np.float32 and not terminated.any()
        # The step after the end of an episode begins another.
        assert not rewards[ended].any() and not truncated[ended].any()
        ended = truncated
        episodes += truncated.sum()
    assert episodes > 0
    assert alone.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.NEXT_STEP


def test_environments_with_one_seed_have_the_same_episodes():
    envs = vector(2, environments=3)
    envs.reset(seed=[5, 6, 5])
    for _ in range(20):
        observations, rewards, *_ = envs.step(np.full((3, 1), 0.2, np.float32))
    assert np.array_equal(observations[0], observations[2]) and rewards[0] == rewards[2]
    acked_bytes = [outcome.acked_bytes for outcome in envs.outcomes]
    assert acked_bytes[0] == acked_bytes[2] > 0
    assert not np.array_equal(observations[0], observations[1])


def test_gymnasium_makes_the_vector_in_rust():
    envs = gymnasium.make_vec("forebay/Plan-v0", num_envs=2, plan=DOCUMENT)
    assert isinstance(envs.unwrapped, rl.VectorEnv)
    assert envs.reset(seed=1)[0].shape == (2, 10, 14)


def test_pettingzoo_checker_accepts_several_agents():
    pytest.importorskip("pettingzoo")
    from pettingzoo.test import parallel_api_test

    env = rl.make_parallel(DOCUMENT, sets={"flow.bulk.count": 2, "stop": "2s"})
    assert env.possible_agents == ["bulk-1", "bulk-2"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        parallel_api_test(env, num_cycles=500)


def test_agents_decide_each_at_its_time():
    pytest.importorskip("pettingzoo")
    bundle = {"name": "a", "cc": "learner"}
    alone = {**DOCUMENT["flow"][0], "cc": "learner"}
    flows = [alone, {**alone, "name": "inside", "bundle": "a", "cc": "cubic"}]
    env = rl.make_parallel({**DOCUMENT, "bundle": [bundle], "flow": flows})
    assert env.possible_agents == ["a", "bulk"]
    _, infos = env.reset(seed=1)
    turns = dict.fromkeys(env.agents, 0)
    while env.agents:
        waits = [agent for agent, info in infos.items() if info["waits"]]
        assert waits
        for agent in waits:
            turns[agent] += 1
        _, rewards, _, truncated, infos = env.step({agent: np.float32([0.1]) for agent in waits})
    assert all(truncated.values()) and min(turns.values()) > 5
    assert set(rewards) == {"a", "bulk"}


def test_exception_of_other_algorithm_reaches_caller():
    @forebay.algorithm("rl_breaks")
    class Breaks:
        """Fails at once"""

        def init(self, start):
            raise LookupError("no idea")

        def on_measurement(self, now_ns, measurement):
            return None

        def on_event(self, now_ns, event, value):
            return None

    other = {**DOCUMENT["flow"][0], "name": "other", "cc": "rl_breaks", "start": "1s"}
    plan = {**DOCUMENT, "flow": [DOCUMENT["flow"][0], other]}
    env, envs = rl.make(plan), rl.make_vec(2, plan, threads=2)
    env.reset(seed=1)
    envs.reset(seed=1)
    with pytest.raises(LookupError, match="no idea"):
        while True:
            env.step(np.float32([0.0]))
    with pytest.raises(LookupError, match="no idea"):
        while True:
            envs.step(np.zeros((2, 1), np.float32))


def test_refuses_invalid_settings_and_calls(plan):
    def wrong(match, error=forebay.InputError, make=rl.make, **settings):
        with pytest.raises(error, match=match):
            make(settings.pop("plan", DOCUMENT), **settings)

    nobody = {**DOCUMENT, "flow": [{**DOCUMENT["flow"][0], "cc": "cubic"}]}
    wrong("dict: no agent: allowed is a plan with `aut`", plan=nobody)
    wrong("reward = powr: allowed is one of power, aurora, orca", reward="powr")
    wrong("bottleneck.rtt=20ms.*allowed is KEY=LOW..HIGH", ranges={"bottleneck.rtt": "20ms"})
    wrong("arm = none: allowed is one of", arm="none")
    wrong("1 to 64", learner="learner(history=65)")
    wrong("bottleneck.rate", forebay.PlanError, sets={"bottleneck.rate": "fast"})
    wrong("agents bulk-1, bulk-2: allowed is one agent", sets={"flow.bulk.count": 2})
    wrong("as published", plan=forebay.Plan("ccperf/deep_buffers", as_published=True))
    with pytest.raises(forebay.InputError, match="0 environments"):
        rl.make_vec(0, plan)
    with pytest.raises(forebay.InputError, match="0 environments or threads"):
        rl.make_vec(1, plan, threads=0)
    env, envs = rl.make(plan), rl.make_vec(2, plan)
    with pytest.raises(forebay.InputError, match="allowed after reset"):
        env.step(np.float32([0.0]))
    with pytest.raises(forebay.InputError, match="step: allowed after a successful reset"):
        envs.step(np.zeros((2, 1), np.float32))
    env.reset(seed=1)
    with pytest.raises(forebay.InputError, match="allowed is a finite number"):
        env.step(np.float32([np.nan]))
    envs.reset(seed=1)
    with pytest.raises(forebay.InputError, match="3 actions: allowed is 2"):
        envs.step(np.zeros((3, 1), np.float32))
    with pytest.raises(forebay.InputError, match="1 seeds: allowed is 2"):
        envs.reset(seed=[1])
