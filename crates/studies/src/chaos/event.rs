//! Events that can happen to a bundle, in words and as tables of a plan.

use std::fmt::Write as _;

use forebay_core::random::Stream;

/// Duration of a condition that may do harm as long as it lasts (ms).
pub(super) const LASTING_MS: u64 = 5_700;
/// Time from the kill of a box to its start, for events that only change its configuration (ms).
const RESTART_MS: u64 = 300;
/// Time from the kill of a box to the removal of its device, for events in which the device comes late
/// (ms).
const REMOVED_MS: u64 = 100;
/// Silent clients of a box: as many as its socket queues, and more than it serves in parallel.
const CLIENTS: u64 = 64;
/// Rate that another program gives queues (kbit/s).
const FOREIGN_KBIT: u64 = 100;

/// Back end of a run, which decides the possible events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Venue {
    /// Simulated links and boxes.
    Simulator,
    /// Namespaces, devices, processes.
    Testbed {
        /// The sendbox has the kernel datapath.
        in_kernel: bool,
    },
}

/// A box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At site A.
    Sendbox,
    /// At site B.
    Receivebox,
}

impl End {
    const fn name(self) -> &'static str {
        match self {
            Self::Sendbox => "sendbox",
            Self::Receivebox => "receivebox",
        }
    }

    const fn site(self) -> &'static str {
        match self {
            Self::Sendbox => "a",
            Self::Receivebox => "b",
        }
    }
}

/// Kind of an event. A lasting event begins at [`ChaosEvent::at_ms`] and ends at
/// [`ChaosEvent::until_ms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Both directions of the path lose all packets.
    LinkDown,
    /// Both directions lose this share of the packets (percent).
    Loss(u64),
    /// The route changes: another round trip (ms).
    Route(u64),
    /// A box is killed and started again.
    Kill(End),
    /// A box is stopped and later continues.
    Stop(End),
    /// A box has a processor for a tenth of the time.
    Starve(End),
    /// A box is started with a key that the other one has not, and then with the right one.
    OtherKey(End),
    /// A box is killed and started with its log on a full disk.
    FullLog(End),
    /// A box is killed and started with its log in a full pipe that is never read.
    BlockedLog(End),
    /// This share of the packets passes the receivebox by (percent).
    Unseen(u64),
    /// Packets in the bundle's name that no sendbox has sent (kbit/s).
    Forged(u64),
    /// The WAN device of a box goes down and up.
    DeviceDown(End),
    /// The WAN device of a box leaves its bridge and comes back.
    LeaveBridge(End),
    /// The ports of a box get another MTU (bytes), and then 1500 again.
    Mtu(End, u64),
    /// The bridge of a box gets one more address, and loses it.
    Address(End),
    /// The offloads of the ports of a box are switched on, and off.
    Offloads(End),
    /// The LAN device of a box is removed and made again.
    MadeAgain(End),
    /// A box is killed and started while its LAN device is missing; the device comes later.
    LateDevice(End),
    /// Another program sets the rate of the queues at the sendbox's WAN device.
    ForeignTc,
    /// Silent clients hold connections to the control socket of a box.
    StatusClients(End),
    /// Silent clients hold connections to the metrics port of a box.
    MetricsClients(End),
    /// The clock of the receivebox runs fast by this much (ppm), or slow if negative, and later correctly
    /// again.
    Slew(i64),
    /// The clock of the receivebox is set forward by this much (ms), or back if negative.
    Step(i64),
    /// The machine of the receivebox sleeps.
    Suspend,
}

/// The numbers of the kinds of events that a back end has, as [`EventKind::draw`] takes them.
pub(super) fn kinds(place: Venue) -> Vec<u64> {
    match place {
        // The simulator has no devices, logs, processors or clients.
        Venue::Simulator => (0..8).chain([15, 16, SUSPEND]).collect(),
        // All programs run on one machine.
        Venue::Testbed { in_kernel } => {
            (0..SUSPEND).filter(|number| in_kernel || *number != FOREIGN_TC).collect()
        }
    }
}

/// The number of [`EventKind::ForeignTc`]: only the kernel datapath has queues that `tc` knows.
const FOREIGN_TC: u64 = 21;
/// The number of [`EventKind::Suspend`].
const SUSPEND: u64 = 22;

/// Rates of a slewed clock (ppm): NTP's, twice that, chrony's largest, and more.
const SLEWS: [i64; 4] = [500, 1_000, 83_000, 100_000];
/// Steps of a clock, forward or back (ms).
const STEPS: [i64; 4] = [3, 50, 1_000, 30_000];

