"""The simulated path of several benchmarks, and their measure of processor time."""

import time

#: The path of B1 (`crates/sim/examples/speed`), long enough that overhead around the simulation does not matter.
B1 = {
    "name": "b1",
    "stop": "1000s",
    "start_jitter": "1rtt",
    "aut": "newreno",
    "bottleneck": {
        "rate": "64Mbit/s",
        "rtt": "15ms",
        "qdisc": {"kind": "fifo", "limit": "20p"},
        "change": [{"at": "5s", "rate": "16Mbit/s"}],
    },
    "flow": [{"name": "bulk", "cc": "aut", "traffic": {"kind": "greedy"}}],
}


def cpu_s(work):
    """The result of ``work``, and the processor time that it took in this process."""
    began_s = time.process_time()
    return work(), time.process_time() - began_s
