//! The results of a probe: as text, and as one JSON document.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use forebay_core::probe::{Answer, Findings, Verdict};
use forebay_core::units::{Rate, Ratio};
use forebay_host::probe::Report;
use forebay_host::probe::receivebox::Heard;
use serde_json::{Map, Value, json};

use super::picture;

/// Everything that a probe has to say.
pub struct Said {
    /// The address that was probed.
    pub peer: SocketAddr,
    /// The measurements.
    pub report: Report,
    /// The findings in the report.
    pub found: Findings,
    /// The conclusion for a bundle.
    pub verdict: Verdict,
    /// Answers of receiveboxes at the peer, by the names of their bundles.
    pub boxes: Vec<(String, Heard)>,
}

impl Said {
    /// The findings with a picture, and the verdict.
    pub fn text(&self) -> String {
        let Self { found, verdict, .. } = self;
        let mut lines = vec![self.heading()];
        if let Some(base_rtt) = found.base_rtt {
            lines.push(self.drawn(base_rtt));
            let rows = self.rows().into_iter();
            lines.extend(rows.map(|(name, value)| format!("{name:<12} {value}")));
        }
        for (bundle, heard) in &self.boxes {
            lines.push(format!("{:<12} {}", "receivebox", of_a_box(bundle, *heard)));
        }
        let (answer, sentence) = (verdict.answer, verdict.reason.sentence());
        lines.push(format!("\nwould a bundle help? {answer}: {sentence}"));
        lines.extend(verdict.condition().map(|condition| format!("it does {condition}")));
        if answer == Answer::Yes {
            lines.push(format!(
                "expected: the mean queue in the network shrinks by about {}; the sendbox then queues the same \
                 packets, and you decide which go first",
                millis(verdict.gain)
            ));
        }
        lines.into_iter().fold(String::new(), |text, line| text + &line + "\n")
    }

    fn heading(&self) -> String {
        let mut line = format!("path to {}", self.peer);
        line += if self.report.answers { ", which answers probes" } else { ", by TCP handshakes" };
        if let (Some(cc), [_, many]) = (&self.report.congestion_control, self.found.flows) {
            let _ = write!(line, "; load: {many} connections with {cc}");
        }
        line
    }

    fn drawn(&self, base_rtt: Duration) -> String {
        let ([blocks, below], longest) = picture::draw(&self.report.observed, base_rtt);
        let margin = format!("RTT {}", millis(base_rtt));
        let space = " ".repeat(margin.len());
        format!("\n{margin} {blocks} {}\n{space} {below}\n", millis(longest))
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let found = &self.found;
        let [sent, lost] = found.idle_pings;
        let mut trip = format!("{} idle ({lost} of {sent} lost)", millis(found.idle_rtt));
        let mut queue = format!("{} mean, {} peak", millis(found.queue), millis(found.peak_queue));
        if found.loaded {
            let _ = write!(trip, ", {} under load", millis(found.idle_rtt + found.queue));
            let _ = write!(queue, "; {} of the load itself", millis(found.bulk_queue));
        }
        if let Some(forward) = found.forward_queue {
            let _ = write!(queue, "; {} on the way there", millis(forward));
        }
        let mut rows = vec![("round trip", trip), ("queue", queue)];
        if found.loaded {
            let [few, _] = found.flows;
            let [first, second] = found.half_rates;
            let rates = [found.rate, first, second, found.rate_of_few];
            let [rate, first, second, of_few] = rates.map(|it| it.as_mbit_per_sec_f64());
            rows.push(("in the site", self.in_the_site()));
            rows.push(("rate", format!("{rate:.1} Mbit/s ({few} connections: {of_few:.1})")));
            rows.push(("halves", format!("{first:.1} Mbit/s, then {second:.1} Mbit/s")));
            rows.push(("loss", format!("{} of the segments were sent again", percent(found.loss))));
        }
        let share = self.verdict.share.map(|share| percent(share.as_f64()));
        rows.extend(
            share.map(|share| ("share", format!("{share} of the traffic there, by --share"))),
        );
        let ways = match (found.detour, found.uneven) {
            (Duration::ZERO, Duration::ZERO) => "all flows see about the same delay".into(),
            (Duration::ZERO, uneven) => format!("some flows wait {} longer", millis(uneven)),
            (detour, _) => format!("some source ports take {} longer", millis(detour)),
        };
        rows.push(("ways", ways));
        if found.window_limited > SLOW_READER {
            let held = percent(found.window_limited);
            let peer = format!("its receive window limited the load for {held} of the time");
            rows.push(("peer", peer));
        }
        rows
    }

