//! One table, read key by key: each value in its unit, each problem noted with its line.

use std::fmt::Display;
use std::str::FromStr;

use forebay_core::spec::{self, Spec, SpecError};
use forebay_core::units::{ByteCount, Duration, Rate};

use crate::document::Document;
use crate::problem::{Problem, Wrong};
use crate::schema::{Key, Kind, Section};
use crate::tree::{Node, Origin, Table, Value, element_name, join};

/// A table being read.
///
/// A method that reads a value returns `None` where the key is absent or its value wrong, which was noted
/// then. The allowed values of a key follow from its [`Key`].
#[derive(Clone)]
pub struct Reader<'a> {
    document: &'a Document,
    table: &'a Table,
    section: &'static Section,
    /// The key of the table in messages.
    path: String,
    /// As `path`, without the names of elements.
    heading: String,
    /// Where the table begins.
    origin: &'a Origin,
}

impl<'a> Reader<'a> {
    pub(crate) fn of(
        document: &'a Document,
        table: &'a Table,
        section: &'static Section,
        origin: &'a Origin,
    ) -> Self {
        Self { document, table, section, path: String::new(), heading: String::new(), origin }
    }

    /// The document that the table is of.
    pub fn document(&self) -> &'a Document {
        self.document
    }

    pub(crate) fn visit(&self) {
        for (name, node) in self.table {
            match self.section.key(name).map(|key| key.kind) {
                None => self.refuse_key(name, node),
                Some(Kind::Table(_) | Kind::Variants(_)) => {
                    self.table(name).iter().for_each(Self::visit);
                }
                Some(Kind::Or(..)) if node.value.as_table().is_some() => {
                    self.table(name).iter().for_each(Self::visit);
                }
                Some(Kind::Tables(_)) => self.tables(name).iter().for_each(Self::visit),
                Some(kind) if !kind.fits(&node.value) => self.wrong(name),
                Some(_) => {}
            }
        }
        for key in self.section.keys.iter().filter(|key| key.default.is_empty()) {
            self.require(key.name, self.has(key.name).then_some(()));
        }
    }

    fn refuse_key(&self, name: &str, node: &Node) {
        let (key, value) = (join(&self.path, name), node.origin.written().into());
        let allowed = self.document.format.other_than(self.section, name);
        self.document.note(Problem::at(&node.origin, Wrong::Key { key, value, allowed }));
    }

    /// Whether the section has a key called `name`.
    pub fn knows(&self, name: &str) -> bool {
        self.section.key(name).is_some()
    }

    /// Whether `name` is given.
    pub fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    /// The keys of the table that `section` has.
    pub fn keys(&self) -> &'static [Key] {
        self.section.keys
    }

    fn key(&self, name: &str) -> &'static Key {
        self.section
            .key(name)
            .unwrap_or_else(|| panic!("{name} is not a key of {:?}", self.heading))
    }

    /// The node of `name`.
    pub fn node(&self, name: &str) -> Option<&'a Node> {
        debug_assert!(self.knows(name), "{name} is not in the schema");
        self.table.get(name)
    }

    /// Where `name` was written, or the table that lacks it begins.
    pub fn origin_of(&self, name: &str) -> &'a Origin {
        self.table.get(name).map_or(self.origin, |node| &node.origin)
    }

    /// The line of `name`, where it is given.
    pub fn line(&self, name: &str) -> Option<usize> {
        self.table.get(name)?.origin.line()
    }

    /// The heading of the table `name` of this one in the file.
    pub fn header(&self, name: &str) -> String {
        let path = join(&self.heading, name);
        match self.key(name).kind {
            Kind::Tables(_) => format!("[[{path}]]"),
            _ => format!("[{path}]"),
        }
    }

    /// Notes that the value of `name`, or its absence, is not allowed by the schema.
    pub fn wrong(&self, name: &str) {
        let key = self.key(name);
        let allowed = match key.kind {
            Kind::Table(_) | Kind::Tables(_) => format!("{}: {}", key.allowed(), self.header(name)),
            Kind::OneOf(words) => {
                let written = self.table.get(name).and_then(|node| node.value.as_text());
                let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let near = written.and_then(|written| spec::nearest(written, &names));
                key.allowed() + &near.map_or(String::new(), |near| format!("; nearest is {near:?}"))
            }
            _ => key.allowed(),
        };
        self.wrong_because(name, allowed);
    }

    /// Notes that the value of `name`, or its absence, is not `allowed`.
    pub fn wrong_because(&self, name: &str, allowed: impl Display) {
        let (key, allowed) = (join(&self.path, name), allowed.to_string());
        self.document.note(match self.table.get(name) {
            Some(node) => Problem::value(&node.origin, &key, allowed),
            None => Problem::at(self.origin, Wrong::Missing { key, allowed }),
        });
    }

    /// As [`Reader::wrong_because`], and returns `None`.
    pub fn refuse<T>(&self, name: &str, allowed: impl Display) -> Option<T> {
        self.wrong_because(name, allowed);
        None
    }

    /// As [`Reader::wrong`], and returns `None`.
    pub fn refused<T>(&self, name: &str) -> Option<T> {
        self.wrong(name);
        None
    }

    /// Notes that the element at `place` in the list `name` is not `allowed`.
    pub fn wrong_element(&self, name: &str, place: usize, allowed: impl Display) {
        if let Some(element) = self.elements(name).get(place) {
            let key = join(&self.path, name);
            self.document.note(Problem::value(&element.origin, &key, allowed.to_string()));
        }
    }

    /// Notes a problem of the value of `name` together with other values.
    pub fn note(&self, name: &str, what: impl Display) {
        let at = self.origin_of(name);
        let text = format!("{}: {what}", join(&self.path, name));
        self.document.note(Problem::of_line(at.file(), at.line(), text));
    }

    /// Notes that there are `count` tables `name`, which is not an allowed number; `at` is the first that is
    /// too many.
    pub fn wrong_count(&self, name: &str, count: usize, at: Option<&Self>, allowed: impl Display) {
        let at = at.unwrap_or(self).origin;
        let text = format!("{count} {} tables: allowed are {allowed}", self.header(name));
        self.document.note(Problem::of_line(at.file(), at.line(), text));
    }

    /// Notes that this element repeats the name of another `what`.
    pub fn repeated(&self, what: &str) {
        self.wrong_because("name", format!("a name that no other {what} has"));
    }

    /// `value`; notes that `name` is missing, if it is.
    pub fn require<T>(&self, name: &str, value: Option<T>) -> Option<T> {
        if !self.has(name) && value.is_none() {
            self.wrong(name);
        }
        value
    }

    fn read<T>(
        &self,
        name: &str,
        read: impl Fn(&'static Kind, &'a Value) -> Option<T>,
    ) -> Option<T> {
        let node = self.node(name)?;
        let value = read(&self.key(name).kind, &node.value);
        if value.is_none() {
            self.wrong(name);
        }
        value
    }

    /// A text.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.read(name, |_, value| value.as_text())
    }

    /// A name: it becomes part of file names, rows and pages, so it stays plain.
    pub fn name(&self, name: &str) -> Option<String> {
        self.read(name, Kind::name)
    }

    /// A duration.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        self.read(name, Kind::duration)
    }

    /// A rate.
    pub fn rate(&self, name: &str) -> Option<Rate> {
        self.read(name, Kind::rate)
    }

    /// A size.
    pub fn size(&self, name: &str) -> Option<ByteCount> {
        self.read(name, Kind::size)
    }

    /// A share, 0 to 1.
    pub fn share(&self, name: &str) -> Option<f64> {
        self.read(name, Kind::share)
    }

    /// A number without a unit.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.read(name, Kind::number)
    }

    /// A whole number.
    pub fn whole(&self, name: &str) -> Option<u32> {
        self.read(name, Kind::whole)
    }

    /// `true` or `false`.
    pub fn switch(&self, name: &str) -> Option<bool> {
        self.read(name, |_, value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// One of `choices`, which are the choices of the schema.
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        self.read(name, |_, value| {
            let text = value.as_text()?;
            choices.iter().find(|(choice, _)| *choice == text).map(|(_, value)| *value)
        })
    }

    /// A text that [`FromStr`] reads.
    pub fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        self.read(name, |_, value| value.as_text()?.parse().ok())
    }

    /// A text that `check` reads; its error gives the allowed texts.
    pub fn checked<T>(&self, name: &str, check: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(name)?;
        check(text).map_err(|allowed| self.wrong_because(name, allowed)).ok()
    }

    /// The elements of the list `name`; none if the value is no list, which was noted.
    pub fn elements(&self, name: &str) -> &'a [Node] {
        self.read(name, |_, value| value.as_list()).unwrap_or_default()
    }

    /// The result of `check` for each text of the list `name`, in its place; one `None` if the value is no
    /// list.
    pub fn list<T>(&self, name: &str, check: impl Fn(&str) -> Result<T, String>) -> Vec<Option<T>> {
        let Some(node) = self.node(name) else { return Vec::new() };
        let Some(nodes) = node.value.as_list() else {
            self.wrong(name);
            return vec![None];
        };
        let element = |(place, node): (usize, &Node)| {
            let refuse = |allowed| self.wrong_element(name, place, allowed);
            check(node.value.as_text().unwrap_or_default()).map_err(refuse).ok()
        };
        nodes.iter().enumerate().map(element).collect()
    }

    /// A kind with parameters.
    pub fn spec(&self, name: &str) -> Option<Spec> {
        self.read(name, |_, value| match spec_value(value) {
            spec::Value::Spec(spec) => Some(spec),
            spec::Value::Text(kind) => Some(Spec::named(&kind)),
            _ => None,
        })
    }

    /// The table `name` of parameters of no kind; the spec is called like the key.
    pub fn params(&self, name: &str) -> Option<Spec> {
        self.read(name, |_, value| match spec_value(value) {
            spec::Value::Table(params) => Some(Spec { kind: name.into(), params }),
            _ => None,
        })
    }

    /// Notes a registry's error about a parameter of the spec `name`, at that parameter's line.
    pub fn wrong_spec(&self, name: &str, error: &SpecError) {
        let mut origin = self.origin;
        let mut table = Some(self.table);
        // The key may lead into nested kinds; the innermost node that exists has the line.
        for segment in std::iter::once(name).chain(error.key.split('.')) {
            let Some(node) = table.and_then(|table| table.get(segment)) else { break };
            origin = &node.origin;
            table = node.value.as_table();
        }
        let key = join(&join(&self.path, name), &error.key);
        self.document.note(Problem::of_value(origin, &key, &error.value, error.allowed.clone()));
    }

    /// The spec `name` that `check` takes.
    pub fn checked_spec(
        &self,
        name: &str,
        check: impl Fn(&Spec) -> Result<(), SpecError>,
    ) -> Option<Spec> {
        let spec = self.spec(name)?;
        check(&spec).map_err(|error| self.wrong_spec(name, &error)).ok()?;
        Some(spec)
    }

    /// The table `name`.
    pub fn table(&self, name: &str) -> Option<Self> {
        let section = |kind: &Kind, value: &Value| match kind {
            Kind::Table(section) | Kind::Or(_, section) => Some(*section),
            kind => kind.variant(value),
        };
        let (table, section) =
            self.read(name, |kind, value| Some((value.as_table()?, section(kind, value)?)))?;
        Some(self.open(section, table, self.origin_of(name), join(&self.path, name), name))
    }

    /// The raw table `name`.
    pub fn raw_table(&self, name: &str) -> Option<&'a Table> {
        self.read(name, |_, value| value.as_table())
    }

    /// The tables of the list `name`.
    pub fn tables(&self, name: &str) -> Vec<Self> {
        let Kind::Tables(section) = self.key(name).kind else { return Vec::new() };
        let open = |(place, node): (usize, &'a Node)| {
            let table = node.value.as_table()?;
            let path = join(&self.path, name);
            let path = match self.document.format.names_elements {
                true => join(&path, &element_name(node, place)),
                false => path,
            };
            Some(self.open(section, table, &node.origin, path, name))
        };
        let all = |value: &'a Value| value.as_list()?.iter().enumerate().map(open).collect();
        self.read(name, |_, value| all(value)).unwrap_or_default()
    }

    fn open(
        &self,
        section: &'static Section,
        table: &'a Table,
        origin: &'a Origin,
        path: String,
        name: &str,
    ) -> Self {
        let heading = join(&self.heading, name);
        Self { document: self.document, table, section, path, heading, origin }
    }
}

/// A value as a parameter. The entries of a table besides its kind become a spec's parameters.
pub fn spec_value(value: &Value) -> spec::Value {
    let params = |table: &Table, is_left_out: fn(&str) -> bool| {
        let kept = table.iter().filter(|(key, _)| !is_left_out(key));
        kept.map(|(key, node)| (key.clone(), spec_value(&node.value))).collect()
    };
    match value {
        Value::Bool(value) => spec::Value::Bool(*value),
        Value::Integer(value) => spec::Value::Integer(*value),
        Value::Float(value) => spec::Value::Float(*value),
        Value::Text(value) | Value::Other(value) => spec::Value::Text(value.clone()),
        Value::List(nodes) => {
            spec::Value::List(nodes.iter().map(|node| spec_value(&node.value)).collect())
        }
        Value::Table(table) => match table.get("kind").and_then(|node| node.value.as_text()) {
            Some(kind) => {
                let params = params(table, |key| key == "kind");
                spec::Value::Spec(Spec { kind: kind.into(), params })
            }
            None => spec::Value::Table(params(table, |_| false)),
        },
    }
}
