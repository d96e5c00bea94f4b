"""The keys of a plan as types, for editors and type checkers.

Written by `cargo xtask reference` from the keys that the reader of plans knows::

    plan: PlanKeys = {"name": "mine", "stop": "20s", "bottleneck": {"rate": "48Mbit/s", "rtt": "50ms"}}
    forebay.run(forebay.Plan(plan))

Values with a unit are texts, such as ``"50ms"``. Which keys a plan needs, and their ranges, are checked when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Required, TypedDict


class BottleneckChange(TypedDict, total=False):
    """A change of the link; values that are not given stay."""

    at: str
    """when, since the start of the run."""
    rate: str
    """new rate, from the next packet on; "0bit/s": nothing is sent. Default: as before."""
    rtt: str
    """new two-way delay, half of it in each direction. Default: as before."""
    loss: float | str
    """new loss probability. Default: as before."""


class BottleneckPulse(TypedDict, total=False):
    """A pulse wave: the bottleneck alternates between its own value and another one until the plan's stop."""

    of: Literal["rate", "rtt", "loss"]
    """what changes."""
    every: str
    """time at each value."""
    to: object
    """the other value."""


class BottleneckWalk(TypedDict, total=False):
    """A random walk of the forward or the reverse link, drawn from the seed. In each step d becomes correlation x d + noise, and the value moves by d. Only with `--backend sim`."""

    of: Literal["rate", "delay", "loss"]
    """what walks."""
    every: str
    """time between steps."""
    correlation: float
    """correlation of each step with the previous one. Default: 0."""
    deviation: object
    """standard deviation of the noise."""
    min: object
    """least value."""
    max: object
    """greatest value."""


class Bottleneck(TypedDict, total=False):
    """The link from site A to site B, whose delay is half of `rtt`."""

    rate: str
    """rate of layer-2 frames without FCS. Default: `trace` instead."""
    trace: str
    """rate over time instead of `rate`; CSV also delay over time, and loss instead of `loss`. Default: none."""
    trace_end: Literal["repeat", "hold"]
    """behaviour after the end of `trace`. Default: "repeat"."""
    path: object
    """a measured path: its `rate` or `trace`, `rtt`, `loss` and `qdisc` apply unless the plan sets them. Default: none."""
    rtt: str
    """two-way propagation delay, half of it in each direction."""
    jitter: str
    """largest random extra delay of each packet, uniform; packets stay in order. Default: "0s"."""
    batch: str
    """packets leave in batches at multiples of this time, as on a link that waits for its turn. Default: "0s"."""
    loss: float | str
    """probability that a packet is lost before the queue. Default: 0."""
    message_loss: float | str
    """loss of a sendbox's messages, in addition to `loss`. Default: 0."""
    reorder: float | str
    """probability that a packet is held back; above 0 packets also overtake when a trace shortens the delay. Default: 0."""
    reorder_packets: int
    """number of later packets that overtake a held-back one. Default: 3."""
    qdisc: str | Mapping[str, object]
    """the queue."""
    clears_ecn: bool
    """packets reach the queue as not ECN-capable, so it drops instead of marking them; as after a tunnel in compatibility mode (RFC 6040) or a path that clears the field. Default: false."""
    paths: int
    """number of parallel links; each gets an equal share of the rate and of the queue's limit in packets or bytes. Their rows are path-1, path-2, ..; only with `--backend sim`. Default: 1."""
    balance: Literal["flow", "packet"]
    """how packets are distributed over several paths. Default: "flow"."""
    path_spread: str
    """one-way delay that the last of several paths has in addition to the first; the paths between are spaced evenly. Default: "0s"."""
    hops: int
    """number of links in a row, each like this one; all propagation delay is behind the first. Rows of later links are hop-2, hop-3, ..; only with `--backend sim`. Default: 1."""
    change: Sequence[BottleneckChange]
    """changes during the run. Default: none."""
    pulse: Sequence[BottleneckPulse]
    """periodic changes to another value and back. Default: none."""
    walk: Sequence[BottleneckWalk]
    """random walks during the run; with one path. Default: none."""


