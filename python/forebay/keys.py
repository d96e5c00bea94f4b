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
    """A change of the link; what is not given stays."""

    at: str
    """when, since the start of the run."""
    rate: str
    """new rate, from the next packet on; "0bit/s": nothing is sent. Default: as before."""
    rtt: str
    """new two-way delay, half of it in each direction. Default: as before."""
    loss: float | str
    """new loss probability. Default: as before."""


class BottleneckPulse(TypedDict, total=False):
    """A pulse wave: the bottleneck changes from its own value to another one and back, in turn, until the plan's stop."""

    of: Literal["rate", "rtt", "loss"]
    """what changes."""
    every: str
    """time at each value."""
    to: object
    """the other value."""


class BottleneckWalk(TypedDict, total=False):
    """A random walk of the way there, or of the way back, drawn from the seed: in each step d becomes correlation x d + noise, and the value moves by d. With `--backend sim` alone."""

    of: Literal["rate", "delay", "loss"]
    """what walks."""
    every: str
    """time between steps."""
    correlation: float
    """of each step with the one before. Default: 0."""
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
    """what comes after the end of `trace`. Default: "repeat"."""
    path: object
    """a path that somebody measured: its `rate` or `trace`, `rtt`, `loss` and `qdisc` hold where the plan has none. Default: none."""
    rtt: str
    """two-way propagation delay, half of it in each direction."""
    jitter: str
    """each packet takes longer than the delay, uniformly up to this, and waits for those before it. Default: "0s"."""
    batch: str
    """packets leave together, at whole multiples of this, as those of a link that waits for its turn. Default: "0s"."""
    loss: float | str
    """probability that a packet is lost before the queue. Default: 0."""
    message_loss: float | str
    """loss of messages of a sendbox, beside `loss`. Default: 0."""
    reorder: float | str
    """probability that a packet is held back; above 0 packets also overtake when a trace shortens the delay. Default: 0."""
    reorder_packets: int
    """how many later packets overtake a held one. Default: 3."""
    qdisc: str | Mapping[str, object]
    """the queue."""
    clears_ecn: bool
    """packets come to the queue as not ECN-capable, as out of a tunnel in compatibility mode (RFC 6040) or over a path that clears the field: they are dropped and not marked. Default: false."""
    paths: int
    """links side by side, each with its share of the rate and of the queue's limit in packets or bytes; their rows are path-1, path-2, ..; with `--backend sim` alone. Default: 1."""
    balance: Literal["flow", "packet"]
    """how packets are shared among several paths. Default: "flow"."""
    path_spread: str
    """by how much the last of several paths is longer than the first, one way; those between in equal steps. Default: "0s"."""
    hops: int
    """links in a row, each like this one and the propagation behind the first; the rows of those behind it are hop-2, hop-3, ..; with `--backend sim` alone. Default: 1."""
    change: Sequence[BottleneckChange]
    """changes during the run. Default: none."""
    pulse: Sequence[BottleneckPulse]
    """changes to another value and back, in turn. Default: none."""
    walk: Sequence[BottleneckWalk]
    """random walks during the run; with one path. Default: none."""


class ReverseChange(TypedDict, total=False):
    """A change of the link back; what is not given stays. The delay of the link back is half of the bottleneck's `rtt`, changes of `rtt` included."""

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
    """what comes after the end of `trace`. Default: "repeat"."""
    jitter: str
    """each packet takes longer than the delay, uniformly up to this, and waits for those before it. Default: "0s"."""
    batch: str
    """packets leave together, at whole multiples of this, as those of a link that waits for its turn. Default: "0s"."""
    loss: float | str
    """probability that a packet is lost before the queue. Default: 0."""
    message_loss: float | str
    """loss of messages of a receivebox, beside `loss`. Default: 0."""
    reorder: float | str
    """probability that a packet is held back; above 0 packets also overtake when a trace shortens the delay. Default: 0."""
    reorder_packets: int
    """how many later packets overtake a held one. Default: 3."""
    qdisc: str | Mapping[str, object]
    """the queue. Default: { kind = "fifo", limit = "10000p" }."""
    ack_filter: bool
    """an acknowledgement that waits goes when a later one of its connection tells all that it does. Default: false."""
    change: Sequence[ReverseChange]
    """changes during the run. Default: none."""
    walk: Sequence[BottleneckWalk]
    """random walks during the run. Default: none."""


