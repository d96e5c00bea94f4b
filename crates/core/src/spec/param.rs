//! Parameters of algorithms and qdiscs: name, default, range and how a value is read, each in one place.

use alloc::format;
use alloc::string::{String, ToString};
use core::fmt::Debug;
use core::ops::RangeInclusive;

use super::{Spec, SpecError};
use crate::units::{ByteCount, Duration, Limit, Rate, Ratio, format_duration, parse_duration};

/// Type of a parameter's value.
pub trait Quantity: Copy + Debug + PartialOrd + Send + Sync + 'static {
    /// Description of the type, such as `"a duration"`.
    const WHAT: &'static str;

    /// Reads a value without quotes; `None` if it is not [`Quantity::WHAT`].
    fn read(text: &str) -> Option<Self>;

    /// The form that [`Quantity::read`] reads.
    fn written(&self) -> String;

    /// Description of a range; without `high` there is no upper end.
    fn between(low: &str, high: Option<&str>) -> String {
        match high {
            Some(high) => format!("{}, {low} to {high}", Self::WHAT),
            None => format!("{}, {low} or more", Self::WHAT),
        }
    }
}

/// A parameter without the type of its value, for help texts, documentation and checks of names.
pub trait Parameter: Debug + Send + Sync {
    /// Name as written in plans.
    fn name(&self) -> &'static str;
    /// Effect of the parameter, one line.
    fn summary(&self) -> &'static str;
    /// Default as it would be written; `None` if there is none.
    fn written_default(&self) -> Option<String>;
    /// Allowed values, such as `"a duration, 1ms to 10s"`.
    fn allowed(&self) -> String;
}

/// One parameter of an algorithm or qdisc, with values of type `T`.
#[derive(Clone, Copy, Debug)]
pub struct Param<T> {
    /// Name as written in plans.
    pub name: &'static str,
    summary: &'static str,
    default: Option<T>,
    /// Least and greatest value, both allowed.
    range: Option<(T, Option<T>)>,
    also: &'static str,
}

impl<T: Quantity> Param<T> {
    /// A parameter without a default that takes any `T`; `summary` states its effect in one line.
    pub const fn new(name: &'static str, summary: &'static str) -> Self {
        Self { name, summary, default: None, range: None, also: "" }
    }

    /// The parameter with a default.
    pub const fn or(self, default: T) -> Self {
        Self { default: Some(default), ..self }
    }

    /// The parameter with a range.
    pub const fn within(self, range: RangeInclusive<T>) -> Self {
        Self { range: Some((*range.start(), Some(*range.end()))), ..self }
    }

    /// The parameter with a least value.
    pub const fn at_least(self, least: T) -> Self {
        Self { range: Some((least, None)), ..self }
    }

    /// The parameter with a further condition, which its reader checks: `", at most beta"`.
    pub const fn also(self, condition: &'static str) -> Self {
        Self { also: condition, ..self }
    }

    /// The value in `spec`, `None` if it is not given.
    ///
    /// # Errors
    ///
    /// It is no `T`, or out of range.
    pub fn given(&self, spec: &Spec) -> Result<Option<T>, SpecError> {
        let Some(text) = spec.text_of(self.name) else { return Ok(None) };
        let is_within = |value: &T| {
            let (low, high) = self.range.unwrap_or((*value, None));
            low <= *value && high.is_none_or(|high| *value <= high)
        };
        T::read(&text).filter(is_within).map(Some).ok_or_else(|| self.refused(spec))
    }

    /// The value in `spec`, or the default.
    ///
    /// # Errors
    ///
    /// It is no `T` or out of range, or it is not given and there is no default.
    pub fn of(&self, spec: &Spec) -> Result<T, SpecError> {
        let value = self.given(spec)?.or(self.default);
        value.ok_or_else(|| SpecError::absent(self.name, &spec.kind))
    }

    /// The error that the value in `spec`, or the default where it is not given, is not allowed.
    pub fn refused(&self, spec: &Spec) -> SpecError {
        let written = spec.params.get(self.name).map(ToString::to_string);
        let value = written.or_else(|| self.written_default()).unwrap_or_default();
        SpecError::new(self.name, &value, &self.allowed())
    }
}

impl Param<bool> {
    /// A switch that is off by default.
    pub const fn switch(name: &'static str, summary: &'static str) -> Self {
        Self::new(name, summary).or(false)
    }
}

impl<T: Quantity> Parameter for Param<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn written_default(&self) -> Option<String> {
        self.default.map(|default| default.written())
    }

    fn allowed(&self) -> String {
        let allowed = match self.range {
            None => T::WHAT.into(),
            Some((low, high)) => {
                T::between(&low.written(), high.map(|high| high.written()).as_deref())
            }
        };
        allowed + self.also
    }
}

