//! Explanation of the rate of a bundle and its limit, in sentences. It is derived only from a
//! [`Status`], for `forebay explain` and for other programs that show a bundle.

use serde::{Deserialize, Serialize};

use super::status::{BundleStatus, LastSecond, ShapingStatus, Status, mbit, millis, seconds};

/// Two rates that differ by less (share) count as the same for people.
const SAME: f64 = 0.005;
/// A bundle that sends less than this share of its rate, with an empty queue, does not use it.
const USED: f64 = 0.9;
/// Reasons of the state `passing` that have several possible causes, cross traffic among them. A box of an earlier
/// version may be running: the last two are its texts.
const LESS: [&str; 4] = [
    "limits reduced the delivered rate",
    "delivery fell with the sending rate",
    "less is delivered under limits",
    "less is delivered as soon as less is sent",
];

/// Limit of the rate at which packets of a bundle leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// This box is a receivebox: the sendbox decides.
    OtherBox,
    /// Nothing is ever shaped in a dry run.
    DryRun,
    /// The kernel forwards the packets, past the box.
    HandedBack,
    /// Arrivals are unknown: the receivebox is silent, or reports no departures.
    NoFeedback,
    /// The share of packets that the receivebox sees changes by itself.
    Unsteady,
    /// Packets overtake each other: several paths of different delay, or a fair queue at the bottleneck.
    OutOfOrder,
    /// Traffic outside the bundle fills the bottleneck's buffer, as Nimbus found.
    Competition,
    /// The sendbox does not limit the bundle: there is no queue, or limits gave no benefit.
    Passing,
    /// The sendbox tests whether limits give a benefit.
    Trying,
    /// The controller has not measured enough yet.
    Measuring,
    /// The share of the uplink that other bundles leave.
    Share,
    /// The operator's `max_rate`.
    MaxRate,
    /// The operator's `min_rate`, which is above the controller's rate.
    MinRate,
    /// The hosts send less than they may.
    Application,
    /// The path, as the controller sees it.
    Path,
}

/// Explanation of a bundle's rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Name of the bundle.
    pub bundle: String,
    /// Rate at which its packets leave (bits per second); `None`: they leave as they come.
    pub rate_bps: Option<u64>,
    /// Limit of the rate.
    pub limit: Limit,
    /// Rate, limit and measurements, in sentences.
    pub sentences: Vec<String>,
}

/// Explains a bundle of `status`.
pub fn explain(status: &Status, bundle: &BundleStatus) -> Explanation {
    let name = bundle.name.clone();
    let Some(shaping) = &bundle.shaping else {
        let (limit, sentences) = (Limit::OtherBox, watched(bundle));
        return Explanation { bundle: name, rate_bps: None, limit, sentences };
    };
    let limit = limit(status, bundle, shaping);
    let mut sentences = vec![rate(status, bundle, shaping), why(status, bundle, shaping, limit)];
    sentences.extend(share(status, shaping));
    sentences.extend(delay(shaping));
    sentences.extend(traffic(shaping));
    sentences.extend(oddities(bundle, shaping));
    let is_enforced = limit != Limit::DryRun;
    let rate_bps = shaping.decision.rate_bps.filter(|_| is_enforced);
    Explanation { bundle: name, rate_bps, limit, sentences }
}

fn limit(status: &Status, bundle: &BundleStatus, shaping: &ShapingStatus) -> Limit {
    let ShapingStatus { decision, share, last_second, .. } = shaping;
    let is = |bound: Option<u64>| match (decision.rate_bps, bound) {
        (Some(rate), Some(bound)) => is_same(rate, bound),
        _ => false,
    };
    let unused = |rate: u64| (last_second.sent_bps as f64) < USED * rate as f64;
    let is_unused = decision.rate_bps.is_some_and(unused) && shaping.queue.packets == 0;
    let is_short = is(share.filter(|share| share.is_short).map(|share| share.rate_bps));
    // A controller without a rate leaves the bounds of the configuration, if there are any.
    let has_no_rate = bundle.peer.state != "alive"
        || ["no_peer", "no_reports", "unsteady", "imbalanced", "passing", "competing", "measuring"]
            .contains(&decision.state.as_str());
    match decision.state.as_str() {
        "handed_back" => Limit::HandedBack,
        _ if status.dry_run => Limit::DryRun,
        _ if has_no_rate && is_short => Limit::Share,
        _ if has_no_rate && is(shaping.max_rate_bps) => Limit::MaxRate,
        _ if has_no_rate && is(share.map(|share| share.rate_bps)) => Limit::Share,
        "no_peer" | "no_reports" => Limit::NoFeedback,
        _ if bundle.peer.state != "alive" => Limit::NoFeedback,
        "unsteady" => Limit::Unsteady,
        "imbalanced" => Limit::OutOfOrder,
        "competing" => Limit::Competition,
        "passing" => Limit::Passing,
        "measuring" => Limit::Measuring,
        _ if is_short => Limit::Share,
        _ if is_unused => Limit::Application,
        _ if is(shaping.max_rate_bps) => Limit::MaxRate,
        _ if is(share.map(|share| share.rate_bps)) => Limit::Share,
        "trying" => Limit::Trying,
        "app_limited" => Limit::Application,
        _ if is(Some(shaping.min_rate_bps)) => Limit::MinRate,
        _ => Limit::Path,
    }
}

