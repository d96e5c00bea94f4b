//! `forebay top`: what bundles do, live.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use forebay_core::units::parse_duration;

#[cfg(feature = "host")]
mod columns;
#[cfg(feature = "host")]
mod view;

/// Show rates, queues, delays and states of bundles live.
#[derive(clap::Args)]
#[command(after_help = "\
Columns, one line for each bundle, in Mbit/s, ms and kB:
  SENT   rate that left the sendbox in the last second; at a receivebox, rate since the last update
  DELIV  rate of the last second that the receivebox reported
  LIMIT  rate of the shaper; - while the bundle is unshaped
  RTT    round trip between the boxes: the minimum plus the standing queue beyond the sendbox
  HERE   bytes in the sendbox's own queue
  TAKEN  time that bytes waited in the sendbox instead of the network, while the bundle was shaped
  THERE  queueing delay beyond the sendbox
  FLOWS  flows with packets in the sendbox, if the queueing discipline separates flows

Keys:
  s, S          sort by the next column, by the previous column
  r             reverse the order
  /             filter by name; Esc shows all bundles again
  up, down      select a bundle (also k, j)
  e             explain the selected bundle
  q             quit

Examples:
  forebay top
  forebay top --once --sort taken
  forebay top --filter berlin --interval 5s")]
pub struct Top {
    /// Control socket of the daemon: `box.control` in its configuration, or `agent --control`
    /// [default: every socket in /run/forebay].
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print the lines once, for a pipe or a terminal that cannot be redrawn.
    #[arg(long)]
    once: bool,
    /// Time between two updates, 100ms to 1h.
    #[arg(long, value_parser = interval, default_value = "1s", value_name = "TIME")]
    interval: Duration,
    /// Column to sort by, as in the heading of the table.
    #[arg(long, default_value = "bundle", value_name = "COLUMN")]
    sort: String,
    /// Show only bundles whose names contain TEXT.
    #[arg(long, default_value = "", value_name = "TEXT")]
    filter: String,
}

fn interval(text: &str) -> Result<Duration, String> {
    let given = parse_duration(text).ok();
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    let given = given.filter(|given| allowed.contains(given));
    given.ok_or_else(|| "allowed is a duration from 100ms to 1h, such as 1s".into())
}

#[cfg(feature = "host")]
mod with_host {
    use std::io;
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
    use std::time::Instant;

    use console::{Key, Term};

    use super::columns::Column;
    use super::view::{Act, View};
    use super::*;
    use crate::commands::status::Target;
    use crate::commands::{BadInput, print};

    /// How long a changed size of the window may go unnoticed.
    const GLANCE: Duration = Duration::from_millis(250);
    /// Columns of a terminal that does not give its width.
    const COLUMNS: u16 = 80;

    impl Top {
        /// Shows the bundles until the user quits, or once.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            let column = Column::named(&self.sort).map_err(|allowed| {
                BadInput(format!("--sort {}: allowed is {allowed}", self.sort))
            })?;
            let mut view = View::new(column, self.filter);
            let target = Target::of(self.socket);
            view.update(target.status()?);
            let term = Term::buffered_stdout();
            if self.once {
                let columns = term.size_checked().map_or(COLUMNS, |(_, columns)| columns);
                print(&format!("{}\n", view.lines(columns.into()).join("\n")))?;
                return Ok(ExitCode::SUCCESS);
            }
            if console::is_dumb() || term.size_checked().is_none() {
                let why = "stdout is not a terminal that can be redrawn";
                return Err(
                    BadInput(format!("{why}: allowed is --once, or `forebay status`")).into()
                );
            }
            let screen = Screen::open(term)?;
            run(&screen, &mut view, &target, self.interval)?;
            Ok(ExitCode::SUCCESS)
        }
    }

    fn run(
        screen: &Screen,
        view: &mut View,
        target: &Target,
        interval: Duration,
    ) -> io::Result<()> {
        let keys = Keys::start()?;
        let mut due = Instant::now() + interval;
        let mut drawn = None;
        loop {
            let size = screen.size();
            if drawn != Some(size) {
                screen.draw(&view.screen(size.0.into(), size.1.into()))?;
                drawn = Some(size);
            }
            let wait = due.saturating_duration_since(Instant::now()).min(GLANCE);
            match keys.pressed.recv_timeout(wait) {
                Ok(key) if view.press(&key) == Act::Quit => return Ok(()),
                Ok(_) => {
                    drawn = None;
                    // A reader that has ended is noticed above.
                    let _ = keys.next.send(());
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < due => {}
                Err(RecvTimeoutError::Timeout) => {
                    match target.status() {
                        Ok(answers) => view.update(answers),
                        // A box that is started again answers again.
                        Err(error) => view.miss(&error),
                    }
                    due = Instant::now() + interval;
                    drawn = None;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Pressed keys. While the thread waits for a key, the terminal neither echoes nor buffers lines. After each
    /// key it restores the terminal until the next wait, so quitting leaves the terminal in order.
    struct Keys {
        pressed: Receiver<Key>,
        next: Sender<()>,
    }

    impl Keys {
        fn start() -> io::Result<Self> {
            let (sender, pressed) = channel();
            let (next, asked) = channel();
            std::thread::Builder::new().name("keys".into()).spawn(move || {
                let term = Term::stdout();
                while let Ok(key) = term.read_key_raw() {
                    if sender.send(key).is_err() || asked.recv().is_err() {
                        return;
                    }
                }
            })?;
            Ok(Self { pressed, next })
        }
    }

    /// The alternate screen of the terminal (ECMA-48 with xterm's private modes), which goes when it is dropped.
    struct Screen(Term);

    impl Screen {
        fn open(term: Term) -> io::Result<Self> {
            term.write_str("\x1b[?1049h")?;
            term.hide_cursor()?;
            term.flush()?;
            Ok(Self(term))
        }

        fn size(&self) -> (u16, u16) {
            self.0.size()
        }

        fn draw(&self, lines: &[String]) -> io::Result<()> {
            // Nothing is cleared before it is overwritten: over a slow line that would flicker.
            let text = lines.join("\x1b[K\r\n");
            self.0.write_str(&format!("\x1b[H{text}\x1b[K\x1b[J"))?;
            self.0.flush()
        }
    }

    impl Drop for Screen {
        fn drop(&mut self) {
            // A terminal that is gone needs no order.
            let _ = self.0.write_str("\x1b[?1049l");
            let _ = self.0.show_cursor();
            let _ = self.0.flush();
        }
    }
}

#[cfg(not(feature = "host"))]
impl Top {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = (self.socket, self.once, self.interval, self.sort, self.filter);
        Err(super::needs_host("top"))
    }
}