class ReverseChange(TypedDict, total=False):
    """A change of the reverse link; values that are not given stay. Its delay is half of the bottleneck's `rtt`, including changes of `rtt`."""

    at: str
    """when, since the start of the run."""
    rate: str
    """new rate, from the next packet on; "0bit/s": nothing is sent. Default: as before."""
    loss: float | str
    """new loss probability. Default: as before."""


class Reverse(TypedDict, total=False):
    """The link from site B to site A: no bottleneck unless a rate is given here."""

    rate: str
    """rate of layer-2 frames without FCS. Default: unlimited."""
    trace: str
    """rate over time instead of `rate`; CSV also delay over time, and loss instead of `loss`. Default: none."""
    trace_end: Literal["repeat", "hold"]
    """behaviour after the end of `trace`. Default: "repeat"."""
    jitter: str
    """largest random extra delay of each packet, uniform; packets stay in order. Default: "0s"."""
    batch: str
    """packets leave in batches at multiples of this time, as on a link that waits for its turn. Default: "0s"."""
    loss: float | str
    """probability that a packet is lost before the queue. Default: 0."""
    message_loss: float | str
    """loss of a receivebox's messages, in addition to `loss`. Default: 0."""
    reorder: float | str
    """probability that a packet is held back; above 0 packets also overtake when a trace shortens the delay. Default: 0."""
    reorder_packets: int
    """number of later packets that overtake a held-back one. Default: 3."""
    qdisc: str | Mapping[str, object]
    """the queue. Default: { kind = "fifo", limit = "10000p" }."""
    ack_filter: bool
    """drops a waiting acknowledgement when a later one of its connection carries the same information. Default: false."""
    change: Sequence[ReverseChange]
    """changes during the run. Default: none."""
    walk: Sequence[BottleneckWalk]
    """random walks during the run. Default: none."""


class Link(TypedDict, total=False):
    """The link of a site pair whose traffic does not cross the bottleneck. Its reverse direction has no bottleneck. Only with `--backend sim`."""

    name: str
    """name of the site pair, which has flows or a bundle, and name in results; unique."""
    rate: str
    """rate of layer-2 frames without FCS. Default: `trace` instead."""
    trace: str
    """rate over time instead of `rate`; CSV also delay over time, and loss instead of `loss`. Default: none."""
    trace_end: Literal["repeat", "hold"]
    """behaviour after the end of `trace`. Default: "repeat"."""
    rtt: str
    """two-way propagation delay, half of it in each direction."""
    jitter: str
    """largest random extra delay of each packet, uniform; packets stay in order. Default: "0s"."""
    batch: str
    """packets leave in batches at multiples of this time, as on a link that waits for its turn. Default: "0s"."""
    loss: float | str
    """probability that a packet is lost before the queue. Default: 0."""
    message_loss: float | str
    """loss of a sendbox's messages, in addition to `loss`. Default: 0."""
    reorder: float | str
    """probability that a packet is held back; above 0 packets also overtake when a trace shortens the delay. Default: 0."""
    reorder_packets: int
    """number of later packets that overtake a held-back one. Default: 3."""
    qdisc: str | Mapping[str, object]
    """the queue."""
    clears_ecn: bool
    """packets reach the queue as not ECN-capable, so it drops instead of marking them; as after a tunnel in compatibility mode (RFC 6040) or a path that clears the field. Default: false."""
    change: Sequence[BottleneckChange]
    """changes during the run. Default: none."""


