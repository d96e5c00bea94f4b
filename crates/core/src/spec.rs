//! How an algorithm or a qdisc is named and parametrised in plans, configurations and on the command
//! line: a kind and a table of parameters with values that still carry their units.

mod names;
mod param;

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::str::FromStr;

pub use self::names::{NEAREST_MAX, nearest, nearest_few, nearest_words, one_of};
pub use self::param::{DescribedParam, Param, Parameter, Quantity};

/// One parameter value as written.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize), serde(untagged))]
pub enum Value {
    /// `true` or `false`.
    Bool(bool),
    /// A whole number without a unit.
    Integer(i64),
    /// A number without a unit.
    Float(f64),
    /// A quantity with its unit, or a name.
    Text(String),
    /// A list.
    List(Vec<Value>),
    /// A nested kind with its own parameters, such as a qdisc below another.
    Spec(Spec),
    /// A table without a kind, such as one rule of a classifier.
    Table(BTreeMap<String, Value>),
}

/// A kind (`"sfq"`, `"copa"`) with its parameters. In TOML `{ kind = "sfq", limit = "1200p" }`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Spec {
    /// Registry name.
    pub kind: String,
    /// Parameters by name; those not given take the registry's default.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub params: BTreeMap<String, Value>,
}

/// A parameter that is unknown, of the wrong kind or out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {value}: allowed is {allowed}")]
pub struct SpecError {
    /// The parameter, or `kind`.
    pub key: String,
    /// The offending value as written.
    pub value: String,
    /// The values that are accepted.
    pub allowed: String,
}

impl SpecError {
    /// An error about `key`.
    pub fn new(key: &str, value: &str, allowed: &str) -> Self {
        Self { key: key.to_string(), value: value.to_string(), allowed: allowed.to_string() }
    }

    /// The error that a `kind` cannot do without `key`.
    pub fn absent(key: &str, kind: &str) -> Self {
        Self::new(key, "(absent)", &alloc::format!("a value: {kind} needs it"))
    }

    /// This error seen from a spec that holds the offending one under `outer`.
    pub fn within(mut self, outer: &str) -> Self {
        self.key = alloc::format!("{outer}.{}", self.key);
        self
    }
}

impl Spec {
    /// A kind with every parameter at its default.
    pub fn named(kind: &str) -> Self {
        Self { kind: kind.to_string(), params: BTreeMap::new() }
    }

    /// Adds or replaces one parameter.
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.params.insert(name.to_string(), value);
        self
    }

    /// Refuses every parameter that is not among `params`.
    pub fn check_names(&self, params: &[&dyn Parameter]) -> Result<(), SpecError> {
        for (name, value) in &self.params {
            if !params.iter().any(|param| param.name() == name) {
                let names: Vec<&str> = params.iter().map(|param| param.name()).collect();
                let allowed = if names.is_empty() {
                    alloc::format!("no parameter of {}", self.kind)
                } else {
                    one_of(name, &names)
                };
                return Err(SpecError::new(name, &value.to_string(), &allowed));
            }
        }
        Ok(())
    }

    /// Fills in the defaults of `params`.
    pub fn with_defaults(&self, params: &[&dyn Parameter]) -> Self {
        let mut filled = self.clone();
        for param in params {
            if let Some(default) = param.written_default() {
                filled.params.entry(param.name().to_string()).or_insert(Value::Text(default));
            }
        }
        filled
    }

    /// The nested kind `name`, `None` if it is not given. A bare name means its defaults.
    pub fn nested(&self, name: &str) -> Result<Option<Spec>, SpecError> {
        self.params.get(name).map(|value| value.as_spec(name)).transpose()
    }

    /// The list of nested kinds `name`, `None` if it is not given.
    pub fn nested_list(&self, name: &str) -> Result<Option<Vec<Spec>>, SpecError> {
        match self.params.get(name) {
            None => Ok(None),
            Some(Value::List(values)) => {
                values.iter().map(|value| value.as_spec(name)).collect::<Result<_, _>>().map(Some)
            }
            Some(value) => Err(SpecError::new(
                name,
                &value.to_string(),
                "a list of kinds such as [{ kind = \"sfq\" }, { kind = \"fifo\" }]",
            )),
        }
    }

    /// The list of tables `name`, `None` if it is not given.
    pub fn tables(&self, name: &str) -> Result<Option<Vec<&BTreeMap<String, Value>>>, SpecError> {
        let error = |value: &Value| {
            SpecError::new(name, &value.to_string(), "a list of tables without `kind`")
        };
        match self.params.get(name) {
            None => Ok(None),
            Some(Value::List(values)) => values
                .iter()
                .map(|value| match value {
                    Value::Table(table) => Ok(table),
                    other => Err(error(other)),
                })
                .collect::<Result<_, _>>()
                .map(Some),
            Some(value) => Err(error(value)),
        }
    }

    /// The value `name` as it was written, without quotes.
    fn text_of(&self, name: &str) -> Option<String> {
        let value = self.params.get(name)?.to_string();
        Some(value.trim_matches('"').to_string())
    }

    /// The value `name` in any kind, `None` if it is not given; refused if it is no `T`.
    pub fn value<T: Quantity>(&self, name: &'static str) -> Result<Option<T>, SpecError> {
        Param::new(name, "").given(self)
    }
}