fn is_same(one: u64, other: u64) -> bool {
    one.abs_diff(other) as f64 <= SAME * other as f64
}

fn rate(status: &Status, bundle: &BundleStatus, shaping: &ShapingStatus) -> String {
    let (name, rate) = (&bundle.name, shaping.decision.rate_bps.map(mbit));
    match (status.dry_run, rate) {
        (true, Some(rate)) => format!(
            "This is a dry run: packets of {name} leave unshaped. Shaped, they would leave at \
             {rate}."
        ),
        (false, Some(rate)) => format!("Packets of {name} leave at up to {rate}."),
        (_, None) => format!("Packets of {name} leave unshaped."),
    }
}

fn why(status: &Status, bundle: &BundleStatus, shaping: &ShapingStatus, limit: Limit) -> String {
    let ShapingStatus { cc, decision, .. } = shaping;
    let (state, reason) = (&decision.state, &decision.reason);
    let peer = &bundle.peer.address;
    let law = format!("The algorithm {cc} is in the state {state}: {reason}.");
    match limit {
        Limit::OtherBox | Limit::DryRun => law,
        Limit::Path => format!("The path is the limit, by the algorithm's estimate. {law}"),
        Limit::HandedBack => {
            let failed: Vec<String> =
                status.failed_conditions.iter().map(ToString::to_string).collect();
            let more =
                if failed.is_empty() { String::new() } else { format!(" ({})", failed.join("; ")) };
            format!("The kernel forwards them past this box: {reason}{more}.")
        }
        Limit::NoFeedback => match (bundle.peer.state.as_str(), bundle.peer.heard_ns) {
            ("alive", _) => format!(
                "The receivebox {peer} is alive, but no reports of packets arrive: {reason}. \
                 Without reports the algorithm sets no rate."
            ),
            (_, Some(ns)) => format!(
                "The receivebox {peer} was last heard {} ago: {reason}. Without reports the \
                 algorithm sets no rate.",
                seconds(ns)
            ),
            (_, None) => format!(
                "The receivebox {peer} has never been heard: {reason}. Is it started, with the \
                 same key, and does the network pass UDP between {peer} and this box?"
            ),
        },
        Limit::Unsteady => format!(
            "The receivebox {peer} does not see all packets of the bundle, and {reason}. The \
             algorithm cannot distinguish that from congestion and sets no rate for now."
        ),
        Limit::OutOfOrder => format!(
            "Packets overtake each other: {:.1} % of the boundary packets arrived out of order in \
             the last 4 s. Above 5 % the sendbox cannot measure a queue. Either the bundle takes \
             several paths of different delay, or a fair queue (fq_codel, cake, SFQ) at the \
             bottleneck reorders flows. Such a queue already does the sendbox's work.",
            100.0 * shaping.out_of_order
        ),
        Limit::Competition => format!(
            "Traffic outside the bundle fills the buffer at the bottleneck ({reason}): a bundle \
             that kept the queue short would lose its share. Short tests show when that traffic \
             has ended."
        ),
        Limit::Passing => passing(shaping),
        Limit::Trying => format!(
            "The sendbox tests whether shaping helps ({reason}): it limits the bundle for a few \
             seconds. Then it compares the delivered rate and the delay with the time without \
             limits."
        ),
        Limit::Measuring => {
            format!("The algorithm {cc} has not measured enough to set a rate yet: {reason}.")
        }
        Limit::Share => {
            let rate = shaping.share.map_or("unknown".into(), |share| mbit(share.rate_bps));
            if shaping.share.is_some_and(|share| share.is_short) {
                format!(
                    "The uplink is the limit: its other bundles leave {rate} to this one. {law}"
                )
            } else {
                format!("The bundle's share of the uplink is the limit: {rate}. {law}")
            }
        }
        Limit::MaxRate => format!("The limit is max_rate in the configuration. {law}"),
        Limit::MinRate => {
            format!(
                "The algorithm would send less, but min_rate in the configuration forbids that. \
                 {law}"
            )
        }
        Limit::Application => {
            let is_empty = shaping.queue.packets == 0;
            let queue = if is_empty { " and the bundle's own queue is empty" } else { "" };
            let sent = mbit(shaping.last_second.sent_bps);
            format!("The hosts are the limit: they send {sent}{queue}. {law}")
        }
    }
}

