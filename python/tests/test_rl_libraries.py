"""Environments under common learning libraries and their checkers."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from conftest import DOCUMENT

gymnasium = pytest.importorskip("gymnasium")
rl = pytest.importorskip("forebay.rl")

SHORT = {**DOCUMENT, "stop": "2s"}
STEP = np.float32([0.1])


def made():
    return rl.make(SHORT)


def outcome():
    env = made()
    env.reset(seed=1)
    for _ in range(5):
        info = env.step(STEP)[4]
    return info["outcome"]


def test_outcome_survives_copy_and_pickle():
    seen = outcome()
    assert seen.acked_bytes > 0 and seen.rtt_min_ns > 0
    for other in (copy.copy(seen), copy.deepcopy(seen), pickle.loads(pickle.dumps(seen))):
        assert other == seen and hash(other) == hash(seen) and repr(other) == repr(seen)
    assert repr(rl.Outcome(acked_bytes=5)) == "Outcome(interval_ns=0, mss_bytes=0, acked_bytes=5)"
    assert rl.Outcome() != seen


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_async_vector_env_steps_in_processes(context):
    pytest.importorskip("cloudpickle")
    envs = gymnasium.vector.AsyncVectorEnv([made, made], context=context)
    alone = gymnasium.vector.SyncVectorEnv([made, made])
    try:
        first, _ = envs.reset(seed=3)
        assert np.array_equal(first, alone.reset(seed=3)[0])
        for _ in range(5):
            theirs = envs.step(np.full((2, 1), 0.1, np.float32))
            ours = alone.step(np.full((2, 1), 0.1, np.float32))
            assert all(map(np.array_equal, theirs[:4], ours[:4]))
            assert list(theirs[4]["outcome"]) == list(ours[4]["outcome"])
    finally:
        envs.close()


def test_passive_checker_finds_nothing():
    env = gymnasium.make("forebay/Plan-v0", plan=SHORT)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        env.reset(seed=1)
        for _ in range(200):
            if env.step(env.action_space.sample())[3]:
                env.reset()


def test_wrappers_keep_statistics_and_infos():
    wrapped = gymnasium.wrappers.RecordEpisodeStatistics(made())
    wrapped.reset(seed=1)
    truncated = False
    while not truncated:
        *_, truncated, info = wrapped.step(STEP)
    assert info["episode"]["l"] > 10
    assert copy.deepcopy(info)["outcome"] == info["outcome"]


@pytest.mark.slow
def test_stable_baselines_finds_nothing_and_learns():
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        # The warning is about networks for pictures; a 10 x 14 matrix needs none.
        warnings.filterwarnings("ignore", message=".*unconventional shape.*")
        checker.check_env(made())
    for vec_env in (DummyVecEnv([made, made]), SubprocVecEnv([made, made], start_method="spawn")):
        model = PPO("MlpPolicy", vec_env, n_steps=16, batch_size=16, n_epochs=1, device="cpu")
        model.learn(64)
        vec_env.seed(1)
        vec_env.reset()
        *_, infos = vec_env.step(np.full((2, 1), 0.1, np.float32))
        assert all(isinstance(info["outcome"], rl.Outcome) for info in infos)
        vec_env.close()


@pytest.mark.slow
def test_rllib_learns():
    ppo = pytest.importorskip("ray.rllib.algorithms.ppo")
    pytest.importorskip("torch")
    import ray
    from ray.tune.registry import register_env

    ray.init(include_dashboard=False, num_cpus=1, log_to_driver=False)

    # RLlib's networks take one dimension.
    register_env("forebay", lambda config: gymnasium.wrappers.FlattenObservation(rl.make(SHORT)))
    config = ppo.PPOConfig().environment("forebay").env_runners(num_env_runners=0)
    config = config.training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
    algorithm = config.build_algo()
    try:
        result = algorithm.train()
        assert result["env_runners"]["num_env_steps_sampled"] >= 64
    finally:
        algorithm.stop()
        ray.shutdown()
