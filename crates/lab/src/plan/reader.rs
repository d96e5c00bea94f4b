//! Reads one table of a plan key by key, each value in its unit, each error with its line.

use std::str::FromStr;
use std::time::Duration;

use forebay_core::spec::{self, Spec, SpecError};
use forebay_core::units::{Rate, Ratio, parse_duration, stretched};

use super::error::PlanError;
use super::schema::{self, Section};
use super::tree::{Node, Origin, Table, Value, element_name, join};

/// Rates outside are typing errors: modems to ten years ahead of the fastest port.
const RATES: std::ops::RangeInclusive<u64> = 1_000..=400_000_000_000;
/// Longest duration in a plan: an emulation runs in real time.
const MAX_DURATION: Duration = Duration::from_secs(24 * 3600);
/// Most round trips of a time that counts in them.
const MAX_ROUND_TRIPS: f64 = 1e6;
/// Longest name: rows, file names and figures carry them.
pub(super) const MAX_NAME: usize = 64;

/// A rate as plans have it.
///
/// # Errors
///
/// What is allowed, where `text` is no rate or outside 1 kbit/s to 400 Gbit/s.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    let rate = text.parse().ok().filter(|rate: &Rate| RATES.contains(&rate.as_bits_per_sec()));
    rate.ok_or_else(|| format!("allowed is {}", schema::RATE))
}

/// A table being read against its [`Section`].
pub struct Reader<'a> {
    table: &'a Table,
    section: &'static Section,
    path: String,
    origin: Origin,
}

impl<'a> Reader<'a> {
    /// Opens the document.
    pub fn document(
        table: &'a Table,
        section: &'static Section,
        file: &str,
    ) -> Result<Self, PlanError> {
        let origin = Origin { file: file.into(), line: Some(1) };
        Self::open(table, section, String::new(), origin)
    }

    fn open(
        table: &'a Table,
        section: &'static Section,
        path: String,
        origin: Origin,
    ) -> Result<Self, PlanError> {
        for (name, node) in table {
            if section.key(name).is_none() {
                let value = node.value.to_string();
                let key = join(&path, name);
                let allowed = section.allowed_keys(name);
                return Err(PlanError::value(node.origin.clone(), &key, &value, &allowed));
            }
        }
        Ok(Self { table, section, path, origin })
    }

    /// Whether the section has a key called `name`.
    pub fn knows(&self, name: &str) -> bool {
        self.section.key(name).is_some()
    }

    /// Whether `name` is given.
    pub fn has(&self, name: &str) -> bool {
        self.table.contains_key(name)
    }