class Link(TypedDict, total=False):
    """The link of a pair of sites that does not take the bottleneck: another way into the world, with no bottleneck on the way back. With `--backend sim` alone."""

    name: str
    """names the pair of sites, which has flows or a bundle, and the rows; unique."""
    rate: str
    """rate of layer-2 frames without FCS. Default: `trace` instead."""
    trace: str
    """rate over time instead of `rate`; CSV also delay over time, and loss instead of `loss`. Default: none."""
    trace_end: Literal["repeat", "hold"]
    """what comes after the end of `trace`. Default: "repeat"."""
    rtt: str
    """two-way propagation delay, half of it in each direction."""
    jitter: str
    """each packet takes longer than the delay, uniformly up to this, and waits for those before it. Default: "0s"."""
    batch: str
    """packets leave together, at whole multiples of this, as those of a link that waits for its turn. Default: "0s"."""
    loss: float | str
    """probability that a packet is lost before the queue. Default: 0."""
    message_loss: float | str
    """loss of messages of a sendbox, beside `loss`. Default: 0."""
    reorder: float | str
    """probability that a packet is held back; above 0 packets also overtake when a trace shortens the delay. Default: 0."""
    reorder_packets: int
    """how many later packets overtake a held one. Default: 3."""
    qdisc: str | Mapping[str, object]
    """the queue."""
    clears_ecn: bool
    """packets come to the queue as not ECN-capable, as out of a tunnel in compatibility mode (RFC 6040) or over a path that clears the field: they are dropped and not marked. Default: false."""
    change: Sequence[BottleneckChange]
    """changes during the run. Default: none."""


class Topology(TypedDict, total=False):
    """Many sites at routers, which transit links join, drawn from the seed: routers that have many links get more of them, and what sites send follows the gravity model. Each transit link is like [bottleneck], with half to one and a half of its delay. Connections of a flow run between sites that are drawn for each, and rows are those of NAME-deployers and NAME-others. With `--backend sim` alone."""

    sites: int
    """how many sites there are, at least one at each router."""
    routers: int
    """how many routers join the sites; each but two has links to two of those before it."""
    peers: int
    """to how many sites at other routers each site sends. Default: 1."""
    utilization: float | str
    """answers offered to a transit link over its rate, which is at least that of the bottleneck; headers and acknowledgements come on top. Default: "85%"."""
    deployment: float | str
    """share of the sites that have a sendbox, with a bundle like the plan's to each site that they send to; always the first of the same random order. Default: "100%"."""


class FlowTrafficGreedy(TypedDict, total=False):
    """TCP connections that always have data."""

    kind: Required[Literal["greedy"]]
    """the kind of traffic."""


class FlowTrafficRequests(TypedDict, total=False):
    """Open-loop requests over TCP connections; the answers load the link."""

    kind: Required[Literal["requests"]]
    """the kind of traffic."""
    sizes: str
    """sizes of the answers."""
    load: str
    """bytes of answers offered over time."""
    connections: object
    """persistent connections; "each": every request opens one of its own, which costs it a round trip more, and closes it. Default: 200."""
    sampling: Literal["strata", "iid"]
    """how sizes are drawn. Default: "strata"."""


