"""Packets per second of an algorithm in Python, compared with the same algorithm in Rust.

Needs an optimised wheel and an otherwise idle machine.
"""

import statistics
import tempfile

from paths import B1, cpu_s

import forebay

ROUNDS = 15
#: Required shares of Rust's packets per second.
LEAST = {"reno_round": 0.90, "reno_ack": 0.15}


class Reno:
    """Additive increase, multiplicative decrease"""

    def init(self, start):
        self.mss = start.mss_bytes
        self.cwnd = start.initial_cwnd_bytes
        self.ssthresh = 1 << 40

    def on_measurement(self, now_ns, measurement):
        acked = measurement.acked_bytes
        self.cwnd += acked if self.cwnd < self.ssthresh else self.mss * acked / self.cwnd
        return forebay.Limits(self.cwnd)

    def on_event(self, now_ns, event, value):
        if event not in ("loss", "rto"):
            return None
        self.ssthresh = max(self.cwnd / 2, 2 * self.mss)
        self.cwnd = self.ssthresh if event == "loss" else self.mss
        return forebay.Limits(self.cwnd, self.ssthresh)


for name in LEAST:
    forebay.algorithm(name, every=name.removeprefix("reno_"))(type(name, (Reno,), {}))


def megabits_a_second(algorithm, folder):
    """Megabits that arrive per second of processor time. All packets have one size, so this is proportional to packets."""
    plan = forebay.Plan(B1).with_algorithms([algorithm])
    result, took_s = cpu_s(
        lambda: forebay.run(plan, seeds=1, out=folder, force=True, progress=False)
    )
    return result.runs[0]["flows"][0]["metrics"]["goodput_mbps"] * 1000 / took_s


def main():
    shares = {name: [] for name in LEAST}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            for name, of_name in shares.items():
                rust = megabits_a_second("newreno", folder)
                of_name.append(megabits_a_second(name, folder) / rust)
    for name, of_name in shares.items():
        spread = f"{min(of_name):.2f} to {max(of_name):.2f}"
        every = name.removeprefix("reno_")
        print(f"a class called every {every}: {statistics.median(of_name):.2f} of the packets per", end=" ")
        print(f"second of Rust ({spread}; required {LEAST[name]:.2f})")


if __name__ == "__main__":
    main()