impl EventKind {
    /// The kind of this number, its figures drawn from `random`.
    pub(super) fn draw(number: u64, rate_mbit: u64, random: &mut Stream) -> Self {
        let end = if random.below(2) == 0 { End::Sendbox } else { End::Receivebox };
        let figure = random.below(1_000);
        match number {
            0 => Self::LinkDown,
            1 => Self::Loss(5 + figure % 26),
            2 => Self::Route(10 + figure % 91),
            3 => Self::Kill(end),
            4 => Self::Stop(end),
            5 => Self::OtherKey(end),
            6 => Self::Unseen([5, 20, 50, 90][(figure % 4) as usize]),
            // Between a tenth of the link's rate and all of it.
            7 => Self::Forged(rate_mbit * (100 + figure * 9 / 10)),
            8 => Self::FullLog(end),
            9 => Self::BlockedLog(end),
            10 => Self::DeviceDown(end),
            11 => Self::LeaveBridge(end),
            12 => Self::Mtu(end, if figure < 500 { 1400 } else { 2000 }),
            13 => Self::Address(end),
            14 => Self::Offloads(end),
            15 => Self::Slew(signed(SLEWS[(figure % 4) as usize], figure)),
            16 => Self::Step(signed(STEPS[(figure % 4) as usize], figure)),
            17 => Self::Starve(end),
            18 => Self::MadeAgain(end),
            19 => Self::LateDevice(end),
            20 if figure < 500 => Self::StatusClients(end),
            20 => Self::MetricsClients(end),
            FOREIGN_TC => Self::ForeignTc,
            _ => Self::Suspend,
        }
    }

    /// How long it lasts (ms).
    pub(super) fn lasts_ms(self, random: &mut Stream) -> u64 {
        match self {
            Self::Route(_) | Self::Step(_) | Self::ForeignTc => 0,
            Self::FullLog(_) | Self::BlockedLog(_) => RESTART_MS,
            Self::LinkDown
            | Self::Loss(_)
            | Self::DeviceDown(_)
            | Self::LeaveBridge(_)
            | Self::MadeAgain(_) => 200 + random.below(2_000),
            Self::LateDevice(_) => RESTART_MS + 1_000 + random.below(2_000),
            Self::Mtu(_, bytes) if bytes < 1500 => 200 + random.below(1_300),
            // Half of these last a moment; the other half last longer than the peer waits.
            Self::Kill(_) | Self::Stop(_) | Self::Suspend if random.below(2) == 0 => {
                RESTART_MS + random.below(1_500)
            }
            Self::Kill(_)
            | Self::Stop(_)
            | Self::Starve(_)
            | Self::OtherKey(_)
            | Self::StatusClients(_)
            | Self::MetricsClients(_)
            | Self::Unseen(_)
            | Self::Forged(_)
            | Self::Mtu(..)
            | Self::Address(_)
            | Self::Offloads(_)
            | Self::Slew(_)
            | Self::Suspend => LASTING_MS,
        }
    }

    /// Whether the path carries less, or nothing, while the event lasts, with boxes or without.
    pub fn is_outage(self) -> bool {
        match self {
            Self::LinkDown
            | Self::Loss(_)
            | Self::DeviceDown(_)
            | Self::LeaveBridge(_)
            | Self::MadeAgain(_)
            | Self::LateDevice(_) => true,
            Self::Mtu(_, bytes) => bytes < 1500,
            _ => false,
        }
    }
}

/// One event of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChaosEvent {
    /// When it happens or begins (ms since the start of the run).
    pub at_ms: u64,
    /// When it ends; the same where it does not last.
    pub until_ms: u64,
    /// Kind of the event.
    pub kind: EventKind,
}