class Topology(TypedDict, total=False):
    """Many sites at routers that transit links join, drawn from the seed. Routers with many links attract more links; site traffic follows the gravity model. Each transit link is like [bottleneck], with 0.5 to 1.5 times its delay. Each connection of a flow runs between two randomly drawn sites. Rows are NAME-deployers and NAME-others. Only with `--backend sim`."""

    sites: int
    """number of sites, at least one at each router."""
    routers: int
    """number of routers that join the sites; each, except the first two, has links to two earlier routers."""
    peers: int
    """number of sites at other routers that each site sends to. Default: 1."""
    utilization: float | str
    """load offered to a transit link divided by its rate, counting responses without headers and acknowledgements; its rate is at least the bottleneck's. Default: "85%"."""
    deployment: float | str
    """share of the sites that have a sendbox, with a bundle like the plan's to each destination site; sites deploy in one fixed random order. Default: "100%"."""


class FlowTrafficGreedy(TypedDict, total=False):
    """Connections that always have data."""

    kind: Required[Literal["greedy"]]
    """the kind of traffic."""


class FlowTrafficRequests(TypedDict, total=False):
    """Open-loop requests over connections; the responses load the link."""

    kind: Required[Literal["requests"]]
    """the kind of traffic."""
    sizes: str
    """sizes of the responses."""
    load: str
    """offered load: bytes of responses over time."""
    connections: object
    """number of persistent connections; "each": every request opens its own connection, which costs one more round trip, and closes it. Default: 200."""
    sampling: Literal["strata", "iid"]
    """how sizes are drawn. Default: "strata"."""


class FlowTrafficVideo(TypedDict, total=False):
    """Clients that play a video, each over a persistent connection. They choose the highest rate below 0.85 of the last five segments' throughput (harmonic mean). They request a segment as soon as it fits into the buffer."""

    kind: Required[Literal["video"]]
    """the kind of traffic."""
    segment: str
    """playing time of a segment. Default: "4s"."""
    rates: Sequence[str]
    """available rates of each segment; default: YouTube's recommendation for uploads of 360 to 1440 lines. Default: ["1Mbit/s", "2500kbit/s", "5Mbit/s", "8Mbit/s", "16Mbit/s"]."""
    buffer: str
    """longest playing time that is fetched ahead. Default: "30s"."""
    startup: str
    """playing time that is fetched before playback begins. Default: one segment."""


class FlowTrafficMedia(TypedDict, total=False):
    """Live encoders, each over a TCP connection (back end sim only). Their rate follows the congestion control, as in the draft of SCReAMv2; use `cc = "scream"` or "scream_l4s". Lost data are sent again."""

    kind: Required[Literal["media"]]
    """the kind of traffic."""
    fps: int
    """frames per second. Default: 30."""
    min_rate: str
    """lowest rate of payload (RFC 8698). Default: "150kbit/s"."""
    max_rate: str
    """highest rate of payload (RFC 8698). Default: "1500kbit/s"."""
    start_rate: str
    """rate before the first acknowledgement. Default: min_rate."""
    variation: float
    """largest deviation of a frame's size from the nominal one, as a share; uniform. Default: 0."""
    late: str
    """delay above which a frame counts as late; while an unsent frame is older, the encoder skips frames. Default: "200ms"."""


class FlowTrafficCbr(TypedDict, total=False):
    """UDP datagrams at a constant rate."""

    kind: Required[Literal["cbr"]]
    """the kind of traffic."""
    rate: str
    """rate of layer-2 frames."""
    packet: str
    """bytes of a frame. Default: "1514B"."""


class FlowTrafficPoisson(TypedDict, total=False):
    """UDP datagrams at the arrivals of a Poisson process."""

    kind: Required[Literal["poisson"]]
    """the kind of traffic."""
    rate: str
    """mean rate of layer-2 frames."""
    packet: str
    """bytes of a frame. Default: "1514B"."""


class FlowTrafficOnOff(TypedDict, total=False):
    """UDP datagrams at a constant rate in random on times (exponential), none between."""

    kind: Required[Literal["on_off"]]
    """the kind of traffic."""
    rate: str
    """rate of layer-2 frames in the on times."""
    on: str
    """mean on time."""
    off: str
    """mean off time."""
    packet: str
    """bytes of a frame. Default: "1514B"."""


