//! What can happen to a bundle, in words and as tables of a plan.

use std::fmt::Write as _;

use forebay_core::random::Stream;

/// How long a condition lasts that may harm as long as it lasts (ms).
pub(super) const LASTING_MS: u64 = 5_700;
/// How long a box takes to be started again where it is away for its configuration alone (ms).
const RESTART_MS: u64 = 300;
/// From the kill of a box to the removal of a device that comes late (ms).
const REMOVED_MS: u64 = 100;
/// Silent clients of a box: as many as its socket queues, and more than it serves at once.
const CLIENTS: u64 = 64;
/// What another program sets queues to (kbit/s).
const FOREIGN_KBIT: u64 = 100;

/// What a back end can do to a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
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

/// What happens. Where it lasts, it begins at [`Event::at_ms`] and ends at [`Event::until_ms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Both directions of the path lose everything.
    LinkDown,
    /// Both directions lose this share of the packets (percent).
    Loss(u64),
    /// The route changes: another round trip (ms).
    Route(u64),
    /// A box is killed and started again.
    Kill(End),
    /// A box is stopped and goes on.
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
    /// A box is killed and started while its LAN device is not there, which comes later.
    LateDevice(End),
    /// Another program sets the rate of the queues at the sendbox's WAN device.
    ForeignTc,
    /// Silent clients hold connections to the control socket of a box.
    StatusClients(End),
    /// Silent clients hold connections to the metrics port of a box.
    MetricsClients(End),
    /// The clock of the receivebox is fast by so much (ppm), or slow, and right again.
    Slew(i64),
    /// The clock of the receivebox is put on by so much (ms), or back.
    Step(i64),
    /// The machine of the receivebox sleeps.
    Suspend,
}

/// The numbers of the kinds of events that a back end has, as [`Kind::draw`] takes them.
pub(super) fn kinds(place: Place) -> Vec<u64> {
    match place {
        // No devices, no logs, no processors and no clients.
        Place::Simulator => (0..8).chain([15, 16, SUSPEND]).collect(),
        // All programs run on one machine.
        Place::Testbed { in_kernel } => {
            (0..SUSPEND).filter(|number| in_kernel || *number != FOREIGN_TC).collect()
        }
    }
}

/// The number of [`Kind::ForeignTc`]: only the kernel datapath has queues that `tc` knows.
const FOREIGN_TC: u64 = 21;
/// The number of [`Kind::Suspend`].
const SUSPEND: u64 = 22;

/// How far a clock is slewed (ppm): as by NTP and twice that, as chrony does at the most, and beyond.
const SLEWS: [i64; 4] = [500, 1_000, 83_000, 100_000];
/// How far a clock is put on or back (ms).
const STEPS: [i64; 4] = [3, 50, 1_000, 30_000];

impl Kind {
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
            // A tenth of the link's rate to all of it.
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
            // As often for a moment as for longer than its peer waits.
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