    fn in_the_site(&self) -> String {
        let own = millis(self.found.own_queue);
        let router = self.report.routers.get(&self.report.observed.site_hops);
        match (self.found.site_queue, router) {
            (Some(queue), Some(router)) => {
                format!("{} before {router}; {own} in this host", millis(queue))
            }
            _ => format!("no router of the site answers; {own} in this host"),
        }
    }

    /// The whole probe as JSON: durations in ms, rates in bits per second, shares from 0 to 1.
    pub fn document(&self) -> Value {
        let Self { peer, report, found, verdict, boxes } = self;
        let pings = report.observed.pings.iter().map(|ping| {
            let at_ms = ping.at.as_nanos() as f64 / 1e6;
            json!([at_ms, ping.port, ping.rtt.map(ms)])
        });
        let routers = report.routers.iter().map(|(hops, router)| (hops.to_string(), json!(router)));
        let boxes = boxes.iter().map(|(bundle, heard)| (bundle.clone(), json!(word(*heard))));
        let [sent, lost] = found.idle_pings;
        json!({
            "peer": peer,
            "answers": report.answers,
            "congestion_control": report.congestion_control,
            "routers": routers.collect::<Map<_, _>>(),
            "receiveboxes": boxes.collect::<Map<_, _>>(),
            "answer": verdict.answer,
            "reason": verdict.reason,
            "sentence": verdict.reason.sentence(),
            "condition": verdict.condition(),
            "share": verdict.share.map(Ratio::as_f64),
            "gain_ms": ms(verdict.gain),
            "findings": {
                "base_rtt_ms": found.base_rtt.map(ms),
                "idle_rtt_ms": ms(found.idle_rtt),
                "noise_ms": ms(found.noise),
                "idle_pings": sent,
                "idle_pings_lost": lost,
                "queue_ms": ms(found.queue),
                "median_queue_ms": ms(found.median_queue),
                "standing_queue_ms": ms(found.standing_queue),
                "bulk_queue_ms": ms(found.bulk_queue),
                "standing_bulk_queue_ms": ms(found.standing_bulk_queue),
                "peak_queue_ms": ms(found.peak_queue),
                "forward_queue_ms": found.forward_queue.map(ms),
                "site_queue_ms": found.site_queue.map(ms),
                "own_queue_ms": ms(found.own_queue),
                "rate_bps": found.rate.as_bits_per_sec(),
                "half_rates_bps": found.half_rates.map(Rate::as_bits_per_sec),
                "rate_of_few_bps": found.rate_of_few.as_bits_per_sec(),
                "flows": found.flows,
                "loss": found.loss,
                "window_limited": found.window_limited,
                "detour_ms": ms(found.detour),
                "uneven_ms": ms(found.uneven),
                "max_rate_bps": found.max_rate.as_bits_per_sec(),
                "loaded": found.loaded,
            },
            // Time of sending (ms), source port, round trip (ms) or null.
            "pings": pings.collect::<Vec<_>>(),
        })
    }
}

/// A receive window that holds the load back for a larger share of the time is worth a line.
const SLOW_READER: f64 = 0.05;

