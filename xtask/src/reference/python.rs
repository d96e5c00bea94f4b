//! `python/forebay/keys.py`: the keys of plans as types of Python.

use std::fmt::Write as _;

use forebay_lab::plan::schema::PLAN;
use forebay_reader::schema::{Key, Kind, Section};

/// Path of the file.
pub const FILE: &str = "python/forebay/keys.py";

/// Begin of the file: its documentation and its imports.
const HEAD: &str = r#""""The keys of a plan as types, for editors and type checkers.

Written by `cargo xtask reference` from the keys that the reader of plans knows::

    plan: PlanKeys = {"name": "mine", "stop": "20s", "bottleneck": {"rate": "48Mbit/s", "rtt": "50ms"}}
    forebay.run(forebay.Plan(plan))

Values with a unit are texts, such as ``"50ms"``. Which keys a plan needs, and their ranges, are checked when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Required, TypedDict
"#;

/// Words that cannot name an attribute of a class, but are keys of plans.
const KEYWORDS: [&str; 3] = ["from", "class", "in"];

/// The text of the file.
pub fn text() -> String {
    let mut types = Types { text: HEAD.into(), known: Vec::new() };
    types.section("PlanKeys", &PLAN, None);
    types.text
}

/// Types that are written, inner ones first.
struct Types {
    text: String,
    known: Vec<(*const Section, Option<&'static str>, String)>,
}

impl Types {
    /// Writes the type of a table, unless it is written already, and returns its name. If there are several
    /// such tables, `kind` is the value of the table's key `kind`.
    fn section(
        &mut self,
        name: &str,
        section: &'static Section,
        kind: Option<&'static str>,
    ) -> String {
        let known = self.known.iter().find(|it| std::ptr::eq(it.0, section) && it.1 == kind);
        if let Some((_, _, known)) = known {
            return known.clone();
        }
        self.known.push((section, kind, name.into()));
        let outer = name.strip_suffix("Keys").map_or(name, |_| "");
        let keys: Vec<String> =
            section.keys.iter().map(|key| self.field(outer, key, kind)).collect();
        let summary = section.summary;
        if section.keys.iter().any(|key| KEYWORDS.contains(&key.name)) {
            let keys = section.keys.iter().zip(&keys);
            let keys: String =
                keys.map(|(key, of)| format!("        {:?}: {of},\n", key.name)).collect();
            let _ = write!(
                self.text,
                "\n\n#: {summary}\n{name} = TypedDict(\n    {name:?},\n    {{\n{keys}    }},\n    total=False,\n)\n"
            );
            return name.into();
        }
        let _ = writeln!(
            self.text,
            "\n\nclass {name}(TypedDict, total=False):\n    \"\"\"{summary}\"\"\"\n"
        );
        for (key, of) in section.keys.iter().zip(&keys) {
            let _ = writeln!(self.text, "    {}: {of}", key.name);
            let default =
                if key.default.is_empty() { "" } else { &format!(" Default: {}.", key.default) };
            let _ = writeln!(
                self.text,
                "    \"\"\"{}.{default}\"\"\"",
                key.summary.replace('\\', "\\\\")
            );
        }
        name.into()
    }

    /// The type of a key. No key but `kind` is required: another one may replace it, as `path` replaces `rtt`.
    fn field(&mut self, outer: &str, key: &Key, kind: Option<&'static str>) -> String {
        match kind {
            Some(kind) if key.name == "kind" => format!("Required[Literal[{kind:?}]]"),
            _ => self.kind(&format!("{outer}{}", in_camel_case(key.name)), &key.kind),
        }
    }

    fn kind(&mut self, name: &str, kind: &Kind) -> String {
        match *kind {
            Kind::Switch => "bool".into(),
            Kind::Whole(..) => "int".into(),
            Kind::Number(..) => "float".into(),
            Kind::Share(..) => "float | str".into(),
            Kind::OneOf(words) => {
                let words: Vec<String> =
                    words.iter().map(|(word, _)| format!("{word:?}")).collect();
                format!("Literal[{}]", words.join(", "))
            }
            Kind::Texts(_) => "Sequence[str]".into(),
            Kind::Spec(_) => "str | Mapping[str, object]".into(),
            Kind::Any(_) => "object".into(),
            Kind::Or(kind, section) => {
                let section = self.section(name, section, None);
                format!("{} | {section}", self.kind(name, kind))
            }
            Kind::Table(section) => self.section(name, section, None),
            Kind::Tables(section) => format!("Sequence[{}]", self.section(name, section, None)),
            Kind::Variants(variants) => {
                let of_kind = |(kind, section): &(&'static str, &'static Section)| {
                    self.section(&format!("{name}{}", in_camel_case(kind)), section, Some(kind))
                };
                variants.iter().map(of_kind).collect::<Vec<_>>().join(" | ")
            }
            Kind::Duration(..) | Kind::Rate(..) | Kind::RateOrNone(..) | Kind::Size(..) => {
                "str".into()
            }
            Kind::Name(..) | Kind::Text(_) => "str".into(),
        }
    }
}

/// `on_off` as `OnOff`.
fn in_camel_case(name: &str) -> String {
    let words = name.split('_');
    words.map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}
