//! Shows the progress of a plan on stderr: a bar at a terminal, lines otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use crate::{Ending, Event, Progress, Step};

/// Steps of the bar for each run.
const STEPS: u64 = 1000;

/// Shows a plan's progress in the form that suits stderr.
pub fn on_stderr() -> Box<dyn FnMut(Progress<'_>)> {
    if std::io::stderr().is_terminal() {
        let mut bar = Bar::new();
        Box::new(move |progress| bar.show(&progress))
    } else {
        let mut lines = Lines::default();
        Box::new(move |progress| lines.show(&progress))
    }
}

/// Shows on stderr only the runs that ended with a problem.
pub fn problems_on_stderr() -> Box<dyn FnMut(Progress<'_>)> {
    Box::new(|progress| match progress.event {
        Event::Ended(Ending::Valid) => {}
        Event::Ended(ending) => eprintln!("{}: {ending}", progress.name()),
        Event::Begins(_) | Event::UnderWay(_) | Event::Reused => {}
    })
}

/// Shows the progress of several plans, one after the other.
pub fn of_each_on_stderr() -> impl FnMut(Step<'_>) {
    let mut shown = on_stderr();
    move |step| match step {
        Step::Begins(plan, number, total) => {
            // A bar knows the runs of one plan only.
            shown = on_stderr();
            eprintln!("== {number} of {total}: {}", plan.name);
        }
        Step::UnderWay(progress) => shown(progress),
        Step::Failed(reason) => eprintln!("failed: {reason}"),
    }
}

struct Bar {
    bar: ProgressBar,
    /// Runs that have ended, by their number.
    ended: BTreeSet<usize>,
    /// Progress of the runs under way.
    running: BTreeMap<usize, u64>,
}

impl Bar {
    fn new() -> Self {
        let style = "{bar:30} {percent:>3} %  {elapsed_precise} (about {eta} left)  {msg}";
        let bar = ProgressBar::new(0);
        bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
        Self { bar, ended: BTreeSet::new(), running: BTreeMap::new() }
    }

    fn show(&mut self, progress: &Progress<'_>) {
        let Progress { number, total, event, .. } = *progress;
        match event {
            Event::Begins(attempt) => {
                // Progress of a repeated run starts from 0.
                self.ended.remove(&number);
                self.running.insert(number, 0);
                self.bar.set_length(total as u64 * STEPS);
                let message = format!("run {number} of {total}: {}", again(progress, attempt));
                self.bar.set_message(message);
                self.bar.enable_steady_tick(std::time::Duration::from_millis(200));
            }
            Event::UnderWay(step) => {
                self.running.insert(number, (step.done * (STEPS - 1) as f64) as u64);
            }
            Event::Ended(Ending::Valid) | Event::Reused => self.end(number),
            Event::Ended(ending) => {
                self.end(number);
                self.bar.println(format!("{}: {ending}", progress.name()));
            }
        }
        let under_way: u64 = self.running.values().sum();
        self.bar.set_position(self.ended.len() as u64 * STEPS + under_way);
        if self.ended.len() == total {
            self.bar.finish_and_clear();
        }
    }

    fn end(&mut self, number: usize) {
        self.running.remove(&number);
        self.ended.insert(number);
    }
}

/// One line when a run begins and one when it ends.
#[derive(Default)]
struct Lines {
    began: BTreeMap<usize, Instant>,
    waiting: bool,
}

impl Lines {
    fn show(&mut self, progress: &Progress<'_>) {
        let Progress { number, total, event, .. } = *progress;
        match event {
            Event::Reused => eprintln!("[{number}/{total}] {}: in the store", progress.name()),
            Event::Begins(attempt) => {
                self.began.insert(number, Instant::now());
                self.waiting = false;
                eprintln!("[{number}/{total}] {}", again(progress, attempt));
            }
            Event::UnderWay(step) if step.phase.starts_with("waiting") && !self.waiting => {
                self.waiting = true;
                eprintln!("  {}", step.phase);
            }
            Event::UnderWay(_) => {}
            Event::Ended(ending) => {
                // The line above may belong to another run or come from an algorithm, so a problem is printed
                // with the name of its run.
                let which = match (ending, self.began.len()) {
                    (Ending::Valid, 0 | 1) => String::new(),
                    (Ending::Valid, _) => format!("[{number}/{total}] "),
                    _ => format!("[{number}/{total}] {} ", progress.name()),
                };
                let began = self.began.remove(&number);
                let seconds = began.map_or(0.0, |began| began.elapsed().as_secs_f64());
                let digits = if seconds < 10.0 { 1 } else { 0 };
                let line = format!("  {which}after {seconds:.digits$} s: {ending}");
                eprintln!("{line}");
            }
        }
    }
}

/// The name of a run, with the number of its attempt from the second one on.
fn again(progress: &Progress<'_>, attempt: usize) -> String {
    let again = if attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
    progress.name() + &again
}