    /// The node of `name`.
    pub fn node(&self, name: &str) -> Option<&'a Node> {
        debug_assert!(self.section.key(name).is_some(), "{name} is not in the schema");
        self.table.get(name)
    }

    /// Where `name` was written, or the table that lacks it begins.
    pub fn origin_of(&self, name: &str) -> &Origin {
        self.node(name).map_or(&self.origin, |node| &node.origin)
    }

    fn allowed(&self, name: &str) -> &'static str {
        self.section.key(name).map_or("", |key| key.allowed)
    }

    /// The error that the value of `name` is not what the schema allows.
    pub fn wrong(&self, name: &str) -> PlanError {
        self.wrong_because(name, self.allowed(name))
    }

    /// The error that the value of `name` is not `allowed`.
    pub fn wrong_because(&self, name: &str, allowed: &str) -> PlanError {
        let key = join(&self.path, name);
        match self.table.get(name) {
            Some(node) => {
                PlanError::value(node.origin.clone(), &key, &node.value.to_string(), allowed)
            }
            None => PlanError::Missing { at: self.origin.clone(), key, allowed: allowed.into() },
        }
    }

    /// `value`, or the error that `name` is missing.
    pub fn require<T>(&self, name: &str, value: Option<T>) -> Result<T, PlanError> {
        value.ok_or_else(|| self.wrong(name))
    }

    /// A text.
    pub fn text(&self, name: &str) -> Result<Option<&'a str>, PlanError> {
        match self.node(name).map(|node| &node.value) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// A name: it becomes part of file names, SQL rows and HTML, so it stays plain.
    pub fn name(&self, name: &str) -> Result<Option<String>, PlanError> {
        let text = self.text(name)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        match text {
            Some(text) if text.is_empty() || text.len() > MAX_NAME || !text.chars().all(plain) => {
                Err(self.wrong(name))
            }
            text => Ok(text.map(str::to_string)),
        }
    }

    /// One of `choices`, which the schema's text lists.
    pub fn choice<T: Copy>(
        &self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, PlanError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let found = choices.iter().find(|(choice, _)| *choice == text);
        found.map(|(_, value)| Some(*value)).ok_or_else(|| self.wrong(name))
    }

    /// A text that [`FromStr`] reads.
    pub fn parsed<T: FromStr>(&self, name: &str) -> Result<Option<T>, PlanError> {
        self.text(name)?.map(|text| text.parse().map_err(|_| self.wrong(name))).transpose()
    }

    /// A duration.
    pub fn duration(&self, name: &str) -> Result<Option<Duration>, PlanError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match parse_duration(text) {
            Ok(duration) if duration <= MAX_DURATION => Ok(Some(duration)),
            _ => Err(self.wrong(name)),
        }
    }

    /// A duration in a unit of time, in round trips of `rtt` (`100rtt`), or the longest of several
    /// (`max(60s, 100rtt)`).
    pub fn time(&self, name: &str, rtt: Duration) -> Result<Option<Duration>, PlanError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let one = |text: &str| match text.trim().strip_suffix("rtt") {
            None => parse_duration(text.trim()).ok(),
            Some(number) => {
                let number = number.trim().parse::<f64>().ok();
                let number = number.filter(|number| (0.0..=MAX_ROUND_TRIPS).contains(number));
                number.map(|number| stretched(rtt, number))
            }
        };
        let longest = match text.strip_prefix("max(").and_then(|text| text.strip_suffix(')')) {
            None => one(text),
            Some(all) => {
                all.split(',').map(one).reduce(|longest, next| Some(longest?.max(next?))).flatten()
            }
        };
        let time = longest.filter(|time| *time <= MAX_DURATION).ok_or_else(|| self.wrong(name))?;
        Ok(Some(time))
    }

    /// A rate.
    pub fn rate(&self, name: &str) -> Result<Option<Rate>, PlanError> {
        self.text(name)?.map(|text| parse_rate(text).map_err(|_| self.wrong(name))).transpose()
    }

    /// A rate, or `0bit/s`.
    pub fn rate_or_none(&self, name: &str) -> Result<Option<Rate>, PlanError> {
        match self.text(name)?.map(str::parse::<Rate>) {
            Some(Ok(Rate::ZERO)) => Ok(Some(Rate::ZERO)),
            _ => self.rate(name),
        }
    }

    /// A list of rates.
    pub fn rates(&self, name: &str) -> Result<Option<Vec<Rate>>, PlanError> {
        let rate = |node: &Node| match &node.value {
            Value::Text(text) => parse_rate(text).map_err(|_| self.wrong(name)),
            _ => Err(self.wrong(name)),
        };
        let rates = self.list(name)?.iter().map(rate).collect::<Result<_, _>>()?;
        Ok(self.has(name).then_some(rates))
    }

    /// A share; it has no unit, so a bare number will do.
    pub fn share(&self, name: &str) -> Result<Option<f64>, PlanError> {
        let share = match self.node(name).map(|node| &node.value) {
            None => return Ok(None),
            Some(Value::Float(number)) => Ratio::new(*number),
            Some(Value::Integer(number)) => Ratio::new(*number as f64),
            Some(Value::Text(text)) => text.parse().ok(),
            Some(_) => None,
        };
        share.map(|share| Some(share.as_f64())).ok_or_else(|| self.wrong(name))
    }

    /// A number without a unit.
    pub fn number(&self, name: &str) -> Result<Option<f64>, PlanError> {
        match self.node(name).map(|node| &node.value) {
            None => Ok(None),
            Some(Value::Float(number)) => Ok(Some(*number)),
            Some(Value::Integer(number)) => Ok(Some(*number as f64)),
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// A whole number in `range`.
    pub fn count(
        &self,
        name: &str,
        range: std::ops::RangeInclusive<u32>,
    ) -> Result<Option<u32>, PlanError> {
        match self.node(name).map(|node| &node.value) {
            None => Ok(None),
            Some(Value::Integer(number)) => match u32::try_from(*number) {
                Ok(number) if range.contains(&number) => Ok(Some(number)),
                _ => Err(self.wrong(name)),
            },
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// `true` or `false`.
    pub fn switch(&self, name: &str) -> Result<Option<bool>, PlanError> {
        match self.node(name).map(|node| &node.value) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// A kind with parameters.
    pub fn spec(&self, name: &str) -> Result<Option<Spec>, PlanError> {
        let Some(node) = self.node(name) else { return Ok(None) };
        match spec_value(node) {
            spec::Value::Spec(spec) => Ok(Some(spec)),
            spec::Value::Text(kind) => Ok(Some(Spec::named(&kind))),
            _ => Err(self.wrong(name)),
        }
    }

    /// The error of a registry about a parameter of the spec `name`, with that parameter's line.
    pub fn wrong_spec(&self, name: &str, error: &SpecError) -> PlanError {
        let mut origin = &self.origin;
        let mut table = Some(self.table);
        // The key may lead into nested kinds; the innermost node that exists has the line.
        for segment in std::iter::once(name).chain(error.key.split('.')) {
            let Some(node) = table.and_then(|table| table.get(segment)) else { break };
            origin = &node.origin;
            table = match &node.value {
                Value::Table(table) => Some(table),
                _ => None,
            };
        }
        let key = join(&join(&self.path, name), &error.key);
        PlanError::value(origin.clone(), &key, &error.value, &error.allowed)
    }

    /// The table `name`, opened.
    pub fn table(
        &self,
        name: &str,
        section: &'static Section,
    ) -> Result<Option<Reader<'a>>, PlanError> {
        let Some(node) = self.node(name) else { return Ok(None) };
        let Value::Table(table) = &node.value else { return Err(self.wrong(name)) };
        Reader::open(table, section, join(&self.path, name), node.origin.clone()).map(Some)
    }

    /// The raw table `name`.
    pub fn raw_table(&self, name: &str) -> Result<Option<&'a Table>, PlanError> {
        match self.node(name).map(|node| &node.value) {
            None => Ok(None),
            Some(Value::Table(table)) => Ok(Some(table)),
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// The list `name`.
    pub fn list(&self, name: &str) -> Result<&'a [Node], PlanError> {
        match self.node(name).map(|node| &node.value) {
            None => Ok(&[]),
            Some(Value::List(nodes)) => Ok(nodes),
            Some(_) => Err(self.wrong(name)),
        }
    }

    /// The list of tables `name`, opened.
    pub fn tables(
        &self,
        name: &str,
        section: &'static Section,
    ) -> Result<Vec<Reader<'a>>, PlanError> {
        let nodes = self.list(name)?;
        let open = |(place, node): (usize, &'a Node)| {
            let Value::Table(table) = &node.value else { return Err(self.wrong(name)) };
            let path = join(&join(&self.path, name), &element_name(node, place));
            Reader::open(table, section, path, node.origin.clone())
        };
        nodes.iter().enumerate().map(open).collect()
    }

    /// The error that `second` repeats a name.
    pub fn repeated(&self, what: &str) -> PlanError {
        self.wrong_because("name", &format!("a name that no other {what} has"))
    }
}

/// A node as a parameter value; what a table holds besides its kind becomes a spec's parameters.
pub(super) fn spec_value(node: &Node) -> spec::Value {
    match &node.value {
        Value::Bool(value) => spec::Value::Bool(*value),
        Value::Integer(value) => spec::Value::Integer(*value),
        Value::Float(value) => spec::Value::Float(*value),
        Value::Text(value) => spec::Value::Text(value.clone()),
        Value::List(nodes) => spec::Value::List(nodes.iter().map(spec_value).collect()),
        Value::Table(table) => match table.get("kind").map(|node| &node.value) {
            Some(Value::Text(kind)) => {
                let params = table.iter().filter(|(key, _)| *key != "kind");
                let params = params.map(|(key, node)| (key.clone(), spec_value(node))).collect();
                spec::Value::Spec(Spec { kind: kind.clone(), params })
            }
            _ => spec::Value::Table(
                table.iter().map(|(key, node)| (key.clone(), spec_value(node))).collect(),
            ),
        },
    }
}
