//! A parameter of an algorithm in another language: its default decides its kind.

use alloc::string::{String, ToString};

use crate::spec::{self, Param, Parameter, Quantity, Spec, SpecError, Value};

/// A parameter as a program declares it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize))]
pub struct Setting {
    /// Name as written in plans.
    pub name: String,
    /// One line.
    pub summary: String,
    /// A truth value, a number or a text.
    pub default: Value,
    /// Least number that is allowed.
    pub low: Option<f64>,
    /// Greatest number that is allowed; only with a least one.
    pub high: Option<f64>,
}

/// A parameter that values in plans are read by.
#[derive(Debug)]
pub(super) enum Known {
    Switch(Param<bool>),
    Whole(Param<i64>),
    Number(Param<f64>),
    Text(spec::DescribedParam),
}

/// Allowed values of a text, for messages.
const TEXT: &str = "a text";

impl Setting {
    /// The parameter; its texts live from now on until the program ends.
    pub(super) fn known(self) -> Result<Known, SpecError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if self.name.is_empty() || !self.name.chars().all(allowed) || self.name == "kind" {
            let allowed = "letters, digits and `_` of ASCII, and not \"kind\"";
            return Err(SpecError::new("parameter", &self.name, allowed));
        }
        let has_bounds = self.low.is_some() || self.high.is_some();
        let is_number = matches!(self.default, Value::Integer(_) | Value::Float(_));
        if has_bounds && (!is_number || self.low.is_none()) {
            let allowed = "bounds of a number: `low`, or `low` and `high`";
            return Err(SpecError::new(&self.name, &self.default.to_string(), allowed));
        }
        let (name, summary): (&'static str, &'static str) = (self.name.leak(), self.summary.leak());
        let bounds = self.low.map(|low| (low, self.high));
        let default = Spec::named(name).with(name, self.default.clone());
        let known = match self.default {
            Value::Bool(default) => Known::Switch(Param::new(name, summary).or(default)),
            Value::Integer(default) => {
                let bounds = bounds.map(|(low, high)| (low as i64, high.map(|it| it as i64)));
                Known::Whole(within(Param::new(name, summary).or(default), bounds))
            }
            Value::Float(default) => {
                Known::Number(within(Param::new(name, summary).or(default), bounds))
            }
            Value::Text(default) => {
                let default: &'static str = default.leak();
                let default = Some(default);
                Known::Text(spec::DescribedParam { name, summary, default, allowed: TEXT })
            }
            other => {
                let allowed = "a truth value, a number or a text";
                return Err(SpecError::new(name, &other.to_string(), allowed));
            }
        };
        // A default out of range.
        known.of(&default)?;
        Ok(known)
    }
}

fn within<T: Quantity>(param: Param<T>, bounds: Option<(T, Option<T>)>) -> Param<T> {
    match bounds {
        None => param,
        Some((low, None)) => param.at_least(low),
        Some((low, Some(high))) => param.within(low..=high),
    }
}

impl Known {
    /// The description of the parameter.
    pub(super) fn parameter(&self) -> &dyn Parameter {
        match self {
            Self::Switch(it) => it,
            Self::Whole(it) => it,
            Self::Number(it) => it,
            Self::Text(it) => it,
        }
    }

    /// The value in `spec`, or the default.
    pub(super) fn of(&self, spec: &Spec) -> Result<Value, SpecError> {
        Ok(match self {
            Self::Switch(it) => Value::Bool(it.of(spec)?),
            Self::Whole(it) => Value::Integer(it.of(spec)?),
            Self::Number(it) => Value::Float(it.of(spec)?),
            Self::Text(it) => match spec.params.get(it.name) {
                None => Value::Text(it.default.unwrap_or_default().to_string()),
                Some(Value::Text(text)) => Value::Text(text.clone()),
                Some(other) => {
                    return Err(SpecError::new(it.name, &other.to_string(), it.allowed));
                }
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(default: Value, low: Option<f64>, high: Option<f64>) -> Setting {
        Setting { name: "keep".into(), summary: String::new(), default, low, high }
    }

    #[test]
    fn kind_and_range_follow_the_default() {
        let keep = |default, low, high| setting(default, low, high).known().unwrap();
        let written = |value: Value| Spec::named("x").with("keep", value);
        let share = keep(Value::Float(0.5), Some(0.0), Some(1.0));
        assert_eq!(share.of(&written(Value::Integer(1))), Ok(Value::Float(1.0)));
        let error = share.of(&written(Value::Float(2.0))).unwrap_err().to_string();
        assert_eq!(error, "keep = 2: allowed is a number, 0 to 1");
        let whole = keep(Value::Integer(-2), None, None);
        assert_eq!(whole.of(&Spec::named("x")), Ok(Value::Integer(-2)));
        assert!(whole.of(&written(Value::Float(0.5))).is_err());
        let text = keep(Value::Text("fast".into()), None, None);
        assert_eq!(text.of(&Spec::named("x")), Ok(Value::Text("fast".into())));
        assert!(text.of(&written(Value::Bool(true))).is_err());
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let error = |it: Setting| it.known().unwrap_err().to_string();
        let named = Setting { name: "kind".into(), ..setting(Value::Bool(true), None, None) };
        assert!(error(named).starts_with("parameter = kind: allowed is letters"));
        let outside = setting(Value::Float(2.0), Some(0.0), Some(1.0));
        assert_eq!(error(outside), "keep = 2: allowed is a number, 0 to 1");
        assert!(error(setting(Value::Float(0.5), None, Some(1.0))).contains("`low` and `high`"));
        assert!(error(setting(Value::Bool(true), Some(0.0), None)).contains("of a number"));
        assert!(error(setting(Value::List(alloc::vec![]), None, None)).contains("a truth value"));
    }
}
