//! The columns of `forebay top`: the value that each shows of a bundle, its width, and how it sorts bundles.

use std::cmp::Ordering;

use forebay_core::spec::one_of;
use forebay_host::daemon::status::{BundleStatus, Status};

/// The values of a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Process of the box and number of the bundle, together unique on the machine.
    pub key: (u32, u16),
    /// Name of the bundle.
    pub bundle: String,
    /// State of the bundle at a sendbox, and of the other box at a receivebox.
    pub state: String,
    /// Why the state is that one, in words.
    pub reason: String,
    /// Rate that left, or was seen (bits per second).
    pub sent_bps: Option<u64>,
    /// Rate that arrived by the reports (bits per second).
    pub delivered_bps: Option<u64>,
    /// Rate of the shaper (bits per second).
    pub limit_bps: Option<u64>,
    /// Least round trip and the standing queue beyond (ns).
    pub rtt_ns: Option<u64>,
    /// Backlog of the own queue (bytes).
    pub here_bytes: Option<u64>,
    /// How long bytes waited in the own queue while the bundle was shaped (ns).
    pub taken_ns: Option<u64>,
    /// Standing queueing delay beyond the sendbox (ns).
    pub there_ns: Option<u64>,
    /// Flows with packets in the own queue.
    pub flows: Option<u64>,
}

impl Row {
    /// The line of a bundle, at a box that saw `seen_bps` of the bundle since the look before.
    pub fn of(status: &Status, bundle: &BundleStatus, seen_bps: Option<u64>) -> Self {
        let common =
            Self { key: (status.pid, bundle.id), bundle: bundle.name.clone(), ..Self::default() };
        let Some(shaping) = &bundle.shaping else {
            let alarm = bundle.watching.as_ref().and_then(|watching| watching.alarm.clone());
            let doing = bundle.peer.doing.as_deref().unwrap_or("not heard");
            return Self {
                state: format!("peer {}", bundle.peer.state),
                reason: alarm.unwrap_or_else(|| format!("the sendbox is {doing}")),
                sent_bps: seen_bps,
                ..common
            };
        };
        let (decision, last) = (&shaping.decision, &shaping.last_second);
        let is_shaped = decision.rate_bps.is_some();
        let queue_ns = decision.queue_delay_ns;
        Self {
            state: decision.state.clone(),
            reason: shaping.alarm.clone().unwrap_or_else(|| decision.reason.clone()),
            sent_bps: Some(last.sent_bps),
            delivered_bps: Some(last.delivered_bps),
            limit_bps: decision.rate_bps,
            rtt_ns: decision.min_rtt_ns.map(|least| least.saturating_add(queue_ns.unwrap_or(0))),
            here_bytes: Some(shaping.queue.bytes),
            taken_ns: last.queue_delay_ns.filter(|_| is_shaped),
            there_ns: queue_ns,
            flows: shaping.flows.map(u64::from),
            ..common
        }
    }
}

forebay_core::named! {
    /// A column of the table, from left to right, with the word in its head.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Column {
        Bundle => "BUNDLE",
        State => "STATE",
        Sent => "SENT",
        Delivered => "DELIV",
        Limit => "LIMIT",
        Rtt => "RTT",
        Here => "HERE",
        Taken => "TAKEN",
        There => "THERE",
        Flows => "FLOWS",
    }
}

impl Column {
    /// Least width in characters.
    pub const fn width(self) -> usize {
        match self {
            Self::Bundle => 14,
            // The longest state, `app_limited`.
            Self::State => 11,
            Self::Sent | Self::Delivered | Self::Limit => 6,
            Self::Rtt | Self::Here | Self::Taken | Self::There | Self::Flows => 5,
        }
    }

    /// Whether it holds words, which begin at its left edge, and no numbers.
    pub const fn is_words(self) -> bool {
        matches!(self, Self::Bundle | Self::State)
    }

    /// The column with this title; `Err`: all titles, and the nearest one.
    pub fn named(title: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(title));
        found.ok_or_else(|| {
            let names = Self::ALL.map(|it| it.name().to_ascii_lowercase());
            one_of(title, &names.each_ref().map(String::as_str))
        })
    }

    /// The column `steps` to the right; the first follows the last.
    pub fn turned(self, steps: isize) -> Self {
        let place = Self::ALL.iter().position(|it| *it == self).unwrap_or(0) as isize;
        Self::ALL[(place + steps).rem_euclid(Self::ALL.len() as isize) as usize]
    }

    /// The text of the column for `row`.
    pub fn cell(self, row: &Row) -> String {
        let number = |value: Option<u64>, unit: f64| match value.map(|value| value as f64 / unit) {
            None => "-".to_string(),
            Some(number) if number >= 1000.0 => format!("{number:.0}"),
            Some(number) => format!("{number:.1}"),
        };
        match self {
            Self::Bundle => row.bundle.clone(),
            Self::State => row.state.clone(),
            Self::Flows => row.flows.map_or("-".into(), |flows| flows.to_string()),
            Self::Here => number(self.value(row), 1e3),
            _ => number(self.value(row), 1e6),
        }
    }

    /// Order of two rows by this column: words from a to z, numbers from the largest down, the unknown last.
    pub fn order(self, one: &Row, other: &Row) -> Ordering {
        match self {
            Self::Bundle => one.bundle.cmp(&other.bundle),
            Self::State => one.state.cmp(&other.state),
            _ => self.value(other).cmp(&self.value(one)),
        }
    }

    /// The number that a column shows: bits per second, bytes or ns.
    fn value(self, row: &Row) -> Option<u64> {
        match self {
            Self::Bundle | Self::State => None,
            Self::Sent => row.sent_bps,
            Self::Delivered => row.delivered_bps,
            Self::Limit => row.limit_bps,
            Self::Rtt => row.rtt_ns,
            Self::Here => row.here_bytes,
            Self::Taken => row.taken_ns,
            Self::There => row.there_ns,
            Self::Flows => row.flows,
        }
    }
}
