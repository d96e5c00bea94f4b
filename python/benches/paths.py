"""What several benchmarks simulate, and how they count what that takes."""

import time

#: The path of B1 (`crates/sim/examples/speed`), for long enough that what surrounds a simulation does not count.
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
    """What ``work`` gives, and the time of processors that it took in this process."""
    began_s = time.process_time()
    return work(), time.process_time() - began_s
