//! The overview of all commands in `forebay --help`, in groups for operators and for researchers.

use clap::Command;

use super::laboratory;

/// A title and the names of the commands below it.
type Group = (&'static str, &'static [&'static str]);

/// The groups of commands for operators.
const OPERATORS: [Group; 4] = [
    ("Operators, set up a bundle", &["probe", "doctor", "init", "keygen", "check-config"]),
    ("Operators, run boxes and agents", &["sendbox", "receivebox", "triangle", "agent", "native"]),
    ("Operators, watch them", &["status", "top", "explain", "record", "replay"]),
    ("Operators, change a configuration", &["reload", "apply", "confirm", "revert"]),
];

/// The groups of commands for researchers, which `forebay-experiments` has.
const RESEARCHERS: [Group; 3] = [
    (
        "Researchers, run experiments",
        &[
            "demo",
            "plan",
            "run",
            "bench",
            "reproduce",
            "search",
            "regret",
            "chaos",
            "sensitivity",
            "platforms",
        ],
    ),
    ("Researchers, use results", &["report", "compare", "compare-ns3", "export", "capture"]),
    ("Researchers, add algorithms and paths", &["new-algorithm", "link", "trace"]),
];

/// The group of commands for operators and researchers.
const BOTH: Group = ("Operators and researchers", &["list", "completions", "man", HELP]);

/// The command that clap adds when it parses.
const HELP: &str = "help";

/// Width of the column of names: the longest name, and two blanks.
const NAME_WIDTH: usize = 15;

/// Place of the documentation: of the packages, and of the sources.
const DOCUMENTATION: &str = "Documentation: /usr/share/doc/forebay/docs/README.md (packages) or docs/README.md \
                             (sources)";

/// `cli` of `forebay`, which knows the commands of the laboratory as hidden ones. A manual page has
/// these behind the visible commands.
pub(crate) fn of_boxes(cli: Command) -> Command {
    let experiments = listing(&RESEARCHERS, &cli);
    let note = note();
    grouped(cli).after_help(format!("{experiments}{note}\n\n{DOCUMENTATION}"))
}

/// `cli` of the laboratory, which has all commands.
pub fn of_laboratory(cli: Command) -> Command {
    grouped(cli).after_help(DOCUMENTATION)
}

/// `cli` with a help text that lists all commands in groups.
fn grouped(cli: Command) -> Command {
    let commands =
        [&OPERATORS[..], &RESEARCHERS, &[BOTH]].map(|groups| listing(groups, &cli)).concat();
    let note = note();
    let heading = cli.get_styles().get_header();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}{note}\n\n\
         {heading}Options:{heading:#}\n{{options}}\n\n{DOCUMENTATION}"
    );
    cli.help_template(template)
}

/// The package of the commands for researchers.
fn note() -> String {
    format!("Commands for researchers need the package {}.", laboratory::PACKAGE)
}

/// The commands of `groups` with their summaries, and a blank line behind each group.
fn listing(groups: &[Group], cli: &Command) -> String {
    let heading = cli.get_styles().get_header();
    let mut text = String::new();
    for (title, names) in groups {
        text += &format!("{heading}{title}:{heading:#}\n");
        for name in *names {
            let about = match cli.find_subcommand(name).and_then(Command::get_about) {
                Some(about) => about.to_string(),
                None => "Print this overview, or the help of a command".into(),
            };
            text += &format!("  {name:NAME_WIDTH$}{about}\n");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    /// Most columns of a line.
    const WIDTH: usize = 80;

    fn cli() -> Command {
        laboratory::known(Cli::<crate::Command>::command())
    }

    #[test]
    fn overview_has_each_command_once() {
        let all = OPERATORS.iter().chain(&RESEARCHERS).chain([&BOTH]);
        let listed: Vec<&str> = all.flat_map(|(_, names)| names.iter().copied()).collect();
        let cli = cli();
        let visible = cli.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name);
        let experiments = laboratory::COMMANDS.map(|(name, _)| name);
        let known: BTreeSet<&str> = visible.chain(experiments).chain([HELP]).collect();
        assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), known);
        assert_eq!(listed.len(), known.len(), "none twice: {listed:?}");
        let longest = known.iter().map(|name| name.len()).max();
        assert_eq!(longest, Some(NAME_WIDTH - 2));
    }

    #[test]
    fn help_shows_groups_options_and_documentation() {
        let text = of_boxes(cli()).render_long_help().to_string();
        for part in [
            "Usage: forebay <COMMAND>\n",
            "\nOperators, watch them:\n  status         Show the state of",
            "\n  help           Print this overview",
            "\n\nOptions:\n  -h, --help",
            DOCUMENTATION,
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
        for name in laboratory::COMMANDS.map(|(name, _)| name) {
            assert!(text.contains(&format!("\n  {name:NAME_WIDTH$}")), "{name}:\n{text}");
        }
        let commands = listing(&[&OPERATORS[..], &RESEARCHERS, &[BOTH]].concat(), &cli());
        let plain = clap::builder::StyledStr::from(commands).to_string();
        let wide: Vec<&str> = plain.lines().filter(|line| line.len() > WIDTH).collect();
        assert!(wide.is_empty(), "{wide:#?}");
    }
}
