//! Shows how far a search is, on stderr: a bar at a terminal, lines otherwise.

use std::fmt;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use super::Objective;
use forebay_lab::output::number;

/// Steps of the bar.
const STEPS: f64 = 1000.0;
/// Time between two lines.
const INTERVAL: Duration = Duration::from_secs(5);

/// Current phase of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The usual links are measured.
    Plain,
    /// Cases are drawn from the whole space.
    Drawn,
    /// Cases are bred from the worst so far.
    Bred,
    /// The worst case is made simple.
    Simplified,
    /// The worst case and the plain cells run again.
    Compared,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain cells",
            Self::Drawn => "drawing cases",
            Self::Bred => "breeding cases",
            Self::Simplified => "simplifying the worst",
            Self::Compared => "comparing with plain cells",
        })
    }
}

/// The progress of a search.
#[derive(Clone, Copy, Debug)]
pub struct SearchProgress<'a> {
    /// The current phase.
    pub phase: Phase,
    /// Share of the budget that is used up, 0 to 1.
    pub done: f64,
    /// Time since the start.
    pub elapsed: Duration,
    /// Cases that were judged.
    pub judged: usize,
    /// The figure to make worst.
    pub objective: &'a Objective,
    /// The worst value so far.
    pub worst: Option<f64>,
}

impl fmt::Display for SearchProgress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} cases", self.phase, self.judged)?;
        if let Some(worst) = self.worst {
            write!(f, ", worst {} {}", self.objective.heading(), number(worst))?;
        }
        match self.left() {
            Some(left) => write!(f, ", about {} left", HumanDuration(left)),
            None => Ok(()),
        }
    }
}

impl SearchProgress<'_> {
    /// Time that the rest of the budget takes at the pace so far; `None` once it is used up.
    fn left(&self) -> Option<Duration> {
        let left = self.elapsed.as_secs_f64() * (1.0 - self.done) / self.done;
        Duration::try_from_secs_f64(left).ok().filter(|_| self.done < 1.0)
    }
}

/// Shows the progress of a search on stderr as it is.
pub fn on_stderr() -> Box<dyn FnMut(&SearchProgress<'_>)> {
    if !std::io::stderr().is_terminal() {
        let mut last: Option<(Phase, Instant)> = None;
        return Box::new(move |progress| {
            let is_due =
                |(phase, at): (Phase, Instant)| phase != progress.phase || at.elapsed() >= INTERVAL;
            if last.is_none_or(is_due) {
                eprintln!("{progress}");
                last = Some((progress.phase, Instant::now()));
            }
        });
    }
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}");
    let bar = ProgressBar::new(STEPS as u64);
    bar.set_style(style.expect("a valid template"));
    Box::new(move |progress| {
        bar.set_position((progress.done * STEPS) as u64);
        bar.set_message(progress.to_string());
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_follows_completed_share() {
        let objective = Objective::named("queueing").unwrap();
        let mut progress = SearchProgress {
            phase: Phase::Bred,
            done: 0.25,
            elapsed: Duration::from_secs(60),
            judged: 96,
            objective,
            worst: Some(12.345),
        };
        let text = progress.to_string();
        assert_eq!(
            text,
            "breeding cases: 96 cases, worst queueing (ms) 12.3, about 3 minutes left"
        );
        progress.done = 1.0;
        assert_eq!(progress.to_string(), "breeding cases: 96 cases, worst queueing (ms) 12.3");
        progress.done = 0.0;
        assert_eq!(progress.left(), None);
    }
}
