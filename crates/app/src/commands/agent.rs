//! `forebay agent`: algorithms of this program decide for connections of this machine's kernel.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use forebay_core::units::{ByteCount, parse_duration};

use super::python::Python;

/// Control the kernel's TCP connections with forebay's algorithms.
///
/// Runs in the foreground and needs root. The agent registers each algorithm with the kernel as
/// fb_NAME (at most 15 characters). It controls the connections that select that name, in every
/// network namespace.
///
/// SIGTERM and SIGINT end the agent. Its names then leave the kernel, unless --pin keeps them. Open
/// connections continue under CUBIC in the kernel: with --pin until an agent with --pin takes them
/// over, and otherwise until they close.
///
/// Exit code 1: the kernel refused, or a privilege or a function of the kernel is missing; 2: an
/// option is wrong, or the file of --record exists.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay agent --algorithm cubic\n  \
    forebay agent --algorithm cubic --algorithm 'plain=cubic(hystart=off)'\n  \
    forebay agent --algorithm 'copa' --algorithm bbr --rule '10.0.0.0/8:443=vegas(alpha=3)'\n  \
    forebay agent --algorithm copa --record copa.recording && forebay replay copa.recording\n\n\
    `forebay list algorithms` lists the algorithms and their parameters.")]
pub struct Agent {
    /// Algorithm, such as cubic or 'cubic(hystart=off)', or the folder of your own crate, such as
    /// ./my_cc. May be repeated. NAME=ALGORITHM registers it under another name than fb_ALGORITHM.
    #[arg(long = "algorithm", required = true, value_name = "NAME")]
    algorithms: Vec<String>,
    #[command(flatten)]
    python: Python,
    /// Use this algorithm for connections to a destination, whichever name they selected:
    /// PREFIX=ALGORITHM, :PORT=ALGORITHM or PREFIX:PORT=ALGORITHM. May be repeated; the first rule
    /// that fits counts.
    #[arg(long = "rule", value_name = "RULE")]
    rules: Vec<String>,
    /// How often the kernel reports on a connection: round (once in a round trip, at most once in a
    /// millisecond), ack (each acknowledgement), or an interval of 100us to 50ms. From 31ms on,
    /// reports may be more frequent, so that a connection notices in time that its agent is gone.
    #[arg(long, default_value = "round", value_name = "round|ack|TIME")]
    report: String,
    /// Interval at which the agent reads reports, 500us to 10ms; 0ms: each report wakes the agent.
    /// The agent reads earlier, after a quarter of the shortest round trip, but not before 3 ms or
    /// the time of --report. To spare the processor an interrupt, it may read late by a fifth of
    /// the interval or by 0.6 ms.
    #[arg(long, default_value = "10ms", value_parser = parse_duration, value_name = "TIME")]
    period: Duration,
    /// Most connections of each name that the agent controls at a time, 1 to 65535. Further
    /// connections use the kernel's algorithm. A user other than root gets at most three times the
    /// free slots, and a sixteenth is reserved for connections of root. Names kept by --pin keep
    /// their number.
    #[arg(long, default_value_t = 16_384, value_name = "N")]
    slots: u32,
    /// Also pace algorithms that only set a window.
    #[arg(long)]
    pace: bool,
    /// Keep the names registered after the agent ends, for an upgrade without a gap. They last
    /// until an agent with --pin takes them over or you remove the files. The folder must be in
    /// bpffs.
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "/sys/fs/bpf/forebay")]
    pin: Option<PathBuf>,
    /// Write reports and decisions to this new file, for `forebay replay`.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Largest size of the recording, which ends there.
    #[arg(long, default_value = "256MB", value_name = "SIZE")]
    record_limit: ByteCount,
    /// Seed of random choices [default: a random one].
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Control socket for `forebay status` [default: /run/forebay/agent-fb_NAME.sock].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
}

impl Agent {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        self.algorithms.iter_mut().collect()
    }
}

#[cfg(feature = "host")]
pub(super) use with_host::exit;

#[cfg(feature = "host")]
mod with_host {
    use forebay_core::spec::SpecError;
    use forebay_host::agent::rules::{Choice, Rule, RuleError, Rules};
    use forebay_host::agent::{self, AgentConfig, AgentError, Cadence};
    use forebay_host::log;
    use forebay_policy::algorithms;

    use super::*;
    use crate::commands::BadInput;

    impl Agent {
        /// Runs until a signal stops it.
        pub fn execute(self) -> anyhow::Result<ExitCode> {
            self.python.know()?;
            let config = self.config()?;
            let selection = selection(&config.rules);
            // The thread that decides must not wait for a reader.
            let started = move || log::announce(selection);
            agent::run(&config, started).map_err(exit)?;
            Ok(ExitCode::SUCCESS)
        }

