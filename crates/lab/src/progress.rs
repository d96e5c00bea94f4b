//! Shows how far a plan is, on stderr: a bar at a terminal, lines otherwise.

use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::backend::Progress;
use crate::runner::{Job, Observer};

/// Steps of the bar for each run.
const STEPS: u64 = 1000;

/// The observer for stderr as it is.
pub fn on_stderr() -> Box<dyn Observer> {
    if std::io::stderr().is_terminal() { Box::new(Bar::new()) } else { Box::new(Lines::default()) }
}

struct Bar {
    bar: ProgressBar,
    number: u64,
}

impl Bar {
    fn new() -> Self {
        let style = "{bar:30} {percent:>3} %  {elapsed_precise} (about {eta} left)  {msg}";
        let bar = ProgressBar::new(0);
        bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
        Self { bar, number: 0 }
    }
}

impl Observer for Bar {
    fn begins(&mut self, job: &Job, number: usize, total: usize, attempt: usize) {
        self.number = number as u64;
        self.bar.set_length(total as u64 * STEPS);
        self.bar.set_position((self.number - 1) * STEPS);
        let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
        self.bar.set_message(format!("run {number} of {total}: {}{again}", job.name()));
        self.bar.enable_steady_tick(std::time::Duration::from_millis(200));
    }

    fn progress(&mut self, _job: &Job, progress: &Progress) {
        let step = (progress.done * (STEPS - 1) as f64) as u64;
        self.bar.set_position((self.number - 1) * STEPS + step);
    }

    fn ended(&mut self, job: &Job, number: usize, total: usize, reasons: &[String]) {
        self.bar.set_position(number as u64 * STEPS);
        if !reasons.is_empty() {
            self.bar.println(format!("{}: rejected: {}", job.name(), reasons.join("; ")));
        }
        if number == total {
            self.bar.finish_and_clear();
        }
    }

    fn reused(&mut self, job: &Job, number: usize, total: usize) {
        self.ended(job, number, total, &[]);
    }
}

/// One line when a run begins and one when it ends.
#[derive(Default)]
struct Lines {
    began: Option<Instant>,
    waiting: bool,
}

impl Observer for Lines {
    fn begins(&mut self, job: &Job, number: usize, total: usize, attempt: usize) {
        self.began = Some(Instant::now());
        self.waiting = false;
        let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
        eprintln!("[{number}/{total}] {}{again}", job.name());
    }

    fn progress(&mut self, _job: &Job, progress: &Progress) {
        if progress.phase.starts_with("waiting") && !self.waiting {
            self.waiting = true;
            eprintln!("  {}", progress.phase);
        }
    }

    fn ended(&mut self, _job: &Job, _number: usize, _total: usize, reasons: &[String]) {
        let seconds = self.began.map_or(0.0, |began| began.elapsed().as_secs_f64());
        if reasons.is_empty() {
            eprintln!("  valid, {seconds:.0} s");
        } else {
            eprintln!("  rejected after {seconds:.0} s: {}", reasons.join("; "));
        }
    }

    fn reused(&mut self, job: &Job, number: usize, total: usize) {
        eprintln!("[{number}/{total}] {}: in the store", job.name());
    }
}
