//! A TOML document as a tree whose values know where and how they were written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use forebay_core::text::position;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{FileError, Problem};

/// A text that values were read from.
#[derive(Debug)]
struct Text {
    file: String,
    text: String,
    line_ends: Vec<usize>,
    /// A file; an argument of the command line has no lines.
    is_file: bool,
}

/// Where a value was written.
#[derive(Clone)]
pub struct Origin {
    text: Arc<Text>,
    start: usize,
    end: usize,
}

impl Origin {
    /// The whole of an argument, which errors call `name`.
    pub fn argument(name: &str, text: &str) -> Self {
        Self::whole(name, text, false)
    }

    /// The beginning of a file.
    pub(crate) fn start_of(file: &str) -> Self {
        Self::whole(file, "", true)
    }

    fn whole(file: &str, text: &str, is_file: bool) -> Self {
        let line_ends = text.match_indices('\n').map(|(at, _)| at).collect();
        let (file, text) = (file.into(), text.into());
        let text = Arc::new(Text { file, text, line_ends, is_file });
        Self { start: 0, end: text.text.len(), text }
    }

    fn within(&self, span: std::ops::Range<usize>) -> Self {
        Self { text: self.text.clone(), start: span.start, end: span.end }
    }

    /// File name as given by the user, or `--set`.
    pub fn file(&self) -> &str {
        &self.text.file
    }

    /// Line, from 1; `None` on the command line.
    pub fn line(&self) -> Option<usize> {
        let before = self.text.line_ends.partition_point(|end| *end < self.start);
        self.text.is_file.then_some(before + 1)
    }

    /// Column, from 1 (bytes).
    pub(crate) fn column(&self) -> usize {
        position(&self.text.text, self.start).1
    }

    /// The first line of the value as it was written.
    pub fn written(&self) -> &str {
        let text = self.text.text.get(self.start..self.end).unwrap_or_default();
        text.lines().next().unwrap_or_default()
    }

    /// The line in which the value begins, from its column `from` on.
    pub(crate) fn whole_line(&self) -> &str {
        let (line, _) = position(&self.text.text, self.start);
        self.text.text.lines().nth(line - 1).unwrap_or_default()
    }
}

impl PartialEq for Origin {
    fn eq(&self, other: &Self) -> bool {
        self.file() == other.file() && (self.start, self.end) == (other.start, other.end)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line() {
            Some(line) => write!(f, "{}:{line}", self.file()),
            None => f.write_str(self.file()),
        }
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it was written.
    pub origin: Origin,
}

/// A TOML value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// A number with a point or exponent.
    Float(f64),
    /// A string.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A table.
    Table(Table),
    /// A value that no key takes, as written: a date, `nan`, a number of more than 64 bits.
    Other(String),
}

/// Entries by key.
pub type Table = BTreeMap<String, Node>;

/// Reads a document. Errors call it `file`.
///
/// # Errors
///
/// All places that are not TOML.
pub fn parse_document(text: &str, file: &str) -> Result<Table, FileError> {
    parse_with(text, file, |_, message| message.into())
}

/// As [`parse_document`], where `explain` turns a parser's message at a place into one for users.
pub(crate) fn parse_with(
    text: &str,
    file: &str,
    explain: impl Fn(&Origin, &str) -> String,
) -> Result<Table, FileError> {
    let whole = Origin::whole(file, text, true);
    let (table, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(read_table(&whole, table.into_inner()));
    }
    let problem = |error: &toml::de::Error| {
        let at = whole.within(error.span().unwrap_or_default());
        Problem { ..syntax(&at, explain(&at, error.message())) }
    };
    let problems = errors.iter().take(crate::PROBLEMS_MAX).map(problem).collect();
    Err(FileError { file: file.into(), problems })
}

fn syntax(at: &Origin, text: String) -> Problem {
    let column = at.line().map(|_| at.column());
    Problem { column, ..Problem::of_line(at.file(), at.line(), text) }
}

/// Reads one value that the command line gives to the option `name`. Text that is no TOML becomes a text value,
/// so that `--set bottleneck.rate=96Mbit/s` needs no inner quotes.
///
/// # Errors
///
/// The text begins like a list, a table or a quoted text, but is not valid TOML.
pub fn parse_argument(name: &str, text: &str) -> Result<Node, FileError> {
    let whole = Origin::argument(name, text);
    match DeValue::parse(text) {
        Ok(value) => Ok(read_node(&whole, value)),
        Err(error) if text.starts_with(['[', '{', '"', '\'']) => {
            Err(Problem::syntax(&whole, error.message()).into())
        }
        Err(_) => {
            let origin = Origin::argument(name, &format!("{text:?}"));
            Ok(Node { value: Value::Text(text.to_string()), origin })
        }
    }
}

fn read_table(whole: &Origin, table: DeTable<'_>) -> Table {
    let entry = |(key, value): (Spanned<_>, _)| {
        let key: std::borrow::Cow<'_, str> = key.into_inner();
        (key.into_owned(), read_node(whole, value))
    };
    table.into_iter().map(entry).collect()
}