fn passing(shaping: &ShapingStatus) -> String {
    let decision = &shaping.decision;
    let reason = &decision.reason;
    let held_back = if decision.rate_bps.is_some() {
        " The packets in its queue leave at that rate."
    } else {
        ""
    };
    let cause = if LESS.contains(&reason.as_str()) {
        " Cross traffic at the bottleneck may be the cause. So may a path that has become longer, \
         jitter, or a varying rate: the sendbox cannot distinguish these."
    } else {
        ""
    };
    format!(
        "The sendbox does not limit the bundle: {reason}.{held_back}{cause} It tries limits when a \
         queue builds up at the bottleneck, less often after each trial without a benefit."
    )
}

fn share(status: &Status, shaping: &ShapingStatus) -> Option<String> {
    let (share, uplink) = (shaping.share?, status.uplink_bps?);
    let guaranteed = share.guarantee_bps.map(|rate| format!(", {} guaranteed", mbit(rate)));
    let short = if share.is_short { ", less than it could use" } else { "" };
    Some(format!(
        "Of the uplink of {} the bundle may have {}, {:.1} %{short} (weight {}{}).",
        mbit(uplink),
        mbit(share.rate_bps),
        100.0 * share.share,
        share.weight,
        guaranteed.unwrap_or_default()
    ))
}

fn delay(shaping: &ShapingStatus) -> Vec<String> {
    let decision = &shaping.decision;
    let mut sentences = Vec::new();
    if let Some(min_rtt) = decision.min_rtt_ns {
        let beyond = decision.queue_delay_ns.map_or(String::new(), |ns| {
            format!("; packets wait {} in queues on the way", millis(Some(ns)))
        });
        let least = millis(Some(min_rtt));
        sentences.push(format!("A round trip without queues takes {least}{beyond}."));
    }
    sentences.extend(shaping.varies_ns.map(|ns| {
        let varies = millis(Some(ns));
        format!("The path's delay varies by {varies}, so the algorithm ignores shorter queues.")
    }));
    let waited = shaping.last_second.queue_delay_ns;
    if let Some(ns) = waited.filter(|_| decision.rate_bps.is_some()) {
        sentences.push(format!(
            "In the last second bytes waited {} in the bundle's own queue; {} packets wait there \
             now.",
            millis(Some(ns)),
            shaping.queue.packets
        ));
    }
    let bottleneck = decision.bottleneck_bps.map(|rate| format!("the path carries {}", mbit(rate)));
    let window = decision.cwnd_bytes.zip(decision.in_flight_bytes).map(|(window, in_flight)| {
        format!("the window is {window} bytes, with {in_flight} in flight")
    });
    let known: Vec<String> = bottleneck.into_iter().chain(window).collect();
    if !known.is_empty() {
        sentences.push(format!("By measurement, {}.", known.join(", and ")));
    }
    sentences
}

fn traffic(shaping: &ShapingStatus) -> Option<String> {
    let LastSecond { sent_bps, delivered_bps, .. } = shaping.last_second;
    (sent_bps > 0).then(|| {
        let (sent, delivered) = (mbit(sent_bps), mbit(delivered_bps));
        format!("In the last second {sent} left, and the receivebox reported {delivered}.")
    })
}

/// Problems for the operator to look into, in addition to the limit.
fn oddities(bundle: &BundleStatus, shaping: &ShapingStatus) -> Vec<String> {
    let alarm = shaping.alarm.iter().map(|alarm| format!("Check this: {alarm}."));
    let unseen = (shaping.unseen > 0.0).then(|| {
        format!("{:.0} % of the sent bytes never reach the receivebox.", 100.0 * shaping.unseen)
    });
    let peer = differences(bundle).chain(bundle.peer.whereabouts()).chain(short_path(bundle));
    alarm.chain(unseen).chain(peer).collect()
}