class FlowTrafficVideo(TypedDict, total=False):
    """Clients that play a video, each over a persistent TCP connection, at the rate that 0.85 of the throughput of the last five segments (their harmonic mean) allows. They ask for a segment as soon as it has room in the buffer."""

    kind: Required[Literal["video"]]
    """the kind of traffic."""
    segment: str
    """playing time of a segment. Default: "4s"."""
    rates: Sequence[str]
    """rates that there are of each segment; by default what YouTube recommends for uploads of 360 to 1440 lines. Default: ["1Mbit/s", "2500kbit/s", "5Mbit/s", "8Mbit/s", "16Mbit/s"]."""
    buffer: str
    """most playing time that is fetched ahead. Default: "30s"."""
    startup: str
    """what is fetched before playback begins. Default: one segment."""


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
    """names the rows; unique. Default: the kind of traffic."""
    traffic: FlowTrafficGreedy | FlowTrafficRequests | FlowTrafficVideo | FlowTrafficCbr | FlowTrafficPoisson | FlowTrafficOnOff | FlowTrafficPing
    """what is sent."""
    cc: str | Mapping[str, object]
    """congestion control of the TCP sockets, and where the algorithm runs; reno is newreno. Default: "cubic"."""
    count: int
    """how many alike (not requests). Default: 1."""
    start: str
    """first byte. Default: "0s"."""
    stop: str
    """last byte or arrival. Default: the plan's stop."""
    rtt: str
    """two-way propagation delay of this flow. Default: the bottleneck's."""
    hop: int
    """the one link of several in a row that its data take. Default: all of them."""
    dscp: int
    """DSCP of all its packets, both ways, for queues whose `classes` have rules about it. Default: 0."""
    initial_window: int
    """segments that a TCP sender has in flight before the first acknowledgement, and again after an idle time; on the testbed one number for all that sends the same way between a pair of sites. Default: 10."""
    receiver: str | Mapping[str, object]
    """whether the receivers acknowledge what has come, or what serves them. Default: "honest"."""
    read_rate: str
    """payload that each receiving application reads at most: what waits for it closes the window. Default: at once."""
    receive_buffer: str
    """payload that each receiver holds, which it announces as its window. Default: that of the stack."""
    ack_every: int
    """full segments in order that share an acknowledgement. Default: that of the stack."""
    ack_delay: str
    """longest that an acknowledgement waits for more segments, whatever their pace. Default: that of the stack."""
    ttl: int
    """time to live: 1 ends at a router before the queue, 2 at one behind the link, before the receivebox. Default: the hosts'."""
    bundle: str
    """runs between the sites of that bundle. Default: none."""
    pair: str
    """runs between a pair of sites of this name, in no bundle. Default: "cross"."""
    reversed: bool
    """data runs from B to A. Default: false."""


class Bundle(TypedDict, total=False):
    """The traffic from one site to another, measured and paced as one."""

    name: str
    """names the rows; unique."""
    count: int
    """so many bundles alike, each between sites of its own: NAME-1, NAME-2, .., with flows FLOW-1, FLOW-2, .. for each flow of the bundle. Default: one, called as it is."""
    pair: str
    """the pair of sites; a bundle each way may share one. Default: the name."""
    reversed: bool
    """carries the traffic from B to A. Default: false."""
    enabled: bool
    """false: the sites and their traffic, no boxes. Default: true."""
    cc: str | Mapping[str, object]
    """how the bundle's rate is found."""
    qdisc: str | Mapping[str, object]
    """how the sendbox schedules. Default: { kind = "fq_codel", limit = "150ms", target = "25ms", interval = "250ms", follow_rtt = true }."""
    supervised: bool
    """the sendbox enforces limits only while it measures that they pay; false: they always hold. Default: true."""
    tuning: object
    """other numbers than those that the sendbox's control is tuned by; with `--backend sim` alone. Default: what boxes run with."""
    datapath: Literal["user", "kernel"]
    """where the sendbox queues: "kernel" has queues by flow of its own in the place of qdisc; with `--backend emu` alone, where the hosts in front hand it super-packets. Default: "user"."""
    forward: Literal["bridge", "route"]
    """what forwards where the sendbox is: "bridge" one for each pair of sites, "route" one gateway with one NIC, whose sendbox has all bundles; with `--backend emu` alone. Default: "bridge"."""
    min_rate: str
    """lower bound of the shaper. Default: a quarter of what the path carries, at most 1.2Mbit/s."""
    max_rate: str
    """upper bound of the shaper. Default: none."""
    weight: int
    """share of the uplink beside those in the same group. Default: 1."""
    guarantee: str
    """what is there of the uplink, whatever others ask for. Default: none."""
    group: str
    """the group of bundles that shares the uplink with others as one. Default: directly below the uplink."""
    unseen: float | str
    """packets that take a second way into site B, past the receivebox. Default: 0."""
    clock: str
    """what the receivebox reads the time on, compared with the run's. Default: that of the run."""
    report_jitter: str
    """messages of the receivebox leave late, uniformly up to this; with `--backend sim` alone. Default: "0s"."""
    timestamp_jitter: str
    """packets of the bundle are stamped late, uniformly up to this; with `--backend sim` alone. Default: "0s"."""


