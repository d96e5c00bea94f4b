"""Copa (Arun and Balakrishnan, NSDI 2018) as a class, the same for simulator, sendbox and agent.

::

    target    W / (base + x) = 1 / (delta x), so a queue of 1/delta remains, here max(6 packets, 0.75 ms x mu)
    step      W +- v / (2 delta) per round trip, towards the target
    v         doubles after 3, 5, 7, .. round trips in one direction, and is 1 again after a change of direction
    x         smallest round trip of the last four measurements, less the base
    base      smallest round trip, measured again every 10 s with a window that leaves the path slightly idle
    mu        largest delivery rate of the last ten round trips, over at least a second

The departures from the paper are the same as in ``crates/core/src/cc/algorithms/copa.rs``, which gives the reasons: a target
that follows the rate, half of the paper's steps, the smallest of four measurements, and no competitive mode. That algorithm,
``copa`` in plans, also distinguishes queues of cross traffic from its own. This example does not: its base grows with queues
of cross traffic.
"""

from __future__ import annotations

from collections import deque

import forebay

#: Target queue: six packets, or the packets of 0.75 ms, three quarters of the assumed noise.
TARGET_PACKETS = 6
TARGET_S = 0.75e-3
#: Step per round trip, as a share of 1/delta, and its limit as a share of the window.
STEP = 0.5
STEP_MAX = 1 / 8
#: Round trips in one direction until the velocity first doubles, and until it doubles again.
SAME_DIRECTION = 3
DOUBLING = 2
#: Largest window, relative to the recent delivery rate times the base.
GROWTH = 1.25
#: Interval between measurements of the base (s), and the window then, as a share of the window that fills the path.
DRAIN_EVERY_S = 10.0
DRAIN_SHARE = 0.95
#: Round trips until a drain has emptied the queue, and round trips of measurement after that.
DRAIN_SETTLES = 2
DRAIN_MEASURES = 2
#: Round trips with a queue of four targets until a drain begins: the path may have become longer.
QUEUED_MAX = 8
#: Share of idle time above which measurements say little about the path.
IDLE_SHARE = 0.05
#: Smallest window in packets, and largest window in bytes.
PACKETS_MIN = 4
BYTES_MAX = 1 << 32