class FlowTrafficPing(TypedDict, total=False):
    """Closed-loop UDP request and response of 40 bytes each."""

    kind: Required[Literal["ping"]]
    """the kind of traffic."""


class Flow(TypedDict, total=False):
    """Traffic of one kind between the two sites of a pair, from A to B unless reversed."""

    name: str
    """name in results; unique. Default: the kind of traffic."""
    traffic: FlowTrafficGreedy | FlowTrafficRequests | FlowTrafficVideo | FlowTrafficMedia | FlowTrafficCbr | FlowTrafficPoisson | FlowTrafficOnOff | FlowTrafficPing
    """the traffic to send."""
    transport: Literal["tcp", "quic"]
    """transport of greedy, requests and video. Default: "tcp"."""
    cc: str | Mapping[str, object]
    """congestion control of the connections, and where the algorithm runs; reno is newreno. Default: "cubic"."""
    count: int
    """number of identical flows (not for requests). Default: 1."""
    start: str
    """first byte. Default: "0s"."""
    stop: str
    """last byte or arrival. Default: the plan's stop."""
    rtt: str
    """two-way propagation delay of this flow. Default: the bottleneck's."""
    hop: int
    """the only link that the flow's data cross, of several in a row. Default: all links."""
    dscp: int
    """DSCP of all the flow's packets in both directions, for queues whose `classes` match on it. Default: 0."""
    initial_window: int
    """segments that a TCP sender has in flight before the first acknowledgement, and again after an idle time; on the testbed the same for all flows in one direction between two sites. Default: 10."""
    receiver: str | Mapping[str, object]
    """how the receivers acknowledge: honestly, or to gain throughput. Default: "honest"."""
    read_rate: str
    """highest read rate of each receiving application; unread data closes the receive window. Default: at once."""
    receive_buffer: str
    """payload that each receiver buffers and announces as its window. Default: the stack's value."""
    ack_every: int
    """in-order full segments per acknowledgement. Default: the stack's value."""
    ack_delay: str
    """longest time that an acknowledgement waits for more segments. Default: the stack's value."""
    ttl: int
    """time to live: packets with 1 end at a router before the queue, with 2 at a router behind the link, before the receivebox. Default: the hosts'."""
    bundle: str
    """the bundle whose sites the flow runs between. Default: none."""
    pair: str
    """the flow runs between a pair of sites with this name, outside of any bundle. Default: "cross"."""
    reversed: bool
    """data runs from B to A. Default: false."""


class Bundle(TypedDict, total=False):
    """The traffic from one site to another, measured and paced as one."""

    name: str
    """name in results; unique."""
    count: int
    """number of identical bundles, each between its own sites: NAME-1, NAME-2, .., with flows FLOW-1, FLOW-2, .. for each flow of the bundle. Default: one bundle, with exactly this name."""
    pair: str
    """the pair of sites; one bundle in each direction may use the same pair. Default: the name."""
    reversed: bool
    """carries the traffic from B to A. Default: false."""
    enabled: bool
    """false: the sites and their traffic, but no sendbox and no receivebox. Default: true."""
    cc: str | Mapping[str, object]
    """how the bundle's rate is found."""
    qdisc: str | Mapping[str, object]
    """how the sendbox schedules. Default: { kind = "fq_codel", limit = "150ms", target = "25ms", interval = "250ms", follow_rtt = true }."""
    supervised: bool
    """true: the sendbox limits the rate only while it measures a benefit; false: always. Default: true."""
    tuning: object
    """overrides of the sendbox's control parameters; only with `--backend sim`. Default: the values of a deployed sendbox."""
    datapath: Literal["user", "kernel"]
    """where the sendbox queues packets: "kernel" uses its own per-flow queues instead of `qdisc`; only with `--backend emu`, where the hosts then send it super-packets. Default: "user"."""
    forward: Literal["bridge", "route"]
    """how the sendbox's machine forwards: "bridge": a bridge for each pair of sites; "route": one gateway with one NIC, whose sendbox serves all bundles; only with `--backend emu`. Default: "bridge"."""
    min_rate: str
    """lowest rate of the shaper. Default: a quarter of the path's rate, at most 1.2Mbit/s."""
    max_rate: str
    """highest rate of the shaper. Default: none."""
    weight: int
    """weight in sharing the uplink within its group. Default: 1."""
    guarantee: str
    """rate of the uplink reserved for this bundle. Default: none."""
    group: str
    """the group in which the bundle shares the uplink. Default: directly below the uplink."""
    unseen: float | str
    """share of packets that enter site B on a second path, which bypasses the receivebox. Default: 0."""
    clock: str
    """deviation of the receivebox's clock from the run's clock. Default: the run's clock."""
    report_jitter: str
    """largest random delay of the receivebox's messages, uniform; only with `--backend sim`. Default: "0s"."""
    timestamp_jitter: str
    """largest random delay of the timestamps on the bundle's packets, uniform; only with `--backend sim`. Default: "0s"."""


