//! Progress of a measurement on stderr: a bar with the remaining time at a terminal, otherwise lines.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Shows the progress.
pub struct PlatformsProgress {
    bar: Option<ProgressBar>,
    part: String,
    is_waiting: bool,
}

impl PlatformsProgress {
    /// A bar if stderr is a terminal.
    pub fn on_stderr() -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { bar: is_terminal.then(bar), part: String::new(), is_waiting: false }
    }

    /// A part of `trials` trials begins. If trials continue until claims are resolved, this is the most
    /// that follow next.
    pub fn part(&mut self, name: &str, trials: usize) {
        self.part = name.into();
        match &self.bar {
            Some(bar) => {
                bar.reset();
                bar.set_length(trials as u64);
            }
            None => eprintln!("{name}: {trials} trials"),
        }
    }

    /// A trial begins.
    pub fn trial(&mut self, name: &str) {
        self.is_waiting = false;
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: {name}", self.part));
        }
    }

    /// Trials have ended.
    pub fn ended(&mut self, trials: usize) {
        if let Some(bar) = &self.bar {
            bar.inc(trials as u64);
        }
    }

    /// Another measurement uses the machine.
    pub fn waiting(&mut self, holder: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(format!("waiting for {holder}")),
            None if !self.is_waiting => eprintln!("  waiting for {holder}"),
            None => {}
        }
        self.is_waiting = true;
    }

    /// A note for the user.
    pub fn note(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => eprintln!("  {text}"),
        }
    }

    /// The measurement has ended.
    pub fn finish(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    let style = "{bar:30} {pos}/{len}  {elapsed_precise} (about {eta} left)  {msg}";
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template(style).expect("a valid template"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
