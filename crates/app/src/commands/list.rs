//! `forebay list`: lists the names that configurations and plans accept.

use std::fmt;
use std::process::ExitCode;

use forebay_core::qdisc::DISCIPLINES;
use forebay_core::spec::Parameter;
use forebay_core::traffic::RECEIVERS;
use forebay_policy::algorithms;
use serde_json::{Value, json};

use super::foreign_rust::With;
use super::{BadInput, print};

/// List algorithms, queueing disciplines, plans, paths or metrics.
///
/// Prints each name with its parameters, defaults, allowed values and sources. Plans have one line
/// each: name and title. `forebay plan check NAME` shows one with its arms and cells.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    forebay list algorithms\n  \
    forebay list plans\n  \
    forebay list plans fairness        # plans with this text in name or title\n  \
    forebay list metrics --json")]
pub struct List {
    /// The list to print.
    pub what: What,
    /// Plans: show only those with this text in name or title.
    #[arg(value_name = "PATTERN")]
    pub pattern: Option<String>,
    #[command(flatten)]
    with: With,
    /// Print one JSON array on stdout.
    #[arg(long)]
    pub json: bool,
}

/// The lists that can be printed.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum What {
    /// Plans of experiments that come with the program.
    Plans,
    /// Network paths that a plan can name.
    Paths,
    /// Congestion-control algorithms of sendboxes, agents and simulated flows.
    Algorithms,
    /// Queueing disciplines.
    Qdiscs,
    /// TCP receivers, including receivers that misbehave.
    Receivers,
    /// Metrics of a run.
    Metrics,
    /// Quantities over time.
    Series,
}

/// An entry of a list: a name with its parameters.
struct Kind {
    name: &'static str,
    summary: &'static str,
    params: &'static [&'static dyn Parameter],
    sources: &'static [&'static str],
}

impl List {
    /// The arguments that may name algorithms.
    pub fn mentions(&mut self) -> Vec<&mut String> {
        self.with.mentions()
    }

    /// Refuses a pattern for a list without patterns.
    pub fn check_pattern(&self) -> Result<(), BadInput> {
        match &self.pattern {
            Some(text) if !matches!(self.what, What::Plans) => {
                Err(BadInput(format!("PATTERN {text}: allowed with `forebay list plans`")))
            }
            _ => Ok(()),
        }
    }

    /// Prints the list on stdout. The other program prints the laboratory's lists.
    pub(super) fn execute(self) -> anyhow::Result<ExitCode> {
        self.check_pattern()?;
        let kinds = self.what.kinds();
        if self.json {
            print(&format!("{:#}\n", kinds.iter().map(Kind::as_json).collect::<Value>()))?;
        } else {
            print(&kinds.iter().map(Kind::to_string).collect::<String>())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl What {
    /// The laboratory's command that prints this list, if the laboratory has
    /// it.
    pub fn is_of_laboratory(self) -> Option<&'static str> {
        match self {
            Self::Plans => Some("list plans"),
            Self::Paths => Some("list paths"),
            Self::Metrics => Some("list metrics"),
            Self::Series => Some("list series"),
            Self::Algorithms | Self::Qdiscs | Self::Receivers => None,
        }
    }

    fn kinds(self) -> Vec<Kind> {
        macro_rules! kinds {
            ($all:expr) => {
                $all.iter()
                    .map(|it| Kind {
                        name: it.name,
                        summary: it.summary,
                        params: it.params,
                        sources: it.sources,
                    })
                    .collect()
            };
        }
        match self {
            Self::Algorithms => kinds!(algorithms::known().algorithms()),
            Self::Qdiscs => kinds!(DISCIPLINES),
            Self::Receivers => kinds!(RECEIVERS),
            Self::Plans | Self::Paths | Self::Metrics | Self::Series => Vec::new(),
        }
    }
}

impl Kind {
    fn as_json(&self) -> Value {
        let param = |it: &&dyn Parameter| {
            json!({ "name": it.name(), "default": it.written_default(), "summary": it.summary(),
                    "allowed": it.allowed() })
        };
        let params: Vec<Value> = self.params.iter().map(param).collect();
        json!({ "name": self.name, "summary": self.summary, "parameters": params,
                "sources": self.sources })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n    {}", self.name, self.summary)?;
        for param in self.params {
            let (name, summary, allowed) = (param.name(), param.summary(), param.allowed());
            let default = param.written_default().map_or(String::new(), |it| format!(" [{it}]"));
            writeln!(f, "    {name}{default}: {summary}; {allowed}")?;
        }
        writeln!(f, "    sources: {}", self.sources.join("; "))
    }
}