class Uplink(TypedDict, total=False):
    """One sendbox has all bundles from A to B. They share its site's access line by weight. Only with `--backend sim`."""

    rate: str
    """highest rate of all bundles together."""


class Group(TypedDict, total=False):
    """A group of bundles that shares the uplink as one."""

    name: str
    """the name by which bundles and groups refer to it; unique."""
    parent: str
    """the group that contains this one. Default: directly below the uplink."""
    weight: int
    """weight in sharing within its group. Default: 1."""
    guarantee: str
    """rate reserved for the group. Default: the sum of the guarantees within the group."""
    max_rate: str
    """highest rate of the whole group. Default: none."""


class Arm(TypedDict, total=False):
    """A variant in a comparison: its name and its overrides."""

    name: str
    """name in results; unique."""
    summary: str
    """description of the arm in plain words, for the report. Default: none."""
    set: object
    """overrides of the plan. Default: nothing."""


class Cell(TypedDict, total=False):
    """A setting in which every arm runs: its name and its overrides."""

    name: str
    """name in results; unique."""
    set: object
    """overrides of the plan. Default: nothing."""


#: An interval whose metrics are reported as `name.metric`.
Window = TypedDict(
    "Window",
    {
        "name": str,
        "from": str,
        "to": str,
    },
    total=False,
)


#: How each arm is compared with the baseline over time, for the metrics `nrmse_..` (see `forebay list metrics`).
Curves = TypedDict(
    "Curves",
    {
        "from": str,
        "to": str,
        "bin": str,
        "slow_start": str,
    },
    total=False,
)


class FigurePublished(TypedDict, total=False):
    """A published number, shown in the figure and in a table next to an arm's own value."""

    label: str
    """name of the bar. Default: "published"."""
    arm: str
    """arm of the number."""
    cell: str
    """cell of the number. Default: all."""
    value: float
    """the published value, in the unit of the figure."""
    source: str
    """the publication of the number."""


class Figure(TypedDict, total=False):
    """A figure of the report. One is drawn for each cell; bars, curves and figures with one panel per cell are drawn once."""

    kind: Literal["cdf", "bars", "curve", "plane", "timeline", "ribbon", "transitions", "default"]
    """how the figure is drawn."""
    title: str
    """the point of the figure, for its reader. Default: none."""
    metric: str
    """the metric of bars, curve and cdf, and the vertical axis of plane. Default: none."""
    against: str
    """the horizontal axis of plane. Default: none."""
    series: Sequence[str]
    """the quantities of timeline and ribbon, or one for cdf; `*`: one curve for each. Default: none."""
    facet: str
    """one panel for each of these; with arm, each series is a curve, otherwise each arm. Default: one panel; for timeline and ribbon part."""
    baseline: str
    """the arm by which values of other arms are divided (curves: run by run); in a ribbon with one panel per arm, the arm drawn in every panel. Default: none."""
    published: Sequence[FigurePublished]
    """published values, drawn next to the bars. Default: none."""