class Uplink(TypedDict, total=False):
    """All bundles from A to B are of one sendbox, and share the line of its site by weights. With `--backend sim` alone."""

    rate: str
    """what they send together at the most."""


class Group(TypedDict, total=False):
    """Bundles that share the uplink with others as one."""

    name: str
    """what bundles and groups call it; unique."""
    parent: str
    """the group that this one is in. Default: directly below the uplink."""
    weight: int
    """share among those in the same group. Default: 1."""
    guarantee: str
    """what is there for all within. Default: what is guaranteed within."""
    max_rate: str
    """all within together are never faster. Default: none."""


class Arm(TypedDict, total=False):
    """One side of a comparison: a name and what it changes."""

    name: str
    """names the rows; unique."""
    summary: str
    """what the arm is, in plain words, for the report. Default: none."""
    set: object
    """overrides of the plan. Default: nothing."""


class Cell(TypedDict, total=False):
    """A setting in which every arm is run: a name and what it changes."""

    name: str
    """names the rows; unique."""
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


#: How each arm is compared with the baseline over time: `forebay list metrics` has `nrmse_..`.
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
    """A number that somebody else reports, drawn and tabled beside an arm's own."""

    label: str
    """name of the bar. Default: "published"."""
    arm: str
    """arm of the number."""
    cell: str
    """cell of the number. Default: all."""
    value: float
    """what is reported, in the unit of the figure."""
    source: str
    """where the number is reported."""


class Figure(TypedDict, total=False):
    """A figure of the report, drawn of every cell; bars, curves and those with a panel a cell once."""

    kind: Literal["cdf", "bars", "curve", "plane", "timeline", "ribbon", "transitions", "default"]
    """how it is drawn."""
    title: str
    """what to see in the figure. Default: none."""
    metric: str
    """what bars, curve and cdf show, and plane shows upwards. Default: none."""
    against: str
    """what plane shows to the right. Default: none."""
    series: Sequence[str]
    """what timeline and ribbon show, and cdf of one; `*`: of each. Default: none."""
    facet: str
    """what each panel is of; with arm the curves are the series, else the arms. Default: one panel; of timeline and ribbon part."""
    baseline: str
    """the arm that bars of the others are divided by, and curves run by run; in a ribbon with a panel per arm, the arm that is drawn in every panel. Default: none."""
    published: Sequence[FigurePublished]
    """what others report, beside the bars. Default: none."""


class Fault(TypedDict, total=False):
    """A signal to a box, or to the agent of the flows, during the run. A plan or an arm without that program goes on without the fault."""

    at: str
    """when, since the start of the run."""
    bundle: str
    """the bundle whose box it is; not for an agent. Default: required of a box."""
    end: Literal["sendbox", "receivebox", "agent"]
    """which program."""
    action: Literal["kill", "stop", "continue", "restart", "starve", "restart_other_key", "restart_full_log", "restart_blocked_log"]
    """what happens to the program."""


class Upset(TypedDict, total=False):
    """A change of a device of a bundle's sites, of what comes to its receivebox, or of who asks its boxes, in every arm: also in those without the boxes. With `--backend sim` only unseen, forged, suspend and resume."""

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
    """how many with "status_clients" and "metrics_clients", from then on. Default: none."""


class Attack(TypedDict, total=False):
    """Forged, replayed, truncated and oversized messages to a box in its peer's name, as fast as a socket takes them. Replayed are the newest messages and the session before the first fault, that one first as a whole. Its time and the second after it are a window called `attack`."""

    at: str
    """when it begins, since the start of the run."""
    bundle: str
    """the bundle whose box is attacked."""
    target: Literal["sendbox", "receivebox"]
    """which box."""
    messages: int
    """how many messages. Default: 1000000."""
    enabled: bool
    """false: no attack. Default: true."""