fn read_node(whole: &Origin, value: Spanned<DeValue<'_>>) -> Node {
    let origin = whole.within(value.span());
    let value = match value.into_inner() {
        DeValue::Boolean(value) => Value::Bool(value),
        DeValue::Integer(value) => match i64::from_str_radix(value.as_str(), value.radix()) {
            Ok(value) => Value::Integer(value),
            Err(_) => Value::Other(value.to_string()),
        },
        DeValue::Float(value) => match value.as_str().parse::<f64>() {
            Ok(number) if number.is_finite() => Value::Float(number),
            _ => Value::Other(value.to_string()),
        },
        DeValue::String(value) => Value::Text(value.into_owned()),
        DeValue::Datetime(value) => Value::Other(value.to_string()),
        DeValue::Array(values) => {
            Value::List(values.into_iter().map(|value| read_node(whole, value)).collect())
        }
        DeValue::Table(table) => Value::Table(read_table(whole, table)),
    };
    Node { value, origin }
}

/// `path.key`, without the point at the top.
pub fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_string() } else { format!("{path}.{key}") }
}

/// The name by which overrides and errors call the element of a list of tables: its `name`, else
/// its place from 0.
pub fn element_name(element: &Node, place: usize) -> String {
    match &element.value {
        Value::Table(table) => match table.get("name").map(|node| &node.value) {
            Some(Value::Text(name)) => name.clone(),
            _ => place.to_string(),
        },
        _ => place.to_string(),
    }
}

/// Every leaf of the tree by its dotted key, as written: the parameters of an experiment.
pub fn flatten(table: &Table) -> BTreeMap<String, String> {
    fn visit(node: &Node, path: &str, leaves: &mut BTreeMap<String, String>) {
        match &node.value {
            Value::Table(table) => {
                for (key, node) in table {
                    visit(node, &join(path, key), leaves);
                }
            }
            Value::List(list) if list.iter().any(|n| matches!(n.value, Value::Table(_))) => {
                for (place, node) in list.iter().enumerate() {
                    visit(node, &join(path, &element_name(node, place)), leaves);
                }
            }
            value => drop(leaves.insert(path.to_string(), value.plain())),
        }
    }
    let mut leaves = BTreeMap::new();
    for (key, node) in table {
        visit(node, key, &mut leaves);
    }
    leaves
}

impl Value {
    /// A text without quotes; another value as in TOML.
    pub fn plain(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The table, if it is one.
    pub fn as_table(&self) -> Option<&Table> {
        match self {
            Self::Table(table) => Some(table),
            _ => None,
        }
    }

    /// The elements, if it is a list.
    pub fn as_list(&self) -> Option<&[Node]> {
        match self {
            Self::List(nodes) => Some(nodes),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    /// As it would be written in TOML.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Other(text) => f.write_str(text),
            Self::List(values) => {
                f.write_str("[")?;
                for (index, node) in values.iter().enumerate() {
                    write!(f, "{}{}", if index == 0 { "" } else { ", " }, node.value)?;
                }
                f.write_str("]")
            }
            Self::Table(table) => {
                f.write_str("{")?;
                for (index, (key, node)) in table.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma} {key} = {}", node.value)?;
                }
                f.write_str(" }")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_line() {
        let tree =
            parse_document("a = 1\n\n[b]\nc = \"x\"\n[[d]]\nname = \"e\"\nf = [1,\n 2]\n", "p");
        let tree = tree.unwrap();
        assert_eq!(tree["a"].origin.to_string(), "p:1");
        let b = tree["b"].value.as_table().unwrap();
        assert_eq!((b["c"].origin.line(), b["c"].origin.written()), (Some(4), "\"x\""));
        assert_eq!((tree["b"].origin.written(), tree["d"].origin.line()), ("[b]", Some(5)));
        assert_eq!(
            flatten(&tree).into_iter().collect::<Vec<_>>(),
            [("a", "1"), ("b.c", "x"), ("d.e.f", "[1, 2]"), ("d.e.name", "e")]
                .map(|(key, value)| (key.to_string(), value.to_string()))
        );
    }

    #[test]
    fn all_broken_lines_are_named() {
        for (text, places) in
            [("a = 1\nb = = 2\nc = x", &["p:2:5", "p:3:5"][..]), ("a = 1\na = 2", &["p:2:1"])]
        {
            let error = parse_document(text, "p").unwrap_err().to_string();
            for place in places {
                assert!(error.contains(&format!("{place}: ")), "{error}");
            }
        }
    }

    #[test]
    fn values_that_no_key_takes_stay() {
        let tree =
            parse_document("a = 1979-05-27\nb = nan\nc = 99999999999999999999", "p").unwrap();
        let written: Vec<String> = tree.values().map(|node| node.value.to_string()).collect();
        assert_eq!(written, ["1979-05-27", "nan", "99999999999999999999"]);
    }

    #[test]
    fn an_argument_needs_no_inner_quotes() {
        let value = |text: &str| parse_argument("--set", text).map(|node| node.value);
        assert_eq!(value("96Mbit/s"), Ok(Value::Text("96Mbit/s".into())));
        assert_eq!(value("\"50ms\""), Ok(Value::Text("50ms".into())));
        assert_eq!(value("5"), Ok(Value::Integer(5)));
        assert_eq!(value("{ kind = \"sfq\" }").unwrap().to_string(), "{ kind = \"sfq\" }");
        assert!(value("{ kind = ").unwrap_err().to_string().starts_with("--set: "));
    }
}
