//! The command that runs a plan, so that a report can name it.

use forebay_core::text::shell_word;

use super::Override;
use super::library::is_builtin;

/// The command of a shell that runs the plan in `file` with these changes, without back end and seeds. Empty if
/// the plan is in no file, as a dict in Python.
pub fn command(file: &str, sets: &[Override], as_published: bool) -> String {
    if !file.ends_with(".toml") && !is_builtin(file) {
        return String::new();
    }
    let known = file.strip_prefix("plans/").and_then(|name| name.strip_suffix(".toml"));
    let published = if as_published { " --as-published" } else { "" };
    let set = |set: &Override| {
        format!(" --set {}", shell_word(&format!("{}={}", set.key, set.node.value.plain())))
    };
    let sets: String = sets.iter().map(set).collect();
    format!("forebay run {}{published}{sets}", shell_word(known.unwrap_or(file)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn command_names_changes_and_quotes_them() {
        let sets = ["stop=15s", r#"aut=["cubic"]"#].map(|set| Override::parse(set).unwrap());
        let expected =
            "forebay run ccperf/base --as-published --set stop=15s --set 'aut=[\"cubic\"]'";
        assert_eq!(command("plans/ccperf/base.toml", &sets, true), expected);
        assert_eq!(command("dict", &sets, false), "");
        let mut plan = Plan::load("bundler/main", &[]).unwrap();
        plan.select_arms(&["status_quo".into(), "copa_sfq".into()]).unwrap();
        assert_eq!(plan.command, "forebay run bundler/main --arms status_quo,copa_sfq");
    }
}