        fn config(self) -> Result<AgentConfig, BadInput> {
            let choices = self.algorithms.iter().map(|text| {
                let refused = |error: SpecError| BadInput(format!("--algorithm {text}: {error}"));
                Choice::offered(algorithms::known(), text).map_err(refused)
            });
            let rules = self.rules.iter().map(|text| {
                let refused = |error: RuleError| BadInput(format!("--rule {text}: {error}"));
                Rule::read(algorithms::known(), text).map_err(refused)
            });
            let rules =
                Rules::new(choices.collect::<Result<_, _>>()?, rules.collect::<Result<_, _>>()?)
                    .map_err(|reason| BadInput(format!("--algorithm: {reason}")))?;
            let period = self.period;
            if !agent::is_period(period) {
                return Err(BadInput(format!(
                    "--period {period:?}: allowed is 500us to 10ms, or 0ms"
                )));
            }
            if !agent::SLOTS.contains(&self.slots) {
                return Err(BadInput(format!("--slots {}: allowed is 1 to 65535", self.slots)));
            }
            Ok(AgentConfig {
                rules,
                cadence: cadence(&self.report)?,
                period,
                burden: Duration::ZERO,
                pace: self.pace,
                pins: self.pin,
                recording: self.record.map(|file| (file, self.record_limit)),
                slots: self.slots,
                seed: self.seed,
                control: self.control,
            })
        }
    }

    fn cadence(text: &str) -> Result<Cadence, BadInput> {
        agent::cadence(text).ok_or_else(|| {
            BadInput(format!("--report {text}: allowed is round, ack, or a time of 100us to 50ms"))
        })
    }

    /// The error with the exit code that it stands for.
    pub(in crate::commands) fn exit(error: AgentError) -> anyhow::Error {
        if error.is_bad_input() { BadInput(error.to_string()).into() } else { error.into() }
    }

    /// How connections select the algorithms.
    pub(super) fn selection(rules: &Rules) -> String {
        let names: Vec<String> = rules.choices().iter().map(Choice::kernel_name).collect();
        let mut text = String::new();
        for (choice, name) in rules.choices().iter().zip(&names) {
            text += &format!(
                "{name} is registered: {choice} controls the connections that select it\n"
            );
        }
        for rule in rules.rules() {
            text += &format!("rule {rule}\n");
        }
        let name = &names[0];
        let len = name.len();
        text += &format!(
            "\n  \
             a socket      setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, \"{name}\", {len})\n  \
             a route       ip route change PREFIX via GATEWAY dev DEVICE congctl {name}\n  \
             a namespace   sysctl -w net.ipv4.tcp_congestion_control={name}\n\n\
             forebay status shows the connections; ctrl-C ends the agent.\n"
        );
        text
    }

    #[cfg(test)]
    mod tests {
        use clap::Parser;

        use super::*;

        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            agent: Agent,
        }

        fn config(arguments: &str) -> Result<AgentConfig, String> {
            let words = ["agent"].into_iter().chain(arguments.split_whitespace());
            let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
            line.agent.config().map_err(|error| error.to_string())
        }

        #[test]
        fn an_algorithm_is_all_that_is_needed() {
            let config = config("--algorithm cubic").unwrap();
            assert_eq!(config.cadence, Cadence::Round { at_least: Duration::from_millis(1) });
            assert_eq!(config.control_path().to_str(), Some("/run/forebay/agent-fb_cubic.sock"));
            assert!(config.pins.is_none() && config.recording.is_none());
            assert_eq!(config.slots, 16_384);
            let text = selection(&config.rules);
            for part in ["TCP_CONGESTION, \"fb_cubic\", 8)", "congctl fb_cubic", "=fb_cubic\n"] {
                assert!(text.contains(part), "{text}");
            }
        }

        #[test]
        fn options_become_a_configuration() {
            let config = config(
                "--algorithm copa --algorithm bbr --rule :443=vegas --report 10ms --period 1ms \
                 --record r --record-limit 1MB --pin --slots 65535",
            )
            .unwrap();
            assert_eq!(config.rules.choices().len(), 2);
            assert_eq!(config.rules.rules()[0].to_string(), ":443=vegas");
            assert_eq!(config.cadence, Cadence::Every(Duration::from_millis(10)));
            assert_eq!(config.pins.unwrap().to_str(), Some("/sys/fs/bpf/forebay"));
            assert_eq!(config.recording.unwrap().1, ByteCount::new(1_000_000));
            assert_eq!(config.slots, 65_535);
        }

        #[test]
        fn refusals_name_option_value_and_allowed_values() {
            for (arguments, part) in [
                ("", "--algorithm <NAME>"),
                ("--algorithm a.b=cubic", "--algorithm a.b=cubic: name = a.b: allowed is 1 to 15"),
                (
                    "--algorithm nonesuch",
                    "--algorithm nonesuch: kind = nonesuch: allowed is one of",
                ),
                (
                    "--algorithm cubic --rule 443=bbr",
                    "--rule 443=bbr: \"443=bbr\": a rule begins with",
                ),
                ("--algorithm cubic --report 1s", "--report 1s: allowed is round, ack, or a time"),
                ("--algorithm cubic --period 1s", "--period 1s: allowed is 500us to 10ms"),
                ("--algorithm cubic --slots 0", "--slots 0: allowed is 1 to 65535"),
                ("--algorithm cubic --slots 65536", "--slots 65536: allowed is 1 to 65535"),
                ("--algorithm cubic --period 1", "is not a duration"),
                (
                    "--algorithm cubic --algorithm cubic",
                    "--algorithm: two algorithms would have the name fb_cubic",
                ),
            ] {
                let error = config(arguments).unwrap_err();
                assert!(error.contains(part), "{error}");
            }
        }
    }
}

#[cfg(not(feature = "host"))]
impl Agent {
    /// Refuses the command, which this build lacks.
    pub fn execute(self) -> anyhow::Result<ExitCode> {
        let _ = self;
        Err(super::needs_host("agent"))
    }
}