impl ChaosEvent {
    /// In words.
    pub fn words(&self) -> String {
        let s = |ms: u64| ms as f64 / 1e3;
        let (at, lasts) = (s(self.at_ms), s(self.until_ms - self.at_ms));
        let what = match self.kind {
            EventKind::LinkDown => format!("the path loses every packet for {lasts} s"),
            EventKind::Loss(percent) => {
                format!("the path loses {percent} % of the packets for {lasts} s")
            }
            EventKind::Route(rtt_ms) => {
                format!("the route changes: the round trip takes {rtt_ms} ms")
            }
            EventKind::Kill(end) => {
                format!("the {} is killed and started again {lasts} s later", end.name())
            }
            EventKind::Stop(end) => {
                format!("the {} is stopped and continues {lasts} s later", end.name())
            }
            EventKind::Starve(end) => {
                format!("the {} gets a tenth of a processor for {lasts} s", end.name())
            }
            EventKind::OtherKey(end) => {
                format!(
                    "the {} is started with a wrong key, and with its own {lasts} s later",
                    end.name()
                )
            }
            EventKind::FullLog(end) => {
                format!("the {} is started with its log on a full disk", end.name())
            }
            EventKind::BlockedLog(end) => {
                format!("the {} is started with its log in a pipe that is never read", end.name())
            }
            EventKind::Unseen(percent) => {
                format!("{percent} % of the packets bypass the receivebox for {lasts} s")
            }
            EventKind::Forged(kbit) => {
                format!(
                    "{} Mbit/s of forged packets arrive in the bundle's name for {lasts} s",
                    s(kbit)
                )
            }
            EventKind::DeviceDown(end) => {
                format!("the WAN device of site {} is down for {lasts} s", end.site())
            }
            EventKind::LeaveBridge(end) => {
                format!("the WAN device of site {} is out of its bridge for {lasts} s", end.site())
            }
            EventKind::Mtu(end, bytes) => {
                format!(
                    "the ports of the box at site {} have an MTU of {bytes} for {lasts} s",
                    end.site()
                )
            }
            EventKind::Address(end) => {
                format!("the bridge of site {} has an additional address for {lasts} s", end.site())
            }
            EventKind::Offloads(end) => {
                format!(
                    "the ports of the box at site {} have offloads enabled for {lasts} s",
                    end.site()
                )
            }
            EventKind::MadeAgain(end) => format!(
                "the LAN device of site {} is removed and created again {lasts} s later",
                end.site()
            ),
            EventKind::LateDevice(end) => format!(
                "the {} is killed and started while its LAN device is missing for {lasts} s",
                end.name()
            ),
            EventKind::ForeignTc => {
                format!("another program sets the sendbox's queues to {FOREIGN_KBIT} kbit/s")
            }
            EventKind::StatusClients(end) => format!(
                "{CLIENTS} silent clients hold the control socket of the {} for {lasts} s",
                end.name()
            ),
            EventKind::MetricsClients(end) => format!(
                "{CLIENTS} silent clients hold the metrics port of the {} for {lasts} s",
                end.name()
            ),
            EventKind::Slew(ppm) => {
                format!("the receivebox's clock is {} for {lasts} s", fast_or_slow(ppm))
            }
            EventKind::Step(ms) => {
                format!("the receivebox's clock jumps {} s", forward_or_back(ms))
            }
            EventKind::Suspend => format!("the receivebox's machine is suspended for {lasts} s"),
        };
        format!("{at} s: {what}")
    }
}

