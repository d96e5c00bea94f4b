//! Result of a requested change of configuration, for people, for programs and for the log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Approximate characters of a line that lists bundles.
const LINE_MAX: usize = 100;

/// A value that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Name of the setting, such as `max_rate` of a bundle or `box.wan`.
    pub key: String,
    /// The value in force, in the syntax of the file; `none` if there is none.
    pub before: String,
    /// The value of the new configuration.
    pub after: String,
}

impl Setting {
    /// Makes the setting `key` if the two values differ.
    pub fn new(key: &str, [before, after]: [String; 2]) -> Option<Self> {
        (before != after).then(|| Self { key: key.into(), before, after })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.key, self.before, self.after)
    }
}

/// The effect of a change of configuration on a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The bundle is not touched.
    Unchanged,
    /// The bundle goes on, with other values.
    Changed,
    /// The bundle restarts: session and control loop start again, and queued packets leave at once.
    Renewed,
    /// The bundle is new.
    Added,
    /// The bundle is removed: queued packets leave at once, and the kernel handles later ones.
    Removed,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unchanged => "unchanged",
            Self::Changed => "changed",
            Self::Renewed => "begins anew",
            Self::Added => "added",
            Self::Removed => "removed",
        })
    }
}

/// The effect on one bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleOutcome {
    /// Name of the bundle.
    pub name: String,
    /// Effect on the bundle.
    pub fate: Fate,
    /// The values that differ, for a bundle in both configurations.
    pub settings: Vec<Setting>,
}

/// The changes that were made, or would be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The configuration file of the box.
    pub file: String,
    /// Reasons why nothing was changed; empty if the change was made.
    pub refused: Vec<String>,
    /// The values outside bundles that differ: shares of the uplink.
    pub settings: Vec<Setting>,
    /// The bundles of the new configuration in its order, then the removed ones.
    pub bundles: Vec<BundleOutcome>,
    /// Time after which the change is undone unless it is confirmed (s).
    pub confirm_within_s: Option<u32>,
}

impl Outcome {
    /// Makes the result for a configuration that was refused entirely, with this reason.
    pub fn refused(file: String, reason: String) -> Self {
        Self { file, refused: vec![reason], ..Self::default() }
    }

    /// Whether the configurations are equal.
    pub fn is_nothing(&self) -> bool {
        self.settings.is_empty() && self.bundles.iter().all(|it| it.fate == Fate::Unchanged)
    }

    /// Number of bundles per effect, such as `1 changed, 254 unchanged`.
    pub fn summary(&self) -> String {
        let fates = [Fate::Changed, Fate::Renewed, Fate::Added, Fate::Removed, Fate::Unchanged];
        let counts = fates.map(|fate| self.bundles.iter().filter(|it| it.fate == fate).count());
        let counted = fates.iter().zip(counts).filter(|(_, count)| *count > 0);
        let mut parts: Vec<String> =
            counted.map(|(fate, count)| format!("{count} {fate}")).collect();
        if !self.settings.is_empty() {
            parts.push(format!("shares {}", Fate::Changed));
        }
        parts.join(", ")
    }

    /// A line for each change.
    pub fn changes(&self) -> impl Iterator<Item = String> {
        let bundles = self.bundles.iter().filter(|it| it.fate != Fate::Unchanged);
        let bundles = bundles.map(|BundleOutcome { name, fate, settings }| {
            let colon = if settings.is_empty() { "" } else { ": " };
            let settings: Vec<String> = settings.iter().map(Setting::to_string).collect();
            format!("bundle {name} {fate}{colon}{}", settings.join(", "))
        });
        self.settings.iter().map(Setting::to_string).chain(bundles)
    }

    /// A line for each change, and a few that list the unchanged bundles; each begins with two spaces.
    pub fn listing(&self) -> String {
        let mut text: String = self.changes().map(|change| format!("  {change}\n")).collect();
        let unchanged = self.bundles.iter().filter(|it| it.fate == Fate::Unchanged);
        let mut line = String::new();
        for (place, bundle) in unchanged.enumerate() {
            if line.len() + bundle.name.len() > LINE_MAX {
                text += &format!("{line},\n");
                line = "    ".into();
            } else {
                line += if place == 0 { "  unchanged: " } else { ", " };
            }
            line += &bundle.name;
        }
        if !line.is_empty() {
            text += &format!("{line}\n");
        }
        text
    }
}

/// Writes the text for people.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = &self.file;
        if !self.refused.is_empty() {
            writeln!(f, "{file}: refused; nothing has changed")?;
            return self.refused.iter().try_for_each(|reason| writeln!(f, "  {reason}"));
        }
        if self.is_nothing() {
            writeln!(f, "{file}: no difference from the configuration in force")?;
        } else {
            writeln!(f, "{file}: in force: {}", self.summary())?;
        }
        f.write_str(&self.listing())?;
        if let Some(within_s) = self.confirm_within_s {
            writeln!(f, "reverts in {within_s} s, unless you run `forebay confirm` before")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(name: &str, fate: Fate, settings: &[[&str; 3]]) -> BundleOutcome {
        let setting = |[key, before, after]: &[&str; 3]| {
            Setting::new(key, [before.to_string(), after.to_string()]).unwrap()
        };
        BundleOutcome { name: name.into(), fate, settings: settings.iter().map(setting).collect() }
    }

    #[test]
    fn each_bundle_is_listed_unchanged_ones_briefly() {
        let mut outcome = Outcome {
            file: "box.toml".into(),
            settings: vec![Setting::new("uplink.rate", ["1", "2"].map(String::from)).unwrap()],
            bundles: vec![
                bundle("a", Fate::Changed, &[["weight", "3", "5"], ["max_rate", "none", "9"]]),
                bundle("b", Fate::Added, &[]),
                bundle("c", Fate::Unchanged, &[]),
                bundle("d", Fate::Unchanged, &[]),
            ],
            confirm_within_s: Some(60),
            ..Outcome::default()
        };
        let expected = "box.toml: in force: 1 changed, 1 added, 2 unchanged, shares changed\n  \
                        uplink.rate 1 -> 2\n  bundle a changed: weight 3 -> 5, max_rate none -> 9\n  \
                        bundle b added\n  unchanged: c, d\n\
                        reverts in 60 s, unless you run `forebay confirm` before\n";
        assert_eq!(outcome.to_string(), expected);
        let many = (0..300).map(|number| bundle(&format!("b{number}"), Fate::Unchanged, &[]));
        outcome.bundles = many.collect();
        let text = outcome.to_string();
        let names = text.split([' ', ',', '\n']).filter(|word| word.starts_with('b'));
        assert_eq!(names.filter(|word| word[1..].parse::<u32>().is_ok()).count(), 300);
        assert!(text.lines().all(|line| line.len() <= LINE_MAX + 10), "{text}");
    }

    #[test]
    fn refusal_lists_every_reason_and_no_change() {
        let mut outcome = Outcome::refused("box.toml".into(), "one".into());
        outcome.refused.push("two".into());
        assert_eq!(outcome.to_string(), "box.toml: refused; nothing has changed\n  one\n  two\n");
        let text = serde_json::to_string(&outcome).unwrap();
        assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
    }
}