class Fault(TypedDict, total=False):
    """A signal to a sendbox, a receivebox or the flows' agent during the run. Plans and arms without that program ignore it."""

    at: str
    """when, since the start of the run."""
    bundle: str
    """the bundle of the sendbox or receivebox; not for an agent. Default: required for a sendbox or receivebox."""
    end: Literal["sendbox", "receivebox", "agent"]
    """which program."""
    action: Literal["kill", "stop", "continue", "restart", "starve", "restart_other_key", "restart_full_log", "restart_blocked_log"]
    """the signal to the program."""


class Upset(TypedDict, total=False):
    """A change to a device of a bundle's sites, to the traffic at its receivebox or to its status clients. It happens in every arm, even without a sendbox. With `--backend sim` only unseen, forged, suspend and resume."""

    at: str
    """when, since the start of the run."""
    bundle: str
    """the bundle whose sites change."""
    site: Literal["a", "b"]
    """which site; unseen, forged, suspend and resume are at site B. Default: "a"."""
    what: Literal["down", "up", "leave_bridge", "join_bridge", "mtu", "address", "no_address", "offloads_on", "offloads_off", "remove_lan", "make_lan", "foreign_tc", "status_clients", "metrics_clients", "unseen", "forged", "suspend", "resume"]
    """what changes."""
    mtu: int
    """bytes, with "mtu". Default: none."""
    share: float | str
    """of the packets, with "unseen". Default: none."""
    rate: str
    """of frames with "forged", of queues with "foreign_tc". Default: none."""
    clients: int
    """number of clients with "status_clients" and "metrics_clients", from then on. Default: none."""


class Attack(TypedDict, total=False):
    """Forged, replayed, truncated and oversized messages to a sendbox or receivebox in its peer's name, as fast as a socket accepts them. It first replays the whole session before the first fault, then the newest messages. The attack and the second after it are a window called `attack`."""

    at: str
    """start of the attack, since the start of the run."""
    bundle: str
    """the bundle whose sendbox or receivebox is attacked."""
    target: Literal["sendbox", "receivebox"]
    """which box."""
    messages: int
    """number of messages. Default: 1000000."""
    enabled: bool
    """false: no attack. Default: true."""


class Agent(TypedDict, total=False):
    """The agent of flows with `agent:`. Without effect with `--backend sim`, where algorithms see each acknowledgement."""

    report: str
    """when the kernel reports: each round trip, each acknowledgement, or at this interval. Default: "round"."""
    period: str
    """how often the agent reads reports, at most a quarter of the shortest round trip; 0ms: each report wakes the agent. Default: "10ms"."""


class Cost(TypedDict, total=False):
    """A trial on one processor between `warmup` and `stop`; the arms of a cell and seed are measured together."""

    platform: Literal["kernel", "native", "agent", "empty", "fold"]
    """where the algorithm runs. Default: "kernel"."""
    algorithm: Literal["cubic", "reno", "newreno", "bbr"]
    """the algorithm. Default: "cubic"."""
    over: str
    """the arm of the same cell and seed with which the trial is compared. Default: the plan's baseline."""
    connections: int
    """connections that share the rate. Default: 1."""
    segments: int
    """segments that the kernel hands to the device in one piece at most. Default: no limit."""
    rate: str
    """rate of the traffic; "0bit/s": as fast as possible. Default: searched: the kernel's algorithm takes half to seven tenths of the processor."""
    counter: Literal["idle", "nice19"]
    """how the process runs that counts in the remaining time of the processor. Default: "idle"."""
    turn: str
    """measured time in each turn of an arm; 0s: the arms follow each other. Default: "100ms"."""
    times_programs: bool
    """whether the kernel times the BPF programs. Default: false."""
    burden: str
    """CPU time that an agent wastes per acknowledgement, for a difference of known size. Default: "0s"."""


