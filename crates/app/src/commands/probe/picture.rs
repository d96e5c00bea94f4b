//! Round trips over time as a line of blocks.

use std::time::Duration;

use forebay_core::probe::{Load, Observed};

/// Columns of the picture.
const WIDTH: usize = 64;

/// From the shortest round trip to the longest.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Pings were sent, and none came back.
const LOST: char = 'x';

/// The measurements of a probe, in [`WIDTH`] columns. First a line of mean round trips from `shortest`
/// to the longest mean, then a line with the load at each time. Also returns that longest mean.
pub fn draw(observed: &Observed, shortest: Duration) -> ([String; 2], Duration) {
    let end = observed.pings.last().map_or(1, |ping| ping.at.as_nanos() + 1);
    let column = |at_ns: u64| (at_ns.min(end - 1) as usize).saturating_mul(WIDTH) / end as usize;
    let mut sums = [(0_u32, Duration::ZERO, 0_u32); WIDTH];
    for ping in &observed.pings {
        let (count, sum, lost) = &mut sums[column(ping.at.as_nanos())];
        match ping.rtt {
            Some(rtt) => (*count, *sum) = (*count + 1, *sum + rtt),
            None => *lost += 1,
        }
    }
    let means = sums.map(|(count, sum, _)| (count > 0).then(|| sum / count));
    let longest = means.iter().flatten().max().copied().unwrap_or(shortest);
    let range = longest.saturating_sub(shortest).as_secs_f64().max(1e-3);
    let block = |mean: Duration| {
        let share = mean.saturating_sub(shortest).as_secs_f64() / range;
        LEVELS[((share * LEVELS.len() as f64) as usize).min(LEVELS.len() - 1)]
    };
    let blocks = means.iter().zip(&sums).map(|(mean, (_, _, lost))| match mean {
        Some(mean) => block(*mean),
        None if *lost > 0 => LOST,
        None => ' ',
    });
    let mut below = vec![' '; WIDTH];
    for (at_ns, label) in labels(observed.load) {
        let from = column(at_ns);
        for (place, letter) in below[from..].iter_mut().zip(label.chars()) {
            *place = letter;
        }
    }
    let below = String::from_iter(below).trim_end().to_string();
    ([blocks.collect(), below], longest)
}

/// Labels of the phases of the load, with the time when each begins (ns).
fn labels(load: Option<Load>) -> Vec<(u64, String)> {
    let Some(Load { few, many }) = load else { return vec![(0, "|nothing sent".into())] };
    let phases = [few, many].map(|phase| (phase.from.as_nanos(), format!("|{} send", phase.flows)));
    [(0, "|idle".into())].into_iter().chain(phases).collect()
}

#[cfg(test)]
mod tests {
    use forebay_core::probe::{LoadPhase, Ping};
    use forebay_core::units::Timestamp;

    use super::*;

    #[test]
    fn a_queue_is_seen_where_it_stood() {
        let at = |millis: u64| Timestamp::from_nanos(millis * 1_000_000);
        let rtt = |millis: u64| match millis {
            0..3_200 => Some(40),
            3_200..4_800 => Some(120),
            _ => None,
        };
        let ping = |millis: u64| {
            let rtt = rtt(millis).map(Duration::from_millis);
            Ping { at: at(millis), port: 0, rtt, forward_ns: None }
        };
        let load = Load {
            few: LoadPhase { flows: 2, from: at(3_200), to: at(4_000) },
            many: LoadPhase { flows: 8, from: at(4_000), to: at(6_400) },
        };
        let observed = Observed {
            pings: (0..640).map(|number| ping(10 * number)).collect(),
            load: Some(load),
            ..Observed::default()
        };
        let ([blocks, below], longest) = draw(&observed, Duration::from_millis(40));
        assert_eq!(longest, Duration::from_millis(120));
        assert_eq!(blocks.chars().filter(|it| *it == '▁').count(), 32, "{blocks}");
        assert_eq!(blocks.chars().filter(|it| *it == '█').count(), 16, "{blocks}");
        assert!(blocks.ends_with("xxxxxxxxxxxxxxxx"), "{blocks}");
        assert_eq!(below, format!("|idle{:27}|2 send |8 send", ""), "{below}");
        let ([nothing, _], _) = draw(&Observed::default(), Duration::ZERO);
        assert!(nothing.chars().all(|it| it == ' '), "{nothing:?}");
    }
}