impl ChaosEvent {
    /// Adds its tables to a plan.
    pub(super) fn write(&self, text: &mut String) {
        let Self { at_ms, until_ms, kind } = *self;
        match kind {
            EventKind::LinkDown => self.write_loss(text, 100),
            EventKind::Loss(percent) => self.write_loss(text, percent),
            EventKind::Route(rtt_ms) => {
                let _ = write!(
                    text,
                    "\n[[bottleneck.change]]\nat = \"{at_ms}ms\"\nrtt = \"{rtt_ms}ms\"\n"
                );
            }
            EventKind::Kill(end) => {
                write_faults(text, end, &[(at_ms, "kill"), (until_ms, "restart")])
            }
            EventKind::Stop(end) => {
                write_faults(text, end, &[(at_ms, "stop"), (until_ms, "continue")])
            }
            EventKind::Starve(end) => {
                write_faults(text, end, &[(at_ms, "starve"), (until_ms, "continue")]);
            }
            EventKind::OtherKey(end) => write_faults(
                text,
                end,
                &[
                    (at_ms, "kill"),
                    (at_ms + RESTART_MS, "restart_other_key"),
                    (until_ms - RESTART_MS, "kill"),
                    (until_ms, "restart"),
                ],
            ),
            EventKind::FullLog(end) => {
                write_faults(text, end, &[(at_ms, "kill"), (until_ms, "restart_full_log")]);
            }
            EventKind::BlockedLog(end) => {
                write_faults(text, end, &[(at_ms, "kill"), (until_ms, "restart_blocked_log")]);
            }
            EventKind::Unseen(percent) => {
                self.write_upsets(
                    text,
                    "b",
                    ["unseen", "unseen"],
                    [&format!("share = \"{percent}%\"\n"), "share = 0\n"],
                );
            }
            EventKind::Forged(kbit) => {
                self.write_upsets(
                    text,
                    "b",
                    ["forged", "forged"],
                    [&format!("rate = \"{kbit}kbit/s\"\n"), "rate = \"0kbit/s\"\n"],
                );
            }
            EventKind::DeviceDown(end) => {
                self.write_upsets(text, end.site(), ["down", "up"], [""; 2])
            }
            EventKind::LeaveBridge(end) => {
                self.write_upsets(text, end.site(), ["leave_bridge", "join_bridge"], [""; 2]);
            }
            EventKind::Mtu(end, bytes) => {
                let first = format!("mtu = {bytes}\n");
                self.write_upsets(text, end.site(), ["mtu", "mtu"], [&first, "mtu = 1500\n"]);
            }
            EventKind::Address(end) => {
                self.write_upsets(text, end.site(), ["address", "no_address"], [""; 2]);
            }
            EventKind::Offloads(end) => {
                self.write_upsets(text, end.site(), ["offloads_on", "offloads_off"], [""; 2]);
            }
            EventKind::MadeAgain(end) => {
                self.write_upsets(text, end.site(), ["remove_lan", "make_lan"], [""; 2]);
            }
            EventKind::LateDevice(end) => {
                let [removed_ms, restart_ms] = [REMOVED_MS, RESTART_MS].map(|after| at_ms + after);
                write_faults(text, end, &[(at_ms, "kill"), (restart_ms, "restart")]);
                Self { at_ms: removed_ms, ..*self }.write_upsets(
                    text,
                    end.site(),
                    ["remove_lan", "make_lan"],
                    [""; 2],
                );
            }
            EventKind::ForeignTc => {
                let figure = format!("rate = \"{FOREIGN_KBIT}kbit/s\"\n");
                write_upset(text, End::Sendbox.site(), at_ms, "foreign_tc", &figure);
            }
            EventKind::StatusClients(end) => self.write_clients(text, end, "status_clients"),
            EventKind::MetricsClients(end) => self.write_clients(text, end, "metrics_clients"),
            EventKind::Suspend => self.write_upsets(text, "b", ["suspend", "resume"], [""; 2]),
            // In the bundle's table.
            EventKind::Slew(_) | EventKind::Step(_) => {}
        }
    }

    /// Both directions lose `percent` of the packets from the beginning to the end.
    fn write_loss(&self, text: &mut String, percent: u64) {
        for link in ["bottleneck", "reverse"] {
            for (at_ms, percent) in [(self.at_ms, percent), (self.until_ms, 0)] {
                let _ = write!(
                    text,
                    "\n[[{link}.change]]\nat = \"{at_ms}ms\"\nloss = \"{percent}%\"\n"
                );
            }
        }
    }

    /// `what` at the beginning and at the end, each with its figures.
    fn write_upsets(&self, text: &mut String, site: &str, what: [&str; 2], figures: [&str; 2]) {
        for ((at_ms, what), figure) in
            [self.at_ms, self.until_ms].into_iter().zip(what).zip(figures)
        {
            write_upset(text, site, at_ms, what, figure);
        }
    }

    /// Clients at the beginning, and none from the end on.
    fn write_clients(&self, text: &mut String, end: End, what: &str) {
        let clients = format!("clients = {CLIENTS}\n");
        self.write_upsets(text, end.site(), [what; 2], [&clients, "clients = 0\n"]);
    }
}

fn write_upset(text: &mut String, site: &str, at_ms: u64, what: &str, figure: &str) {
    let _ = write!(
        text,
        "\n[[upset]]\nat = \"{at_ms}ms\"\nbundle = \"a\"\nsite = \"{site}\"\nwhat = \"{what}\"\n{figure}"
    );
}

fn write_faults(text: &mut String, end: End, faults: &[(u64, &str)]) {
    for (at_ms, action) in faults {
        let _ = write!(
            text,
            "\n[[fault]]\nat = \"{at_ms}ms\"\nbundle = \"a\"\nend = \"{}\"\naction = \"{action}\"\n",
            end.name()
        );
    }
}

/// `figure` draws the sign of `value`.
fn signed(value: i64, figure: u64) -> i64 {
    if figure < 500 { value } else { -value }
}

fn fast_or_slow(ppm: i64) -> String {
    format!("{} by {} ppm", if ppm < 0 { "slow" } else { "fast" }, ppm.abs())
}

fn forward_or_back(ms: i64) -> String {
    format!("{} by {}", if ms < 0 { "back" } else { "forward" }, ms.abs() as f64 / 1e3)
}
