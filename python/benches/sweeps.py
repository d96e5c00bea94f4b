"""Cost of the engines of sweeps compared with simulation alone, and large sweeps: 10,000 runs listed, 100,000 made.

Needs an optimised wheel, the extras ``data`` and ``ray``, and an otherwise idle machine. ``--runs 0`` omits the large sweep.
"""

import argparse
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from paths import B1

import forebay
from forebay import _forebay

ROUNDS = 15
#: Runs of a fifth of a second, which give batches of the usual size.
SEEDS = "1..48"
PLAN = forebay.Plan(B1, {"stop": "300s"})
#: Largest overhead of each engine, relative to the simulation (%).
MOST = {"threads": 2, "ray": 6}
#: A run of a few milliseconds.
SHORT = forebay.Plan(B1, {"stop": "2s", "bottleneck.change": []})
SEEDS_MAX = 10_000
TICKS = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def family():
    """The fields of ``/proc/PID/stat`` from the state on, of this process and its descendants."""
    fields = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields[int(file.parent.name)] = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue
    ours = {os.getpid()}
    while more := {pid for pid, of_pid in fields.items() if int(of_pid[1]) in ours} - ours:
        ours |= more
    return [fields[pid] for pid in ours]


def taken_s():
    """Processor time of this process and its descendants, also of ended ones."""
    return sum(sum(map(int, it[11:15])) for it in family()) / TICKS


def memory_mb():
    """Resident memory of this process, and of its descendants."""
    mine = int(Path("/proc/self/statm").read_text().split()[1])
    return mine * PAGE_BYTES / 1e6, (sum(int(it[21]) for it in family()) - mine) * PAGE_BYTES / 1e6


def alone():
    """Simulates on one thread per processor, and keeps nothing."""
    jobs = _forebay.jobs(PLAN._native, SEEDS)
    workers = os.cpu_count()

    def simulate(part):
        _forebay.simulate(PLAN._native, part, False, _forebay.Stop())

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(simulate, [jobs[first::workers] for first in range(workers)]))


def swept(engine):
    with tempfile.TemporaryDirectory() as folder:
        assert forebay.sweep(PLAN, SEEDS, folder, on=engine, progress=False).valid


def cost_s(work):
    began_s = taken_s()
    work()
    return taken_s() - began_s


def engines():
    import ray

    # Start Ray before the measurement; its start is not part of a sweep.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(include_dashboard=False, log_to_driver=False)
    swept("ray")
    shares = {engine: [] for engine in MOST}
    for _ in range(ROUNDS):
        for engine, of_engine in shares.items():
            simulation_s = cost_s(alone)
            of_engine.append(100 * (cost_s(lambda: swept(engine)) / simulation_s - 1))
    ray.shutdown()
    for engine, of_engine in shares.items():
        spread = f"{min(of_engine):.1f} to {max(of_engine):.1f}"
        print(f"{engine}: {statistics.median(of_engine):.1f} % over the time of the simulation", end=" ")
        print(f"({spread}; at most {MOST[engine]} required)", flush=True)


def listing():
    times_s = []
    for _ in range(ROUNDS):
        began_s = time.perf_counter()
        assert len(_forebay.jobs(PLAN._native, f"1..{SEEDS_MAX}")) == SEEDS_MAX
        times_s.append(time.perf_counter() - began_s)
    print(f"{SEEDS_MAX} runs are listed in {statistics.median(times_s):.2f} s (at most 1 required)")


def many(runs, engine):
    cells = -(-runs // SEEDS_MAX)
    plan = SHORT.grid({"bottleneck.rtt": [f"{15 + cell}ms" for cell in range(cells)]})
    seeds = f"1..{runs // cells}"
    began_s = time.perf_counter()
    count = 0

    def tell(name, number, total, share, ending):
        nonlocal count
        count += 1
        if count % (total // 10) == 0:
            mine, theirs = memory_mb()
            took_s = time.perf_counter() - began_s
            print(f"  {count} runs, {took_s:.0f} s: {mine:.0f} MB here, {theirs:.0f} MB", end=" ")
            print("in workers and services", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        made = forebay.sweep(plan, seeds, folder, on=engine, progress=tell)
        counted = made.sql("SELECT count(DISTINCT key) FROM runs WHERE valid = 1").fetchall()[0][0]
        stored = sum(file.stat().st_size for file in Path(folder).rglob("*.parquet"))
    took_s = time.perf_counter() - began_s
    print(f"{counted} runs on {engine} in {took_s:.0f} s, {stored / 1e6:.0f} MB of rows")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000, metavar="N", help="default: %(default)s")
    parser.add_argument("--on", default="ray", metavar="ENGINE", help="of the large sweep; default: %(default)s")
    arguments = parser.parse_args()
    listing()
    engines()
    if arguments.runs:
        many(arguments.runs, arguments.on)


if __name__ == "__main__":
    main()