class Agent(TypedDict, total=False):
    """The agent of flows with `agent:`. Without effect with `--backend sim`, where algorithms hear of each acknowledgement."""

    report: str
    """how often the kernel reports: each round trip, each acknowledgement, each so often. Default: "round"."""
    period: str
    """time between two looks at the reports, at most a quarter of the shortest round trip; 0ms: each report wakes the agent. Default: "10ms"."""


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
    """One experiment: a bottleneck, traffic over it, bundles around it, arms to compare."""

    name: str
    """names the results."""
    title: str
    """heading in the report. Default: the name."""
    description: str
    """what the experiment shows, in plain words; values are shown beside it. Default: none."""
    extends: str
    """top-level keys of that plan hold where this plan has none of that name. Default: none."""
    seeds: str
    """every random choice of a run is drawn from its seed. Default: "1..3"."""
    as_published: object
    """what `--as-published` sets: whoever published the experiment ran it so. Default: none."""
    aut: object
    """what flows with `cc = "aut"` have; each of several is an arm of its name, instead of [[arm]]. Default: none."""
    stop: str
    """end of arrivals, counted from the start of the run."""
    warmup: str
    """requests arriving and bytes moving before are not counted. Default: "0s"."""
    stack: Literal["linux", "ns3"]
    """how TCP's switches stand in the simulator. Default: "linux"."""
    ecn: Literal["off", "classic"]
    """whether queues whose `ecn` is true can mark packets of TCP instead of dropping them; those of an algorithm that needs marks, such as dctcp, they always can. Default: "off"."""
    start_jitter: str
    """each connection starts later by a share of it that is drawn from the seed. Default: "0s"."""
    drain: str
    """longest wait for unfinished requests after `stop`. Default: "30s"."""
    bottleneck: Bottleneck
    """the link from site A to site B. Default: none beside [cost], else required."""
    reverse: Reverse
    """the link back. Default: unlimited rate, no loss."""
    link: Sequence[Link]
    """links of pairs of sites that do not take the bottleneck. Default: none."""
    topology: Topology
    """many sites, and the links between them. Default: two sites."""
    flow: Sequence[Flow]
    """the traffic. Default: none beside [cost], else required."""
    bundle: Sequence[Bundle]
    """the bundles. Default: none."""
    uplink: Uplink
    """the line of site A, which its bundles share. Default: nothing is shared out."""
    group: Sequence[Group]
    """groups of bundles, which share the uplink as one. Default: none."""
    arm: Sequence[Arm]
    """what is compared. Default: one arm called `default`."""
    arms: Sequence[str]
    """which arms are run, in this order. Default: all arms."""
    baseline: str
    """the arm without what is studied: ratios `.._over_status_quo` compare the arms with it. Default: `status_quo`."""
    ideal: str
    """the arm that shows what is possible: `.._over_in_network_fq` and `gap_closed` compare the arms with it. Default: `in_network_fq`."""
    alone: str
    """the arm in which flows run alone since the others hardly live: `harm_..` compares the arms with it. Default: `solo`."""
    cells: object
    """a grid: every arm is run in every combination. Default: one cell."""
    cell: Sequence[Cell]
    """cells with a name, each of them with all of the grid. Default: none."""
    window: Sequence[Window]
    """further intervals over which metrics are taken. Default: none."""
    curves: Curves
    """how greedy flows of one connection are compared with those of the baseline over time. Default: none."""
    figure: Sequence[Figure]
    """what the report draws. Default: [[figure]] kind = "default"."""
    fault: Sequence[Fault]
    """signals sent to the boxes and the agent. Default: none."""
    upset: Sequence[Upset]
    """changes of the sites' devices and of what receiveboxes see. Default: none."""
    attack: Attack
    """hostile messages sent to a box. Default: none."""
    agent: Agent
    """how the agent of flows with `agent:`, or of a trial of [cost], hears of them. Default: all defaults."""
    cost: Cost
    """trials of the cost of an algorithm, instead of links and traffic (back end emu only). Default: none."""
