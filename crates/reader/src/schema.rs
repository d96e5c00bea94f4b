//! Contents of files: each key of each table with its type, unit, range, default and summary.
//!
//! Messages, listings, `docs/reference/README.md` and the JSON Schema of a format are all written from here.

use std::fmt::Write;

use forebay_core::spec::Quantity;
use forebay_core::units::{ByteCount, Duration, Rate, Ratio, parse_duration};
use serde_json::{Map, Value as Json, json};

use crate::tree::Value;

/// The values that a key allows. Pairs are the least and the greatest value, both allowed.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Switch,
    /// A whole number.
    Whole(u32, u32),
    /// A number without a unit.
    Number(f64, f64),
    /// A share of a whole: a number, or a text such as `1%`.
    Share(f64, f64),
    /// A duration with its unit.
    Duration(Duration, Duration),
    /// A rate with its unit.
    Rate(Rate, Rate),
    /// A rate in this range, or `0bit/s`.
    RateOrNone(Rate, Rate),
    /// A size in bytes with its unit.
    Size(ByteCount, ByteCount),
    /// A name of at most this many letters, digits and these marks.
    Name(usize, &'static str),
    /// One of these words, each with its meaning where that needs saying.
    OneOf(&'static [(&'static str, &'static str)]),
    /// A text; these words say which.
    Text(&'static str),
    /// A list of texts; these words say which.
    Texts(&'static str),
    /// A text, or a table with a `kind` and its parameters; these words say which.
    Spec(&'static str),
    /// Anything: these words describe the allowed values, and the code that reads the key checks it.
    Any(&'static str),
    /// A value of another kind, or a table.
    Or(&'static Kind, &'static Section),
    /// A table.
    Table(&'static Section),
    /// A list of tables.
    Tables(&'static Section),
    /// A table whose `kind` decides its other keys.
    Variants(&'static [(&'static str, &'static Section)]),
}

/// One key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name as written.
    pub name: &'static str,
    /// The values that it allows.
    pub kind: Kind,
    also: &'static str,
    /// Meaning of its absence; empty: the key is required.
    pub default: &'static str,
    /// Effect of the key, one line.
    pub summary: &'static str,
}

/// The keys of one table.
#[derive(Debug)]
pub struct Section {
    /// The object that the table describes.
    pub summary: &'static str,
    /// Keys of the section, in the order of the documentation.
    pub keys: &'static [Key],
}

/// A table of a format and how it is written there.
#[derive(Clone, Debug)]
pub struct Heading {
    /// Such as `[[flow]]`, `[bottleneck]` or `traffic = { kind = "cbr", .. }`.
    pub text: String,
    /// The dotted key of the table, without names of elements; empty at the top level.
    pub path: String,
    /// Whether there may be several such tables.
    pub is_list: bool,
    /// The keys of the table.
    pub section: &'static Section,
}

/// A key of a section. `default` describes its absence; empty: the key is required.
pub const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    summary: &'static str,
) -> Key {
    Key { name, kind, also: "", default, summary }
}

/// The keys of a group of bundles that share the uplink as one, in files of boxes and in plans.
pub const fn group_keys(name: Kind, weight: Kind, rate: Kind) -> [Key; 5] {
    let parent = Kind::Text("the name of a group");
    [
        key("name", name, "", "the name by which bundles and groups refer to it; unique"),
        key("parent", parent, "directly below the uplink", "the group that contains this one"),
        key("weight", weight, "1", "weight in sharing within its group"),
        key(
            "guarantee",
            rate,
            "the sum of the guarantees within the group",
            "rate reserved for the group",
        ),
        key("max_rate", rate, "none", "highest rate of the whole group"),
    ]
}

/// The keys of several tables as the keys of one.
pub const fn joined<const N: usize>(parts: &[&[Key]]) -> [Key; N] {
    let mut keys = [key("", Kind::Switch, "", ""); N];
    let (mut filled, mut part) = (0, 0);
    while part < parts.len() {
        let mut place = 0;
        while place < parts[part].len() {
            keys[filled] = parts[part][place];
            filled += 1;
            place += 1;
        }
        part += 1;
    }
    assert!(filled == N, "as many keys as the parts have");
    keys
}

impl Key {
    /// The key with a further condition, which the code that reads the key checks: `"; of greedy"`.
    pub const fn also(self, condition: &'static str) -> Self {
        Self { also: condition, ..self }
    }

    /// Whether its value is a table or a list of tables, with keys of their own.
    pub const fn is_table(&self) -> bool {
        matches!(self.kind, Kind::Table(_) | Kind::Tables(_))
    }

    /// The allowed values, in the words of error messages.
    pub fn allowed(&self) -> String {
        self.kind.allowed() + self.also
    }

    /// The default as listings show it.
    pub fn shown_default(&self) -> String {
        match self.default {
            "" => "required".into(),
            default => format!("default: {default}"),
        }
    }
}

impl Section {
    /// The key called `name`.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// This table at the top level and all tables that it may hold, in the order of the keys.
    pub fn headings(&'static self) -> Vec<Heading> {
        let top = ("(top level)".into(), String::new());
        let (text, path): (String, String) = top;
        let mut all = vec![Heading { text, path, is_list: false, section: self }];
        self.below("", &mut all);
        all
    }

    fn below(&'static self, path: &str, all: &mut Vec<Heading>) {
        for key in self.keys {
            let path = crate::tree::join(path, key.name);
            let mut add = |text: String, is_list, section: &'static Section| {
                all.push(Heading { text, path: path.clone(), is_list, section });
                section.below(&path, all);
            };
            match key.kind {
                Kind::Table(section) | Kind::Or(_, section) => {
                    add(format!("[{path}]"), false, section);
                }
                Kind::Tables(section) => add(format!("[[{path}]]"), true, section),
                Kind::Variants(variants) => {
                    for (kind, section) in variants {
                        let rest = if section.keys.len() > 1 { ", .." } else { "" };
                        add(format!("{} = {{ kind = {kind:?}{rest} }}", key.name), false, section);
                    }
                }
                _ => {}
            }
        }
    }

    /// Every table with its keys, a line for the effect of each and one for its allowed values.
    pub fn listing(&'static self) -> String {
        let mut out = String::new();
        for heading in self.headings() {
            let _ = write!(out, "\n{}\n  # {}\n", heading.text, heading.section.summary);
            for key in heading.section.keys {
                let (name, default) = (key.name, key.shown_default());
                let _ = writeln!(out, "  {name:<16} {} ({default})", key.summary);
                let _ = writeln!(out, "  {:<16}   {}", "", key.allowed());
            }
        }
        out
    }

    /// Every table with its keys in Markdown, below headings of the third level.
    pub fn markdown(&'static self) -> String {
        let mut out = String::new();
        let cell = |text: &str| text.replace('|', "\\|").replace('<', "\\<");
        for heading in self.headings() {
            let _ =
                write!(out, "\n### `{}`\n\n{}\n\n", heading.text, cell(heading.section.summary));
            out.push_str("| key | default | allowed | what |\n|---|---|---|---|\n");
            for key in heading.section.keys {
                let default = if key.default.is_empty() { "required" } else { key.default };
                let (default, allowed) = (cell(default), cell(&key.allowed()));
                let _ = writeln!(
                    out,
                    "| `{}` | {default} | {allowed} | {} |",
                    key.name,
                    cell(key.summary)
                );
            }
        }
        out
    }

    /// The JSON Schema (draft 2020-12) of the table.
    pub fn json_schema(&self) -> Json {
        let properties = self.keys.iter().map(|key| {
            let mut schema = key.kind.json_schema();
            let words = format!("{}; {}", key.summary, key.allowed());
            schema.insert("description".into(), words.into());
            if !key.default.is_empty() {
                schema.insert("x-default".into(), key.default.into());
            }
            (key.name.to_string(), Json::Object(schema))
        });
        let required = self.keys.iter().filter(|key| key.default.is_empty());
        let required: Vec<&str> = required.map(|key| key.name).collect();
        json!({
            "type": "object",
            "description": self.summary,
            "properties": properties.collect::<Map<_, _>>(),
            "required": required,
            "additionalProperties": false,
        })
    }
}

/// `a duration such as "50ms", 0s to 1s`, without an upper end where `high` is the greatest possible
/// value.
fn range<T: Quantity>(usual: T, low: T, high: T, greatest: T) -> String {
    let (is_usual, has_end) = (low <= usual && usual <= high, high < greatest);
    let example = if is_usual { usual } else { [low, high][usize::from(has_end)] };
    let what = format!("{} such as {:?}, {}", T::WHAT, example.written(), low.written());
    if has_end { format!("{what} to {}", high.written()) } else { format!("{what} or more") }
}

impl Kind {
    /// The allowed values, in the words of error messages.
    pub fn allowed(&self) -> String {
        match *self {
            Self::Switch => "true or false".into(),
            Self::Whole(low, high) => format!("a whole number, {low} to {high}"),
            Self::Number(low, high) if high == f64::MAX && low == -high => "a number".into(),
            Self::Number(low, high) => format!("a number, {low} to {high}"),
            Self::Share(low, high) => {
                format!("a share from {low} to {high} such as \"1%\" or 0.01")
            }
            Self::Duration(low, high) => range(Duration::from_millis(50), low, high, Duration::MAX),
            Self::Rate(low, high) => range(Rate::from_mbit_per_sec(96), low, high, Rate::MAX),
            Self::RateOrNone(low, high) => {
                let rate = Self::Rate(low, high).allowed();
                format!("{rate}, or \"0bit/s\"")
            }
            Self::Size(low, high) => {
                range(ByteCount::new(256_000), low, high, ByteCount::new(u64::MAX))
            }
            Self::Name(most, marks) => {
                let marks = marks.chars().map(|mark| format!("`{mark}`"));
                let all: Vec<String> =
                    ["letters".into(), "digits".into()].into_iter().chain(marks).collect();
                format!("a text of 1 to {most} {}", listed(&all))
            }
            Self::OneOf(words) => {
                let words = words.iter().map(|(word, meaning)| match *meaning {
                    "" => format!("{word:?}"),
                    meaning => format!("{word:?} ({meaning})"),
                });
                listed(&words.collect::<Vec<_>>())
            }
            Self::Text(words) | Self::Spec(words) | Self::Any(words) => words.into(),
            Self::Texts(words) => format!("a list: {words}"),
            Self::Or(kind, _) => format!("{}, or a table", kind.allowed()),
            Self::Table(_) => "a table".into(),
            Self::Tables(_) => "a list of tables".into(),
            Self::Variants(variants) => {
                let kinds: Vec<&str> = variants.iter().map(|(kind, _)| *kind).collect();
                format!("a table with kind = {}", listed(&kinds))
            }
        }
    }

    /// Whether a key may have `value`, tables within apart.
    pub fn fits(&self, value: &Value) -> bool {
        match self {
            Self::Switch => matches!(value, Value::Bool(_)),
            Self::Whole(..) => self.whole(value).is_some(),
            Self::Number(..) => self.number(value).is_some(),
            Self::Share(..) => self.share(value).is_some(),
            Self::Duration(..) => self.duration(value).is_some(),
            Self::Rate(..) | Self::RateOrNone(..) => self.rate(value).is_some(),
            Self::Size(..) => self.size(value).is_some(),
            Self::Name(..) => self.name(value).is_some(),
            Self::OneOf(words) => {
                value.as_text().is_some_and(|text| words.iter().any(|(word, _)| *word == text))
            }
            Self::Text(_) => value.as_text().is_some(),
            // The code that reads the list reports which element is wrong.
            Self::Texts(_) => value.as_list().is_some(),
            Self::Spec(_) => {
                let kind = |table: &crate::tree::Table| {
                    table.get("kind").is_some_and(|kind| kind.value.as_text().is_some())
                };
                value.as_text().is_some() || value.as_table().is_some_and(kind)
            }
            Self::Any(_) => !matches!(value, Value::Other(_)),
            Self::Or(kind, _) => value.as_table().is_some() || kind.fits(value),
            Self::Table(_) => value.as_table().is_some(),
            Self::Tables(_) => value
                .as_list()
                .is_some_and(|all| all.iter().all(|it| it.value.as_table().is_some())),
            Self::Variants(_) => self.variant(value).is_some(),
        }
    }

    /// The whole number that `value` is, if it is in the range.
    pub fn whole(&self, value: &Value) -> Option<u32> {
        let (Self::Whole(low, high), Value::Integer(number)) = (self, value) else { return None };
        u32::try_from(*number).ok().filter(|number| (low..=high).contains(&number))
    }

    /// The number that `value` is, if it is in the range.
    pub fn number(&self, value: &Value) -> Option<f64> {
        let Self::Number(low, high) = self else { return None };
        of_number(value).filter(|number| (low..=high).contains(&number))
    }

    /// The share that `value` is, if it is in the range.
    pub fn share(&self, value: &Value) -> Option<f64> {
        let Self::Share(low, high) = self else { return None };
        let share = match value {
            Value::Text(text) => text.parse().ok(),
            value => of_number(value).and_then(Ratio::new),
        };
        share.map(Ratio::as_f64).filter(|share| (low..=high).contains(&share))
    }

    /// The duration that `value` is, if it is in the range.
    pub fn duration(&self, value: &Value) -> Option<Duration> {
        let Self::Duration(low, high) = self else { return None };
        let duration = parse_duration(value.as_text()?).ok();
        duration.filter(|duration| (low..=high).contains(&duration))
    }

    /// The rate that `value` is, if it is in the range.
    pub fn rate(&self, value: &Value) -> Option<Rate> {
        let (Self::Rate(low, high) | Self::RateOrNone(low, high)) = self else { return None };
        let or_none = matches!(self, Self::RateOrNone(..));
        let is_allowed =
            |rate: &Rate| (low..=high).contains(&rate) || or_none && *rate == Rate::ZERO;
        value.as_text()?.parse().ok().filter(is_allowed)
    }

    pub(crate) fn size(&self, value: &Value) -> Option<ByteCount> {
        let Self::Size(low, high) = self else { return None };
        value.as_text()?.parse().ok().filter(|size| (low..=high).contains(&size))
    }

    /// The name that `value` is, if it is one of this kind.
    pub fn name(&self, value: &Value) -> Option<String> {
        let Self::Name(most, marks) = self else { return None };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || marks.contains(c);
        let is_name = |text: &&str| (1..=*most).contains(&text.len()) && text.chars().all(is_plain);
        value.as_text().filter(is_name).map(String::from)
    }

    pub(crate) fn variant(&self, value: &Value) -> Option<&'static Section> {
        let Self::Variants(variants) = self else { return None };
        let kind = value.as_table()?.get("kind")?.value.as_text()?;
        variants.iter().find(|(known, _)| *known == kind).map(|(_, section)| *section)
    }

    fn json_schema(&self) -> Map<String, Json> {
        let text = json!({ "type": "string" });
        let spec = || {
            let table = json!({
                "type": "object",
                "properties": { "kind": text },
                "required": ["kind"],
            });
            json!({ "anyOf": [text, table] })
        };
        let schema = match self {
            Self::Switch => json!({ "type": "boolean" }),
            Self::Whole(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
            Self::Number(low, high) => json!({ "type": "number", "minimum": low, "maximum": high }),
            Self::Share(low, high) => {
                json!({ "anyOf": [{ "type": "number", "minimum": low, "maximum": high }, text] })
            }
            Self::Name(most, marks) => {
                let marks = marks.replace('-', "\\-");
                json!({ "type": "string", "pattern": format!("^[A-Za-z0-9{marks}]{{1,{most}}}$") })
            }
            Self::OneOf(words) => {
                json!({ "enum": words.iter().map(|(word, _)| *word).collect::<Vec<_>>() })
            }
            Self::Duration(..) | Self::Rate(..) | Self::RateOrNone(..) | Self::Size(..) => text,
            Self::Text(_) => text,
            Self::Texts(_) => json!({ "type": "array", "items": text }),
            Self::Spec(_) => spec(),
            Self::Any(_) => json!({}),
            Self::Or(kind, section) => {
                json!({ "anyOf": [kind.json_schema(), section.json_schema()] })
            }
            Self::Table(section) => section.json_schema(),
            Self::Tables(section) => json!({ "type": "array", "items": section.json_schema() }),
            Self::Variants(variants) => {
                let of_kind = |(kind, section): &(&str, &Section)| {
                    let mut schema = section.json_schema();
                    schema["properties"]["kind"] = json!({ "const": kind });
                    schema
                };
                json!({ "oneOf": variants.iter().map(of_kind).collect::<Vec<_>>() })
            }
        };
        match schema {
            Json::Object(schema) => schema,
            _ => Map::new(),
        }
    }
}

fn of_number(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Integer(number) => Some(*number as f64),
        _ => None,
    }
}

/// `a, b or c`.
fn listed<T: AsRef<str>>(texts: &[T]) -> String {
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    match texts.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => texts.concat(),
    }
}