fn ms(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// A rounded text such as `40.2 ms`.
fn millis(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1e3)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn of_a_box(bundle: &str, heard: Heard) -> String {
    match heard {
        Heard::Answer(rtt) => format!("answers for bundle {bundle} in {}", millis(rtt)),
        Heard::Nothing => format!(
            "no answer for bundle {bundle}: is it running, with the same key, and does UDP \
             reach it?"
        ),
        Heard::SendboxRuns => {
            format!(
                "the sendbox of bundle {bundle} runs here: `forebay status` shows whether it hears the receivebox"
            )
        }
    }
}

const fn word(heard: Heard) -> &'static str {
    match heard {
        Heard::Answer(_) => "answers",
        Heard::Nothing => "silent",
        Heard::SendboxRuns => "sendbox_runs",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use forebay_core::probe::{Observed, Ping, judge};
    use forebay_core::units::Timestamp;

    use super::*;

    fn said(found: Findings) -> Said {
        let rtt = Some(Duration::from_millis(40));
        let ping = Ping { at: Timestamp::ZERO, port: 0, rtt, forward_ns: None };
        let report = Report {
            observed: Observed { pings: vec![ping], site_hops: 1, ..Observed::default() },
            routers: BTreeMap::from([(1, [10, 0, 0, 1].into())]),
            answers: true,
            congestion_control: Some("cubic".into()),
        };
        Said {
            peer: SocketAddr::from(([192, 0, 2, 1], 61477)),
            report,
            verdict: judge(&found, None),
            found,
            boxes: vec![("b".into(), Heard::Nothing)],
        }
    }

    fn found() -> Findings {
        let ms = Duration::from_millis;
        Findings {
            base_rtt: Some(ms(40)),
            idle_rtt: ms(40),
            queue: ms(60),
            median_queue: ms(60),
            site_queue: Some(ms(1)),
            rate: Rate::from_mbit_per_sec(20),
            half_rates: [20, 19].map(Rate::from_mbit_per_sec),
            rate_of_few: Rate::from_mbit_per_sec(19),
            flows: [2, 8],
            loaded: true,
            ..Findings::default()
        }
    }

    #[test]
    fn text_has_findings_and_expected_gain() {
        let text = said(found()).text();
        for expected in [
            "path to 192.0.2.1:61477, which answers probes; load: 8 connections with cubic",
            "\nround trip   40.0 ms idle (0 of 0 lost), 100.0 ms under load\n",
            "\nin the site  1.0 ms before 10.0.0.1; 0.0 ms in this host\n",
            "\nrate         20.0 Mbit/s (2 connections: 19.0)\n",
            "\nhalves       20.0 Mbit/s, then 19.0 Mbit/s\n",
            "\nreceivebox   no answer for bundle b",
            "\n\nwould a bundle help? yes: this site's own traffic fills a queue",
            "\nit does only if this site sends most of the traffic there (--share)\n",
            "shrinks by about 55.8 ms",
        ] {
            assert!(text.contains(expected), "{expected:?} in:\n{text}");
        }
        let text = said(Findings::default()).text();
        assert!(
            text.ends_with("\nwould a bundle help? unclear: the peer did not answer\n"),
            "{text}"
        );
    }

    #[test]
    fn the_document_has_every_figure_with_its_unit() {
        let document = said(found()).document();
        assert_eq!(document["answer"], "yes");
        assert_eq!(document["reason"], "queue_in_the_middle");
        assert_eq!(document["gain_ms"], 55.761);
        assert_eq!(document["share"], Value::Null);
        assert_eq!(document["findings"]["half_rates_bps"], json!([20_000_000, 19_000_000]));
        assert_eq!(document["routers"]["1"], "10.0.0.1");
        assert_eq!(document["receiveboxes"]["b"], "silent");
        assert_eq!(document["findings"]["queue_ms"], 60.0);
        assert_eq!(document["pings"][0], json!([0.0, 0, 40.0]));
    }

    #[test]
    fn share_is_said_with_what_follows() {
        let with_share = |share: f64| {
            let said = said(found());
            let verdict = judge(&said.found, Ratio::new(share));
            Said { verdict, ..said }
        };
        let most = with_share(0.9);
        let text = most.text();
        assert!(
            text.contains("\nshare        90.0 % of the traffic there, by --share\n"),
            "{text}"
        );
        assert!(!text.contains("only if") && text.contains("help? yes: "), "{text}");
        let document = most.document();
        assert_eq!((&document["answer"], &document["share"]), (&json!("yes"), &json!(0.9)));
        assert_eq!(document["condition"], Value::Null);
        let few = with_share(0.06);
        let text = few.text();
        assert!(
            text.contains("help? no: the queue is in") && text.contains("little gain"),
            "{text}"
        );
        let document = few.document();
        assert_eq!((&document["answer"], &document["share"]), (&json!("no"), &json!(0.06)));
        assert_eq!(document["reason"], "small_share");
    }

    #[test]
    fn unsteady_rate_is_said_with_both_rates() {
        let half_rates = [20, 12].map(Rate::from_mbit_per_sec);
        let text = said(Findings { half_rates, ..found() }).text();
        for expected in ["20.0 Mbit/s, then 12.0 Mbit/s\n", "help? unclear: the load's rate"] {
            assert!(text.contains(expected), "{expected:?} in:\n{text}");
        }
    }
}