class PlanKeys(TypedDict, total=False):
    """One experiment: a bottleneck, the traffic over it, the bundles and the arms to compare."""

    name: str
    """name of the experiment in results."""
    title: str
    """heading in the report. Default: the name."""
    description: str
    """purpose of the experiment in plain words; the report lists the values next to it. Default: none."""
    extends: str
    """base plan: its top-level keys apply unless this plan sets them. Default: none."""
    seeds: str
    """seeds to run; every random choice of a run is drawn from its seed. Default: "1..3"."""
    as_published: object
    """values that `--as-published` sets, as in the publication of the experiment. Default: none."""
    aut: object
    """algorithm of flows with `cc = "aut"`; each algorithm of a list becomes an arm with its name, instead of [[arm]]. Default: none."""
    stop: str
    """end of arrivals, counted from the start of the run."""
    warmup: str
    """requests that arrive and bytes that move before this time are not counted. Default: "0s"."""
    stack: Literal["linux", "ns3"]
    """TCP settings in the simulator. Default: "linux"."""
    ecn: Literal["off", "classic"]
    """whether TCP connections negotiate ECN, so that queues with `ecn = true` mark their packets instead of dropping them; algorithms that need marks, such as dctcp, always do. Default: "off"."""
    start_jitter: str
    """largest random delay of each connection's start, drawn from the seed. Default: "0s"."""
    drain: str
    """longest wait for unfinished requests after `stop`. Default: "30s"."""
    bottleneck: Bottleneck
    """the link from site A to site B. Default: none with [cost], else required."""
    reverse: Reverse
    """the reverse link, from site B to site A. Default: unlimited rate, no loss."""
    link: Sequence[Link]
    """links of site pairs whose traffic does not cross the bottleneck. Default: none."""
    topology: Topology
    """many sites, and the links between them. Default: two sites."""
    flow: Sequence[Flow]
    """the traffic. Default: none with [cost], else required."""
    bundle: Sequence[Bundle]
    """the bundles. Default: none."""
    uplink: Uplink
    """the access line of site A, which its bundles share. Default: no shared uplink."""
    group: Sequence[Group]
    """groups of bundles; each group shares the uplink as one. Default: none."""
    arm: Sequence[Arm]
    """the variants to compare. Default: one arm called `default`."""
    arms: Sequence[str]
    """the arms to run, in this order. Default: all arms."""
    baseline: str
    """the arm without the studied mechanism: `.._over_status_quo` ratios compare other arms with it. Default: `status_quo`."""
    ideal: str
    """the arm that shows the best possible result: `.._over_in_network_fq` and `gap_closed` compare other arms with it. Default: `in_network_fq`."""
    alone: str
    """the arm in which flows run alone because competing flows are cut short: `harm_..` compares other arms with it. Default: `solo`."""
    cells: object
    """a grid: every arm runs in every combination of values. Default: one cell."""
    cell: Sequence[Cell]
    """named cells, each combined with the whole grid. Default: none."""
    window: Sequence[Window]
    """additional intervals over which metrics are computed. Default: none."""
    curves: Curves
    """how greedy flows with one connection are compared over time with the baseline. Default: none."""
    figure: Sequence[Figure]
    """figures of the report. Default: [[figure]] kind = "default"."""
    fault: Sequence[Fault]
    """signals sent to the boxes and the agent. Default: none."""
    upset: Sequence[Upset]
    """changes to the sites' devices and to the traffic that receiveboxes see. Default: none."""
    attack: Attack
    """hostile messages sent to a box. Default: none."""
    agent: Agent
    """how the kernel reports to the agent of flows with `agent:`, or of a trial of [cost]. Default: all defaults."""
    cost: Cost
    """trials of the CPU cost of an algorithm, instead of links and traffic (back end emu only). Default: none."""