/// A sentence if the longest packets do not fit the path.
fn short_path(bundle: &BundleStatus) -> Option<String> {
    bundle.peer.mtu().filter(|_| bundle.peer.path_mtu.is_some_and(|mtu| mtu.bytes < mtu.tried))
}

fn differences(bundle: &BundleStatus) -> impl Iterator<Item = String> {
    bundle.differences.iter().flatten().map(|difference| format!("The boxes differ: {difference}."))
}

/// Sentences of a receivebox about a bundle.
fn watched(bundle: &BundleStatus) -> Vec<String> {
    let (name, peer) = (&bundle.name, &bundle.peer);
    let mut sentences = vec![format!(
        "This box only reports when packets of {name} arrive. The sendbox {} decides: run `forebay \
         explain {name}` there.",
        peer.address
    )];
    sentences.push(match (peer.state.as_str(), peer.heard_ns) {
        ("alive", _) => {
            let doing = peer.doing.as_deref().unwrap_or("unknown");
            format!("That box is alive; its state is {doing}.")
        }
        (_, Some(ns)) => format!("That box was last heard {} ago.", seconds(ns)),
        (_, None) => "That box has never been heard.".into(),
    });
    if let Some(watching) = &bundle.watching {
        sentences.push(format!(
            "{} packets have arrived, and {} reports were sent.",
            bundle.packets, watching.reports
        ));
        sentences.extend(watching.alarm.iter().map(|alarm| format!("Check this: {alarm}.")));
    }
    sentences.extend(differences(bundle));
    sentences.extend(bundle.peer.whereabouts());
    sentences
}

#[cfg(test)]
mod tests {
    use forebay_core::record::{DecisionRecord, QueueSample};

    use super::*;
    use crate::daemon::config::Role;
    use crate::daemon::status::{MovedStatus, PeerStatus, ShareStatus, WatchingStatus};

    /// A bundle whose controller has this state and this rate, with a queue.
    fn bundle(state: &str, rate_mbit: Option<u64>) -> BundleStatus {
        let rate_bps = rate_mbit.map(|mbit| mbit * 1_000_000);
        let shaping = ShapingStatus {
            cc: "copa".into(),
            decision: DecisionRecord {
                rate_bps,
                state: state.into(),
                reason: "as the test says".into(),
                min_rtt_ns: Some(50_000_000),
                queue_delay_ns: Some(3_200_000),
                bottleneck_bps: Some(96_000_000),
                cwnd_bytes: Some(615_000),
                in_flight_bytes: Some(600_000),
                ..DecisionRecord::default()
            },
            min_rate_bps: 1_200_000,
            queue: QueueSample { packets: 34, ..QueueSample::default() },
            last_second: LastSecond {
                sent_bps: rate_bps.unwrap_or(5_000_000),
                delivered_bps: 4_900_000,
                queue_delay_ns: Some(12_300_000),
            },
            ..ShapingStatus::default()
        };
        let peer = PeerStatus {
            address: "192.0.2.2:61476".into(),
            state: "alive".into(),
            heard_ns: Some(1_500_000_000),
            ..PeerStatus::default()
        };
        BundleStatus { name: "b".into(), peer, shaping: Some(shaping), ..BundleStatus::default() }
    }