impl Value {
    fn as_spec(&self, name: &str) -> Result<Spec, SpecError> {
        match self {
            Self::Spec(spec) => Ok(spec.clone()),
            Self::Text(kind) => Ok(Spec::named(kind)),
            other => Err(SpecError::new(
                name,
                &other.to_string(),
                "a name or a table with `kind`, such as { kind = \"sfq\" }",
            )),
        }
    }
}

impl core::fmt::Display for Value {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::List(values) => {
                f.debug_list().entries(values.iter().map(DisplayAsDebug)).finish()
            }
            Self::Spec(spec) => spec.fmt(f),
            Self::Table(table) => f
                .debug_map()
                .entries(table.iter().map(|(key, value)| (key, DisplayAsDebug(value))))
                .finish(),
        }
    }
}

struct DisplayAsDebug<'a>(&'a Value);

impl core::fmt::Debug for DisplayAsDebug<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self.0, f)
    }
}

impl core::fmt::Display for Spec {
    /// `sfq(limit=1200p, perturb=10s)`, the form used in tables and reports.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.kind)?;
        for (index, (name, value)) in self.params.iter().enumerate() {
            f.write_str(if index == 0 { "(" } else { ", " })?;
            match value {
                Value::Text(text) => write!(f, "{name}={text}")?,
                other => write!(f, "{name}={other}")?,
            }
        }
        if self.params.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

/// How deep [`Spec::from_str`] follows nested kinds: deeper than any registry allows.
const TEXT_DEPTH_MAX: usize = 8;

impl FromStr for Spec {
    type Err = SpecError;

    /// Reads the form that is printed: `sfq`, `sfq(limit=1200p)`,
    /// `shaper(rate=1Mbit/s, inner=sfq(limit=10p))`. Lists and tables need a plan.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::from_text(text, TEXT_DEPTH_MAX)
    }
}

impl Spec {
    fn from_text(text: &str, depth: usize) -> Result<Self, SpecError> {
        let text = text.trim();
        let error = || {
            let allowed = "a kind such as sfq or sfq(limit=1200p, perturb=10s)";
            SpecError::new("kind", text, allowed)
        };
        let (kind, inside) = match text.split_once('(') {
            None => (text, ""),
            Some((kind, rest)) => (kind, rest.strip_suffix(')').ok_or_else(error)?),
        };
        let is_name = |name: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            !name.is_empty() && name.chars().all(allowed)
        };
        if depth == 0 || !is_name(kind) {
            return Err(error());
        }
        let mut spec = Self::named(kind);
        for part in split_outside_parentheses(inside) {
            let (name, value) = part.split_once('=').ok_or_else(error)?;
            let (name, value) = (name.trim(), value.trim());
            if !is_name(name) || value.is_empty() || spec.params.contains_key(name) {
                return Err(error());
            }
            let value = match (value.parse(), value.parse(), value.parse()) {
                (Ok(switch), _, _) => Value::Bool(switch),
                (_, Ok(whole), _) => Value::Integer(whole),
                (_, _, Ok(number)) => Value::Float(number),
                _ if value.contains(['(', ')']) => Value::Spec(Self::from_text(value, depth - 1)?),
                _ => Value::Text(value.to_string()),
            };
            spec.params.insert(name.to_string(), value);
        }
        Ok(spec)
    }
}

