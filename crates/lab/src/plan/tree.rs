//! A TOML document as a tree whose nodes remember where they were written.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::PlanError;

/// Largest plan, CDF or trace text that is read: hundreds of times the largest shipped one.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// File name as given by the user, or `--set`.
    pub file: Arc<str>,
    /// Line, from 1; `None` on the command line.
    pub line: Option<usize>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where the node stands.
    pub origin: Origin,
}

/// A TOML value. Dates have no place in a plan and are refused when reading.
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
}

/// Entries by key.
pub type Table = BTreeMap<String, Node>;

/// Reads a document; `file` is what errors call it.
pub fn parse_document(text: &str, file: &str) -> Result<Table, PlanError> {
    let lines = Lines::new(text, file);
    let table = DeTable::parse(text).map_err(|error| lines.syntax_error(&error))?;
    lines.table(table.into_inner(), "")
}

/// Reads one value as given on the command line: TOML where it is TOML, else a text, so that
/// `--set bottleneck.rate=96Mbit/s` needs no inner quotes.
pub fn parse_argument(text: &str) -> Result<Node, PlanError> {
    let lines = Lines { starts: Vec::new(), file: "--set".into() };
    match DeValue::parse(text) {
        Ok(value) => lines.node(value, ""),
        Err(error) if text.starts_with(['[', '{', '"', '\'']) => Err(lines.syntax_error(&error)),
        Err(_) => Ok(Node { value: Value::Text(text.to_string()), origin: lines.origin_at(0) }),
    }
}

/// Byte offsets at which lines start, to turn spans into line numbers.
struct Lines {
    starts: Vec<usize>,
    file: Arc<str>,
}

impl Lines {
    fn new(text: &str, file: &str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0).chain(breaks.map(|(at, _)| at + 1)).collect();
        Self { starts, file: file.into() }
    }

    fn origin_at(&self, offset: usize) -> Origin {
        let before = self.starts.partition_point(|start| *start <= offset);
        Origin { file: self.file.clone(), line: (before > 0).then_some(before) }
    }

    fn syntax_error(&self, error: &toml::de::Error) -> PlanError {
        let at = error.span().map_or(0, |span| span.start);
        let origin = self.origin_at(at);
        let start = origin.line.and_then(|line| self.starts.get(line - 1));
        PlanError::syntax(origin, start.map(|start| 1 + at.saturating_sub(*start)), error.message())
    }

    fn table(&self, table: DeTable<'_>, path: &str) -> Result<Table, PlanError> {
        table
            .into_iter()
            .map(|(key, value)| {
                let key = key.into_inner().into_owned();
                let path = join(path, &key);
                Ok((key, self.node(value, &path)?))
            })
            .collect()
    }

    fn node(&self, value: Spanned<DeValue<'_>>, path: &str) -> Result<Node, PlanError> {
        let origin = self.origin_at(value.span().start);
        let wrong = |written: String, allowed: &str| {
            Err(PlanError::value(origin.clone(), path, &written, allowed))
        };
        let value = match value.into_inner() {
            DeValue::Boolean(value) => Value::Bool(value),
            DeValue::Integer(value) => match i64::from_str_radix(value.as_str(), value.radix()) {
                Ok(value) => Value::Integer(value),
                Err(_) => return wrong(value.to_string(), "a whole number of at most 64 bits"),
            },
            DeValue::Float(value) => match value.as_str().parse::<f64>() {
                Ok(number) if number.is_finite() => Value::Float(number),
                _ => return wrong(value.to_string(), "a finite number"),
            },
            DeValue::String(value) => Value::Text(value.into_owned()),
            DeValue::Datetime(value) => {
                return wrong(value.to_string(), "no date or time of day in a plan");
            }
            DeValue::Array(values) => Value::List(
                values.into_iter().map(|value| self.node(value, path)).collect::<Result<_, _>>()?,
            ),
            DeValue::Table(table) => Value::Table(self.table(table, path)?),
        };
        Ok(Node { value, origin })
    }
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
    /// A text as it is, without quotes; another value as in TOML.
    pub fn plain(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            other => other.to_string(),
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
        let Value::Table(b) = &tree["b"].value else { panic!() };
        assert_eq!(b["c"].origin.line, Some(4));
        assert_eq!(
            flatten(&tree).into_iter().collect::<Vec<_>>(),
            [("a", "1"), ("b.c", "x"), ("d.e.f", "[1, 2]"), ("d.e.name", "e")]
                .map(|(key, value)| (key.to_string(), value.to_string()))
        );
    }

    #[test]
    fn broken_text_is_refused_with_its_line() {
        for (text, place) in
            [("a = 1\nb = = 2", "2:5"), ("a = 1\na = 2", "2:1"), ("\n\nx = 1979-05-27", "3")]
        {
            let error = parse_document(text, "p").unwrap_err().to_string();
            assert!(error.starts_with(&format!("p:{place}: ")), "{error}");
        }
    }

    #[test]
    fn an_argument_needs_no_inner_quotes() {
        assert_eq!(parse_argument("96Mbit/s").unwrap().value, Value::Text("96Mbit/s".into()));
        assert_eq!(parse_argument("\"50ms\"").unwrap().value, Value::Text("50ms".into()));
        assert_eq!(parse_argument("5").unwrap().value, Value::Integer(5));
        assert_eq!(
            parse_argument("{ kind = \"sfq\" }").unwrap().value.to_string(),
            "{ kind = \"sfq\" }"
        );
        assert!(parse_argument("{ kind = ").is_err());
    }
}