    fn explained(status: &Status, bundle: &BundleStatus, limit: Limit, parts: &[&str]) {
        let explanation = explain(status, bundle);
        assert_eq!(explanation.limit, limit, "{explanation:?}");
        let text = explanation.sentences.join(" ");
        for part in parts {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
        assert!(
            explanation.sentences.iter().all(|sentence| sentence.ends_with(['.', '?'])),
            "{text}"
        );
        let document = serde_json::to_string(&explanation).unwrap();
        assert_eq!(serde_json::from_str::<Explanation>(&document).unwrap(), explanation);
    }

    fn sendbox() -> Status {
        Status::new(Role::Sendbox, false)
    }

    #[test]
    fn path_limited_bundle_names_algorithm_delay_and_window() {
        let bundle = bundle("shaping", Some(90));
        explained(
            &sendbox(),
            &bundle,
            Limit::Path,
            &[
                "Packets of b leave at up to 90.000 Mbit/s.",
                "The path is the limit, by the algorithm's estimate. The algorithm copa is in the state shaping: as the test says.",
                "A round trip without queues takes 50.00 ms; packets wait 3.20 ms in queues",
                "bytes waited 12.30 ms in the bundle's own queue; 34 packets",
                "the path carries 96.000 Mbit/s, and the window is 615000 bytes, with 600000",
                "90.000 Mbit/s left, and the receivebox reported 4.900 Mbit/s",
            ],
        );
    }

    #[test]
    fn bounds_and_shares_are_named_where_they_bind() {
        let with = |edit: fn(&mut ShapingStatus)| {
            let mut bundle = bundle("shaping", Some(20));
            edit(bundle.shaping.as_mut().unwrap());
            bundle
        };
        let max = with(|it| it.max_rate_bps = Some(20_000_000));
        explained(&sendbox(), &max, Limit::MaxRate, &["The limit is max_rate"]);
        let min = with(|it| it.min_rate_bps = 20_000_000);
        explained(&sendbox(), &min, Limit::MinRate, &["min_rate in the configuration forbids"]);
        let status = Status { uplink_bps: Some(80_000_000), ..sendbox() };
        let share = with(|it| {
            it.max_rate_bps = Some(20_000_000);
            it.share = Some(ShareStatus {
                rate_bps: 20_000_000,
                share: 0.25,
                weight: 3,
                guarantee_bps: Some(10_000_000),
                is_short: true,
            });
        });
        let parts = [
            "its other bundles leave 20.000 Mbit/s to this one",
            "Of the uplink of 80.000 Mbit/s the bundle may have 20.000 Mbit/s, 25.0 %, less than it could \
             use (weight 3, 10.000 Mbit/s guaranteed).",
        ];
        explained(&status, &share, Limit::Share, &parts);
        let idle = with(|it| {
            it.queue = QueueSample::default();
            it.last_second.sent_bps = 3_000_000;
        });
        explained(&sendbox(), &idle, Limit::Application, &["they send 3.000 Mbit/s and"]);
        let mut waiting = bundle("app_limited", Some(20));
        explained(
            &sendbox(),
            &waiting,
            Limit::Application,
            &["they send 20.000 Mbit/s. The algorithm"],
        );
        let own = ShareStatus { rate_bps: 20_000_000, share: 0.25, ..ShareStatus::default() };
        waiting.shaping.as_mut().unwrap().share = Some(own);
        explained(&status, &waiting, Limit::Share, &["share of the uplink is the limit: 20.000"]);
    }

    #[test]
    fn algorithm_without_rate_leaves_the_configured_bounds() {
        let status = Status { uplink_bps: Some(80_000_000), ..sendbox() };
        let states = [
            "no_peer",
            "no_reports",
            "unsteady",
            "imbalanced",
            "competing",
            "passing",
            "measuring",
        ];
        for state in states {
            let mut bundle = bundle(state, Some(20));
            bundle.shaping.as_mut().unwrap().max_rate_bps = Some(20_000_000);
            let parts = ["leave at up to 20.000 Mbit/s", "The limit is max_rate", state];
            explained(&status, &bundle, Limit::MaxRate, &parts);
            let share = ShareStatus { rate_bps: 20_000_000, share: 0.25, ..ShareStatus::default() };
            let shaping = bundle.shaping.as_mut().unwrap();
            (shaping.max_rate_bps, shaping.share) = (None, Some(share));
            let parts = ["share of the uplink is the limit: 20.000 Mbit/s.", state];
            explained(&status, &bundle, Limit::Share, &parts);
            bundle.shaping.as_mut().unwrap().share = Some(ShareStatus { is_short: true, ..share });
            explained(&status, &bundle, Limit::Share, &["its other bundles leave 20.000 Mbit/s"]);
        }
    }

    #[test]
    fn an_unshaped_bundle_is_told_why() {
        let unheard = |state: &str, peer: &str, heard_ns| {
            let mut bundle = bundle(state, None);
            bundle.peer = PeerStatus { state: peer.into(), heard_ns, ..bundle.peer };
            bundle
        };
        let unshaped = "Packets of b leave unshaped.";
        let none = Limit::NoFeedback;
        let waiting = unheard("no_peer", "waiting", None);
        explained(&sendbox(), &waiting, none, &[unshaped, "192.0.2.2:61476 has never been heard"]);
        let lost = unheard("no_peer", "silent", Some(1_500_000_000));
        explained(&sendbox(), &lost, none, &[unshaped, "was last heard 1.5 s ago"]);
        let blind = unheard("no_reports", "alive", Some(1));
        explained(&sendbox(), &blind, none, &[unshaped, "is alive, but no reports"]);
        for (state, limit, part) in [
            (
                "unsteady",
                Limit::Unsteady,
                "does not see all packets of the bundle, and as the test says.",
            ),
            ("competing", Limit::Competition, "Traffic outside the bundle fills the buffer"),
            ("passing", Limit::Passing, "The sendbox does not limit the bundle: as the test says."),
            (
                "imbalanced",
                Limit::OutOfOrder,
                "or a fair queue (fq_codel, cake, SFQ) at the bottleneck",
            ),
            ("measuring", Limit::Measuring, "has not measured enough"),
            ("handed_back", Limit::HandedBack, "past this box: as the test says."),
        ] {
            explained(&sendbox(), &bundle(state, None), limit, &[unshaped, part]);
        }
    }

    #[test]
    fn passing_names_competitors_only_where_limits_delivered_less() {
        let passing = |reason: &str, mbit| {
            let mut bundle = bundle("passing", mbit);
            bundle.shaping.as_mut().unwrap().decision.reason = reason.into();
            bundle
        };
        let causes = [
            "Cross traffic at the bottleneck may be the cause.",
            "So may a path that has become longer, jitter, or a varying rate",
        ];
        for reason in LESS {
            explained(&sendbox(), &passing(reason, None), Limit::Passing, &causes);
        }
        let held = "The packets in its queue leave at that rate.";
        for reason in ["no standing queue", "limits did not shorten the delay"] {
            let passing = passing(reason, Some(20));
            let part = format!("The sendbox does not limit the bundle: {reason}. {held} It tries");
            explained(&sendbox(), &passing, Limit::Passing, &[&part]);
        }
    }

    #[test]
    fn trying_says_what_is_compared() {
        let parts =
            ["leave at up to 20.000 Mbit/s", "tests whether shaping helps (as the test says)"];
        explained(&sendbox(), &bundle("trying", Some(20)), Limit::Trying, &parts);
    }

    #[test]
    fn late_python_class_names_who_decides() {
        let mut bundle = bundle("fallback", Some(90));
        bundle.shaping.as_mut().unwrap().cc = "python(file=mine.py)".into();
        let parts =
            ["The algorithm python(file=mine.py) is in the state fallback: as the test says."];
        explained(&sendbox(), &bundle, Limit::Path, &parts);
    }

    #[test]
    fn a_dry_run_says_what_would_be() {
        let status = Status::new(Role::Sendbox, true);
        let bundle = bundle("shaping", Some(20));
        let part = "Shaped, they would leave at 20.000 Mbit/s.";
        explained(&status, &bundle, Limit::DryRun, &[part]);
        assert_eq!(explain(&status, &bundle).rate_bps, None);
    }

    #[test]
    fn a_path_whose_delay_varies_is_named() {
        let mut bundle = bundle("shaping", Some(20));
        bundle.shaping.as_mut().unwrap().varies_ns = Some(7_000_000);
        explained(&sendbox(), &bundle, Limit::Path, &["The path's delay varies by 7.00 ms"]);
    }

    #[test]
    fn moved_peer_names_old_and_new_address() {
        let mut bundle = bundle("shaping", Some(20));
        bundle.peer.moved = Some(MovedStatus {
            from: "192.0.2.2:61476".into(),
            to: "198.51.100.7:4000".into(),
            ago_ns: 3_000_000_000,
        });
        bundle.peer.elsewhere = Some("203.0.113.9:9".into());
        let parts = [
            "The other box has moved from 192.0.2.2:61476 to 198.51.100.7:4000, 3.0 s ago.",
            "Authentic messages come from 203.0.113.9:9, where the other box has not answered",
        ];
        explained(&sendbox(), &bundle, Limit::Path, &parts);
        bundle.shaping = None;
        explained(&Status::new(Role::Receivebox, false), &bundle, Limit::OtherBox, &parts);
    }

    #[test]
    fn receivebox_names_deciding_box_and_anomalies() {
        let mut bundle = bundle("", None);
        bundle.shaping = None;
        bundle.differences = Some(vec!["`to` differs".into()]);
        bundle.packets = 12;
        let alarm = Some("the keys differ".into());
        bundle.watching = Some(WatchingStatus { reports: 3, alarm, ..WatchingStatus::default() });
        let parts = [
            "The sendbox 192.0.2.2:61476 decides",
            "12 packets have arrived, and 3 reports",
            "Check this: the keys differ.",
            "The boxes differ: `to` differs.",
        ];
        explained(&Status::new(Role::Receivebox, false), &bundle, Limit::OtherBox, &parts);
    }
}
