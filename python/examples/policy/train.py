"""Trains a small policy with only numpy, and shows where it works and where it fails.

Run it in an empty folder with ``forebay[rl,onnx]``: ``python3 train.py``. It

1. learns on paths that are drawn for each episode, and writes ``policy.onnx``;
2. compares it with Cubic on 24 held-out paths;
3. compares it with Copa, setpoint and Nimbus in a simulated sendbox.

For the same on real TCP, as root in the same folder: ``forebay run .../sendbox.toml --backend emu``.
"""

import argparse
import os
import statistics
import time
from pathlib import Path

import forebay
from forebay import rl

HERE = Path(__file__).parent
FILE = "policy.onnx"

#: Rows of an observation.
HISTORY = 4
#: The paths of the episodes.
RANGES = {
    "bottleneck.rate": "4Mbit/s..60Mbit/s:log",
    "bottleneck.rtt": "10ms..120ms:log",
    "bottleneck.qdisc.limit": "20p..800p:log",
}
#: Long enough to fill any path and to build its queue.
EPISODE = {"stop": "200rtt", "warmup": "0s"}
#: Held-out paths: every combination.
HELD_OUT = {
    "bottleneck.rate": ["6Mbit/s", "12Mbit/s", "24Mbit/s", "48Mbit/s"],
    "bottleneck.rtt": ["15ms", "45ms", "100ms"],
    "bottleneck.qdisc.limit": ["1bdp", "4bdp"],
}

#: The policy is behind another algorithm below this share of its goodput, or above this multiple of its queue.
CARRIES, QUEUES = 0.95, 1.5


def train(generations, seed):
    began_s = time.monotonic()
    environments = rl.make_vec(
        64,
        HERE / "path.toml",
        sets=EPISODE,
        ranges=RANGES,
        learner=f"learner(history={HISTORY})",
    )
    rl.export(FILE, rl.evolve(environments, generations=generations, seed=seed))
    print(f"{FILE}: {generations} generations in {time.monotonic() - began_s:.0f} s\n")


def beside_cubic():
    plan = forebay.Plan(HERE / "path.toml").grid(HELD_OUT)
    plan = plan.with_algorithms([f"policy(file={FILE})", "cubic"])
    result = forebay.run(plan, out="out/paths", jobs=os.cpu_count())
    powers = {}
    for arm in result.summary:
        metrics = arm["flows"][0]["metrics"]
        name = "cubic" if arm["arm"] == "cubic" else "policy"
        power = metrics["goodput_mbps"] / metrics["mean_srtt_l4"]
        powers.setdefault(arm["cell"], {})[name] = power
    print(f"{'path':40} power of the policy over Cubic's")
    gains = {cell: of["policy"] / of["cubic"] for cell, of in powers.items()}
    for cell, gain in gains.items():
        print(f"{cell:40} {gain:.2f}")
    print(f"median over {len(gains)} paths: {statistics.median(gains.values()):.2f}; {result.report}\n")


def in_a_sendbox():
    result = forebay.run(HERE / "sendbox.toml", out="out/sendbox", jobs=os.cpu_count())
    found = {}
    print(f"{'':14} {'':12} {'Mbit/s':>8} {'queue':>8} {'slowdown':>8}")
    for arm in result.summary:
        flows = {flow["name"]: flow["metrics"] for flow in arm["flows"]}
        links = {link["name"]: link["metrics"] for link in arm["links"]}
        carried = flows["bulk"]["goodput_mbps"]
        queue = links["forward"]["queue_mean_packets"]
        slowdown = flows["web"]["slowdown_p50"]
        print(f"{arm['cell']:14} {arm['arm']:12} {carried:8.1f} {queue:8.1f} {slowdown:8.2f}")
        found.setdefault(arm["cell"], {})[arm["arm"]] = carried, queue
    for cell, arms in found.items():
        carried, queue = arms.pop("policy")
        arms.pop("status_quo")
        for name, (theirs, their_queue) in arms.items():
            if carried < CARRIES * theirs:
                print(f"{cell}: behind {name}: has {carried / theirs:.0%} of its goodput")
            if queue > QUEUES * their_queue:
                print(f"{cell}: behind {name}: {queue:.0f} packets wait instead of {their_queue:.0f}")
    print(result.report)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generations", type=int, default=300, help="steps of the learner (300)")
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices (1)")
    parser.add_argument("--trained", action="store_true", help=f"use the existing {FILE}")
    options = parser.parse_args()
    if not options.trained:
        train(options.generations, options.seed)
    beside_cubic()
    in_a_sendbox()


if __name__ == "__main__":
    main()
