//! Shows how far a plan is, on stderr: a bar at a terminal, lines otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::backend::Progress;
use crate::runner::{Ending, Job, Observer};

/// Steps of the bar for each run.
const STEPS: u64 = 1000;

/// The observer for stderr as it is.
pub fn on_stderr() -> Box<dyn Observer> {
    if std::io::stderr().is_terminal() { Box::new(Bar::new()) } else { Box::new(Lines::default()) }
}

struct Bar {
    bar: ProgressBar,
    /// Runs that have ended, by their number.
    ended: BTreeSet<usize>,
    /// How far those under way are.
    running: BTreeMap<usize, u64>,
}

impl Bar {
    fn new() -> Self {
        let style = "{bar:30} {percent:>3} %  {elapsed_precise} (about {eta} left)  {msg}";
        let bar = ProgressBar::new(0);
        bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
        Self { bar, ended: BTreeSet::new(), running: BTreeMap::new() }
    }

    fn show(&self) {
        let under_way: u64 = self.running.values().sum();
        self.bar.set_position(self.ended.len() as u64 * STEPS + under_way);
    }
}

impl Observer for Bar {
    fn begins(&mut self, job: &Job, number: usize, total: usize, attempt: usize) {
        // A run that is tried again counts from its beginning.
        self.ended.remove(&number);
        self.running.insert(number, 0);
        self.bar.set_length(total as u64 * STEPS);
        self.show();
        let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
        self.bar.set_message(format!("run {number} of {total}: {}{again}", job.name()));
        self.bar.enable_steady_tick(std::time::Duration::from_millis(200));
    }

    fn progress(&mut self, _job: &Job, number: usize, progress: &Progress) {
        self.running.insert(number, (progress.done * (STEPS - 1) as f64) as u64);
        self.show();
    }

    fn ended(&mut self, job: &Job, number: usize, total: usize, ending: Ending<'_>) {
        self.running.remove(&number);
        self.ended.insert(number);
        self.show();
        if ending != Ending::Valid {
            self.bar.println(format!("{}: {ending}", job.name()));
        }
        if self.ended.len() == total {
            self.bar.finish_and_clear();
        }
    }

    fn reused(&mut self, job: &Job, number: usize, total: usize) {
        self.ended(job, number, total, Ending::Valid);
    }
}

/// One line when a run begins and one when it ends.
#[derive(Default)]
struct Lines {
    began: BTreeMap<usize, Instant>,
    waiting: bool,
}

impl Observer for Lines {
    fn begins(&mut self, job: &Job, number: usize, total: usize, attempt: usize) {
        self.began.insert(number, Instant::now());
        self.waiting = false;
        let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
        eprintln!("[{number}/{total}] {}{again}", job.name());
    }

    fn progress(&mut self, _job: &Job, _number: usize, progress: &Progress) {
        if progress.phase.starts_with("waiting") && !self.waiting {
            self.waiting = true;
            eprintln!("  {}", progress.phase);
        }
    }

    fn ended(&mut self, _job: &Job, number: usize, total: usize, ending: Ending<'_>) {
        // The line above may be that of another run.
        let which = match self.began.len() {
            0 | 1 => String::new(),
            _ => format!("[{number}/{total}] "),
        };
        let began = self.began.remove(&number);
        let seconds = began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        let seconds =
            if seconds < 10.0 { format!("{seconds:.1}") } else { format!("{seconds:.0}") };
        eprintln!("  {which}after {seconds} s: {ending}");
    }

    fn reused(&mut self, job: &Job, number: usize, total: usize) {
        eprintln!("[{number}/{total}] {}: in the store", job.name());
    }
}