@forebay.algorithm("copa_py", needs=["rtt", "delivery_rate"], every="10ms")
class Copa:
    """Copa in Python: keeps a short queue, whose delay decides whether to send more"""

    def init(self, start):
        self.mss = start.mss_bytes
        self.window = self.initial = float(start.initial_cwnd_bytes)
        self.is_slow_start = True
        self.base_s = None
        #: The last round trips (s), and the times (s) and delivery rates (bytes/s) of ten round trips.
        self.rtts = deque(maxlen=4)
        self.rates = deque()
        self.mean_rate = 0.0
        self.last_s = None
        self.queue_s = 0.0
        self.restart()
        # When the next drain is due and when this one began, the rate before it, and the least round trip
        # since the drain has settled.
        self.drain_due_s = self.drain_began_s = None
        self.drain_rate = 0.0
        self.drained_s = None
        # How long more than four targets have been queued.
        self.queued_s = 0.0

    def restart(self):
        """Begins again after the window was not set by a step."""
        self.velocity = 1.0
        self.direction = None
        self.lasted = 0
        self.compared = self.window
        self.since_compared_s = 0.0

    def on_event(self, now_ns, event, value):
        if event == "rtt_shift" and self.base_s is not None:
            self.base_s = max(self.base_s + value / 1e9, 1e-9)
            self.rtts.clear()
        elif event == "loss":
            self.is_slow_start = False
        elif event == "rto":
            self.is_slow_start = True
            self.window = float(PACKETS_MIN * self.mss)
            self.restart()
            return self.limits()
        return None

    def on_measurement(self, now_ns, measurement):
        rtt_s = (measurement.rtt_min_ns or 0) / 1e9
        if rtt_s <= 0:
            return None
        now_s = now_ns / 1e9
        since_s = 0.0 if self.last_s is None else now_s - self.last_s
        self.last_s = now_s
        self.base_s = rtt_s if self.base_s is None else min(self.base_s, rtt_s)
        self.rtts.append(rtt_s)
        delay_ns = measurement.feedback_delay_ns or measurement.rtt_latest_ns
        loop_s = max(self.base_s, delay_ns / 1e9)
        idle_share = measurement.idle_share
        is_idle = measurement.app_limited if idle_share is None else idle_share > IDLE_SHARE
        self.note_rate(now_s, since_s, loop_s, measurement.delivery_rate_bits_per_s, is_idle)
        bottleneck = max((rate for _, rate in self.rates), default=0.0)
        if bottleneck <= 0:
            return None
        target = max(TARGET_PACKETS * self.mss, TARGET_S * bottleneck)
        self.queue_s = min(self.rtts) - self.base_s
        targets = self.queue_s * bottleneck / target
        # With a standing queue the sender is not idle.
        is_idle = is_idle and targets <= 4
        if self.drain_began_s is not None:
            self.drain(now_s, loop_s, rtt_s, target)
        elif self.is_slow_start:
            self.slow_start(now_s, measurement.acked_bytes, target, is_idle)
        else:
            self.steer(since_s, loop_s, measurement, target, targets, is_idle)
            self.watch(now_s, since_s, loop_s, targets, is_idle)
        self.window = min(max(self.window, PACKETS_MIN * self.mss), BYTES_MAX)
        return self.limits()

    def limits(self):
        return forebay.Limits(cwnd_bytes=self.window)

    def note_rate(self, now_s, since_s, loop_s, bits_per_s, is_idle):
        if bits_per_s is None:
            return
        rate = bits_per_s / 8
        self.rates.append((now_s, rate))
        # The rate of an idle sender says nothing about the path, so an idle time drops no old rate.
        oldest_s = now_s - max(10 * loop_s, 1.0)
        while not is_idle and self.rates[0][0] < oldest_s:
            self.rates.popleft()
        while len(self.rates) > 1024:
            self.rates.popleft()
        self.mean_rate += min(since_s / (1.5 * loop_s), 1.0) * (rate - self.mean_rate)

    def slow_start(self, now_s, acked, target, is_idle):
        """Doubles the window each round trip until the queue exceeds the target."""
        if self.queue_s * self.window / (self.base_s + self.queue_s) <= target:
            if not is_idle:
                self.window += min(acked, self.window)
            return
        self.is_slow_start = False
        self.window = max(self.mean_rate * self.base_s + target, self.window / 2)
        self.restart()
        self.drain_due_s = now_s + DRAIN_EVERY_S / 5

    def steer(self, since_s, loop_s, measurement, target, targets, is_idle):
        """A step towards the target."""
        is_below = self.queue_s * self.window / (self.base_s + self.queue_s) <= target
        direction = 1 if is_below else -1
        if self.direction not in (None, direction) and self.velocity > 1:
            self.velocity, self.lasted = 1.0, 0
        step = STEP * target * min(measurement.acked_bytes / self.window, 1.0)
        if is_idle:
            self.velocity = 1.0
            in_flight = measurement.in_flight_bytes
            is_full = in_flight is not None and in_flight > 0.9 * self.window
            if not (is_below and is_full) and not targets > 2:
                step = 0.0
        limit = GROWTH * self.mean_rate * self.base_s + target
        stepped = self.window + direction * self.velocity * step
        self.window = min(stepped, max(limit, self.window))
        if targets > 4:
            self.window = min(self.window, self.mean_rate * self.base_s + target)
        self.since_compared_s += min(since_s, loop_s)
        if self.since_compared_s >= loop_s:
            self.compare(target)

    def compare(self, target):
        """Once per round trip, checks whether the window keeps its direction."""
        direction = 1 if self.window > self.compared else -1
        if direction == self.direction:
            self.lasted += 1
            more = self.lasted - SAME_DIRECTION
            if more >= 0 and more % DOUBLING == 0:
                largest = max(STEP_MAX * self.window / (STEP * target), 1.0)
                self.velocity = min(2 * self.velocity, largest)
        else:
            self.velocity, self.lasted = 1.0, 1
        self.direction, self.compared, self.since_compared_s = direction, self.window, 0.0

    def watch(self, now_s, since_s, loop_s, targets, is_idle):
        """Begins a drain when it is due, or when the window does not explain the queue."""
        self.queued_s = self.queued_s + min(since_s, loop_s) if targets > 4 else 0.0
        if self.drain_due_s is None:
            self.drain_due_s = now_s + DRAIN_EVERY_S
        is_due = now_s >= self.drain_due_s and not is_idle
        if is_due or self.queued_s > QUEUED_MAX * loop_s:
            self.drain_began_s, self.drained_s = now_s, None
            self.drain_rate = self.mean_rate
            self.queued_s = 0.0
            self.window = DRAIN_SHARE * self.drain_rate * self.base_s

    def drain(self, now_s, loop_s, rtt_s, target):
        """Keeps the window too small to fill the path, and measures the base."""
        for_s = now_s - self.drain_began_s
        if for_s < DRAIN_SETTLES * loop_s:
            return
        self.drained_s = rtt_s if self.drained_s is None else min(self.drained_s, rtt_s)
        if for_s >= (DRAIN_SETTLES + DRAIN_MEASURES) * loop_s:
            self.base_s, self.drain_began_s = self.drained_s, None
            self.rtts.clear()
            self.rtts.append(rtt_s)
            self.drain_due_s = now_s + DRAIN_EVERY_S
            self.window = self.drain_rate * self.base_s + target / 2
            self.restart()