/// A parameter that is only described: kinds and tables, which are read one by one.
#[derive(Clone, Copy, Debug)]
pub struct DescribedParam {
    /// Name as written in plans.
    pub name: &'static str,
    /// Effect of the parameter, one line.
    pub summary: &'static str,
    /// Default as it would be written.
    pub default: Option<&'static str>,
    /// Allowed values.
    pub allowed: &'static str,
}

impl Parameter for DescribedParam {
    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }

    fn written_default(&self) -> Option<String> {
        self.default.map(String::from)
    }

    fn allowed(&self) -> String {
        self.allowed.into()
    }
}

/// Quantities that are read and written as [`core::str::FromStr`] and [`core::fmt::Display`] do.
macro_rules! quantities {
    ($($type:ty: $what:literal),* $(,)?) => {$(
        impl Quantity for $type {
            /// Type of the value.
            const WHAT: &'static str = $what;
            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }
            fn written(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

quantities! {
    bool: "true or false",
    u32: "a whole number",
    u64: "a whole number",
    i64: "a whole number",
    Rate: "a rate",
    ByteCount: "a size",
    Limit: "a queue limit such as \"1200p\", \"1800KB\" or \"150ms\"",
}

impl Quantity for f64 {
    /// Type of the value.
    const WHAT: &'static str = "a number";
    fn read(text: &str) -> Option<Self> {
        text.parse().ok().filter(|number: &Self| number.is_finite())
    }
    fn written(&self) -> String {
        self.to_string()
    }
}

impl Quantity for Duration {
    /// Type of the value.
    const WHAT: &'static str = "a duration";
    fn read(text: &str) -> Option<Self> {
        parse_duration(text).ok()
    }
    fn written(&self) -> String {
        if self.is_zero() { "0s".into() } else { format_duration(*self) }
    }
}

impl Quantity for Ratio {
    /// Type of the value.
    const WHAT: &'static str = "a share from 0 to 1";
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn written(&self) -> String {
        self.to_string()
    }
    fn between(low: &str, high: Option<&str>) -> String {
        format!("a share from {low} to {}", high.unwrap_or("1"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Value;
    use super::*;
    use crate::cc::ALGORITHMS;

    const TIME: Param<Duration> = Param::new("time", "how long")
        .or(Duration::from_millis(100))
        .within(Duration::from_millis(1)..=Duration::from_secs(10));

    #[test]
    fn value_is_checked_against_range_or_defaulted() {
        let spec = |text: &str| Spec::named("x").with("time", Value::Text(text.into()));
        assert_eq!(TIME.of(&spec("2s")), Ok(Duration::from_secs(2)));
        assert_eq!(TIME.of(&spec("10s")), Ok(Duration::from_secs(10)));
        assert_eq!(TIME.of(&Spec::named("x")), Ok(Duration::from_millis(100)));
        assert_eq!(TIME.given(&Spec::named("x")), Ok(None));
        for wrong in ["11s", "999us", "2", "soon"] {
            let error = TIME.of(&spec(wrong)).unwrap_err().to_string();
            assert_eq!(error, format!("time = {wrong:?}: allowed is a duration, 1ms to 10s"));
        }
    }

    #[test]
    fn what_has_no_default_has_to_be_given() {
        let rate: Param<Rate> = Param::new("rate", "how fast").at_least(Rate::from_mbit_per_sec(1));
        let error = rate.of(&Spec::named("x")).unwrap_err().to_string();
        assert_eq!(error, "rate = (absent): allowed is a value: x needs it");
        assert_eq!(
            (rate.allowed(), rate.written_default()),
            ("a rate, 1Mbit/s or more".into(), None)
        );
    }

    #[test]
    fn numbers_are_finite_and_switches_are_words() {
        let number: Param<f64> = Param::new("n", "a number").or(0.5).within(0.0..=1.0);
        for (value, is_allowed) in [(0.25, true), (1.5, false), (f64::NAN, false)] {
            let spec = Spec::named("x").with("n", Value::Float(value));
            assert_eq!(number.of(&spec).is_ok(), is_allowed, "{value}");
        }
        let switch = Param::switch("s", "a switch");
        assert_eq!(switch.of(&Spec::named("x").with("s", Value::Bool(true))), Ok(true));
        assert!(switch.of(&Spec::named("x").with("s", Value::Integer(1))).is_err());
    }

    #[test]
    fn every_algorithm_default_is_accepted_when_written_out() {
        for algorithm in ALGORITHMS {
            let written = Spec::named(algorithm.name).with_defaults(algorithm.params);
            assert!(algorithm.build(&written).is_ok(), "{written}");
        }
    }
}