/// The parts of `text` between commas outside of parentheses; none for an empty text.
fn split_outside_parentheses(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = (!text.trim().is_empty()).then_some(text);
    core::iter::from_fn(move || {
        let all = rest?;
        let mut depth = 0_usize;
        let comma = all.char_indices().find(|(_, c)| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            *c == ',' && depth == 0
        });
        let (part, after) = match comma {
            Some((at, _)) => (&all[..at], Some(&all[at + 1..])),
            None => (all, None),
        };
        rest = after;
        Some(part)
    })
}

/// Reads either a bare name (`"copa"`) or a table with a `kind`.
#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Spec {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Spec;
            fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str("a name or a table with `kind`")
            }
            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Spec, E> {
                Ok(Spec::named(name))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Spec, A::Error> {
                let mut spec = Spec::named("");
                while let Some(key) = map.next_key::<String>()? {
                    if key == "kind" {
                        spec.kind = map.next_value()?;
                    } else {
                        spec.params.insert(key, map.next_value()?);
                    }
                }
                if spec.kind.is_empty() {
                    return Err(serde::de::Error::missing_field("kind"));
                }
                Ok(spec)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Duration, Limit, Rate};

    #[test]
    fn values_are_read_with_their_units() {
        let spec = Spec::named("codel")
            .with("target", Value::Text("5ms".into()))
            .with("limit", Value::Text("1000p".into()))
            .with("flows", Value::Integer(1024))
            .with("ecn", Value::Bool(true));
        assert_eq!(spec.value("target"), Ok(Some(Duration::from_millis(5))));
        assert_eq!(spec.value("limit"), Ok(Some(Limit::Packets(1000))));
        assert_eq!(spec.value("flows"), Ok(Some(1024_u64)));
        assert_eq!(spec.value("ecn"), Ok(Some(true)));
        assert_eq!(spec.value::<Rate>("absent"), Ok(None));
        assert!(spec.value::<Duration>("flows").is_err());
        assert_eq!(spec.to_string(), "codel(ecn=true, flows=1024, limit=1000p, target=5ms)");
    }
    #[test]
    fn what_is_printed_is_read_back() {
        for text in [
            "sfq",
            "codel(ecn=true, flows=1024, limit=1000p, target=5ms)",
            "shaper(inner=sfq(limit=10p, perturb=10s), rate=1.5Mbit/s)",
            "copa(delta=0.5)",
        ] {
            assert_eq!(text.parse::<Spec>().unwrap().to_string(), text);
        }
        let nested: Spec = "shaper( rate = 1Mbit/s , inner=sfq(limit=10p) )".parse().unwrap();
        assert_eq!(nested.nested("inner").unwrap(), Some("sfq(limit=10p)".parse().unwrap()));
        assert_eq!("fifo()".parse::<Spec>(), Ok(Spec::named("fifo")));
    }

    #[test]
    fn texts_that_are_no_kind_are_refused() {
        let deep = "a(b=".repeat(20) + &")".repeat(20);
        for text in [
            "",
            "sfq(",
            "sfq(limit)",
            "sfq(=1p)",
            "(a=1)",
            "a b",
            "a(b=1,b=2)",
            "a(b=c))",
            "a(b=)",
            &deep,
        ] {
            assert!(text.parse::<Spec>().is_err(), "{text}");
        }
    }
}