    /// The path carries less, or nothing, as long as it lasts, with boxes or without.
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
pub struct Event {
    /// When it happens or begins (ms since the start of the run).
    pub at_ms: u64,
    /// When it ends; the same where it does not last.
    pub until_ms: u64,
    /// What happens.
    pub kind: Kind,
}

impl Event {
    /// In words.
    pub fn words(&self) -> String {
        let s = |ms: u64| ms as f64 / 1e3;
        let (at, lasts) = (s(self.at_ms), s(self.until_ms - self.at_ms));
        let what = match self.kind {
            Kind::LinkDown => format!("the path loses everything for {lasts} s"),
            Kind::Loss(percent) => {
                format!("the path loses {percent} % of the packets for {lasts} s")
            }
            Kind::Route(rtt_ms) => format!("the route changes: the round trip takes {rtt_ms} ms"),
            Kind::Kill(end) => {
                format!("the {} is killed, and started again {lasts} s later", end.name())
            }
            Kind::Stop(end) => {
                format!("the {} is stopped, and goes on {lasts} s later", end.name())
            }
            Kind::Starve(end) => {
                format!("the {} has a processor for a tenth of {lasts} s", end.name())
            }
            Kind::OtherKey(end) => {
                format!(
                    "the {} is started with another key, and with its own {lasts} s later",
                    end.name()
                )
            }
            Kind::FullLog(end) => {
                format!("the {} is started with its log on a full disk", end.name())
            }
            Kind::BlockedLog(end) => {
                format!("the {} is started with its log in a pipe that is never read", end.name())
            }
            Kind::Unseen(percent) => {
                format!("{percent} % of the packets pass the receivebox by for {lasts} s")
            }
            Kind::Forged(kbit) => {
                format!("{} Mbit/s are forged in the bundle's name for {lasts} s", s(kbit))
            }
            Kind::DeviceDown(end) => {
                format!("the WAN device of site {} is down for {lasts} s", end.site())
            }
            Kind::LeaveBridge(end) => {
                format!("the WAN device of site {} is out of its bridge for {lasts} s", end.site())
            }
            Kind::Mtu(end, bytes) => {
                format!(
                    "the ports of the box at site {} have an MTU of {bytes} for {lasts} s",
                    end.site()
                )
            }
            Kind::Address(end) => {
                format!("the bridge of site {} has one more address for {lasts} s", end.site())
            }
            Kind::Offloads(end) => {
                format!("the ports of the box at site {} have offloads for {lasts} s", end.site())
            }
            Kind::MadeAgain(end) => format!(
                "the LAN device of site {} is removed, and made again {lasts} s later",
                end.site()
            ),
            Kind::LateDevice(end) => format!(
                "the {} is killed and started while its LAN device is not there for {lasts} s",
                end.name()
            ),
            Kind::ForeignTc => {
                format!("another program sets the sendbox's queues to {FOREIGN_KBIT} kbit/s")
            }
            Kind::StatusClients(end) => format!(
                "{CLIENTS} silent clients hold the control socket of the {} for {lasts} s",
                end.name()
            ),
            Kind::MetricsClients(end) => format!(
                "{CLIENTS} silent clients hold the metrics port of the {} for {lasts} s",
                end.name()
            ),
            Kind::Slew(ppm) => {
                format!("the receivebox's clock is {} for {lasts} s", fast_or_slow(ppm))
            }
            Kind::Step(ms) => {
                format!("the receivebox's clock is put {} s", on_or_back(ms))
            }
            Kind::Suspend => format!("the receivebox's machine sleeps for {lasts} s"),
        };
        format!("{at} s: {what}")
    }
}

impl Event {
    /// Adds its tables to a plan.
    pub(super) fn write(&self, text: &mut String) {
        let Self { at_ms, until_ms, kind } = *self;
        match kind {
            Kind::LinkDown => self.write_loss(text, 100),
            Kind::Loss(percent) => self.write_loss(text, percent),
            Kind::Route(rtt_ms) => {
                let _ = write!(
                    text,
                    "\n[[bottleneck.change]]\nat = \"{at_ms}ms\"\nrtt = \"{rtt_ms}ms\"\n"
                );
            }
            Kind::Kill(end) => write_faults(text, end, &[(at_ms, "kill"), (until_ms, "restart")]),
            Kind::Stop(end) => write_faults(text, end, &[(at_ms, "stop"), (until_ms, "continue")]),
            Kind::Starve(end) => {
                write_faults(text, end, &[(at_ms, "starve"), (until_ms, "continue")]);
            }
            Kind::OtherKey(end) => write_faults(
                text,
                end,
                &[
                    (at_ms, "kill"),
                    (at_ms + RESTART_MS, "restart_other_key"),
                    (until_ms - RESTART_MS, "kill"),
                    (until_ms, "restart"),
                ],
            ),
            Kind::FullLog(end) => {
                write_faults(text, end, &[(at_ms, "kill"), (until_ms, "restart_full_log")]);
            }
            Kind::BlockedLog(end) => {
                write_faults(text, end, &[(at_ms, "kill"), (until_ms, "restart_blocked_log")]);
            }
            Kind::Unseen(percent) => {
                self.write_upsets(
                    text,
                    "b",
                    ["unseen", "unseen"],
                    [&format!("share = \"{percent}%\"\n"), "share = 0\n"],
                );
            }
            Kind::Forged(kbit) => {
                self.write_upsets(
                    text,
                    "b",
                    ["forged", "forged"],
                    [&format!("rate = \"{kbit}kbit/s\"\n"), "rate = \"0kbit/s\"\n"],
                );
            }
            Kind::DeviceDown(end) => self.write_upsets(text, end.site(), ["down", "up"], [""; 2]),
            Kind::LeaveBridge(end) => {
                self.write_upsets(text, end.site(), ["leave_bridge", "join_bridge"], [""; 2]);
            }
            Kind::Mtu(end, bytes) => {
                let first = format!("mtu = {bytes}\n");
                self.write_upsets(text, end.site(), ["mtu", "mtu"], [&first, "mtu = 1500\n"]);
            }
            Kind::Address(end) => {
                self.write_upsets(text, end.site(), ["address", "no_address"], [""; 2]);
            }
            Kind::Offloads(end) => {
                self.write_upsets(text, end.site(), ["offloads_on", "offloads_off"], [""; 2]);
            }
            Kind::MadeAgain(end) => {
                self.write_upsets(text, end.site(), ["remove_lan", "make_lan"], [""; 2]);
            }
            Kind::LateDevice(end) => {
                let [removed_ms, restart_ms] = [REMOVED_MS, RESTART_MS].map(|after| at_ms + after);
                write_faults(text, end, &[(at_ms, "kill"), (restart_ms, "restart")]);
                Self { at_ms: removed_ms, ..*self }.write_upsets(
                    text,
                    end.site(),
                    ["remove_lan", "make_lan"],
                    [""; 2],
                );
            }
            Kind::ForeignTc => {
                let figure = format!("rate = \"{FOREIGN_KBIT}kbit/s\"\n");
                write_upset(text, End::Sendbox.site(), at_ms, "foreign_tc", &figure);
            }
            Kind::StatusClients(end) => self.write_clients(text, end, "status_clients"),
            Kind::MetricsClients(end) => self.write_clients(text, end, "metrics_clients"),
            Kind::Suspend => self.write_upsets(text, "b", ["suspend", "resume"], [""; 2]),
            // In the bundle's table.
            Kind::Slew(_) | Kind::Step(_) => {}
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

fn on_or_back(ms: i64) -> String {
    format!("{} by {}", if ms < 0 { "back" } else { "on" }, ms.abs() as f64 / 1e3)
}
