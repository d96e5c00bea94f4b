//! Numbers of the control at multiples of their defaults, in the notation of plans.

use forebay_core::bundle::tuning::Tuning;
use forebay_core::spec::{Parameter, Quantity};
use forebay_core::units::{Duration, Rate};

/// A number at a multiple of its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// Name of the number.
    pub name: &'static str,
    /// Default of the number, in the notation of plans.
    pub default: String,
    /// Value of the number, in the notation of plans.
    pub value: String,
    /// Whether the multiple is outside the number's range; the value is then the end of the range.
    pub is_clamped: bool,
}

/// Each number at `factor` times its default, in the order of [`Tuning::PARAMS`].
pub fn scaled(factor: f64) -> Vec<Scaled> {
    Tuning::PARAMS.iter().map(|param| of(*param, factor)).collect()
}

fn of(param: &dyn Parameter, factor: f64) -> Scaled {
    let (default, allowed) = (param.written_default().unwrap_or_default(), param.allowed());
    let (what, range) = allowed.rsplit_once(", ").unwrap_or_default();
    let (least, greatest) = range.split_once(" to ").unwrap_or_default();
    let texts = [&*default, least, greatest];
    let of_rate = |it: Rate| Rate::from_bits_per_sec((it.as_bits_per_sec() as f64 * factor) as u64);
    let (value, is_clamped) = match what {
        u32::WHAT => within(texts, |it: u32| (f64::from(it) * factor).round() as u32),
        Duration::WHAT => within(texts, |it: Duration| it.mul_f64(factor)),
        Rate::WHAT => within(texts, of_rate),
        _ => within(texts, |it: f64| it * factor),
    };
    Scaled { name: param.name(), default, value, is_clamped }
}

/// The default multiplied by `times` and limited to the range, and whether the range changed it.
fn within<T: Quantity>(texts: [&str; 3], times: impl Fn(T) -> T) -> (String, bool) {
    let read = |text| T::read(text).expect("numbers have a default and a range");
    let [default, least, greatest] = texts.map(read);
    let value = times(default);
    let end = if value < least { least } else { greatest };
    let is_within = (least..=greatest).contains(&value);
    (if is_within { value } else { end }.written(), !is_within)
}

#[cfg(test)]
mod tests {
    use forebay_core::spec::{Spec, Value};

    use super::*;

    #[test]
    fn multiples_stay_in_the_range() {
        let of = |factor, name| {
            let all = scaled(factor).into_iter();
            let it = all.clone().find(|it| it.name == name).unwrap();
            (it.value, it.is_clamped)
        };
        assert_eq!(of(2.0, "rest"), ("10s".into(), false));
        assert_eq!(of(0.5, "rate_min"), ("600kbit/s".into(), false));
        assert_eq!(of(0.5, "clock_same_drift_max"), ("1.25".into(), false));
        assert_eq!(of(0.5, "persistent"), ("2".into(), false));
        assert_eq!(of(2.0, "supervisor_keep"), ("0.999".into(), true));
    }

    #[test]
    fn every_multiple_is_another_value_that_is_allowed() {
        for factor in [0.5, 2.0, 1000.0] {
            for Scaled { name, value, .. } in scaled(factor) {
                let spec = Spec::named("tuning").with(name, Value::Text(value));
                assert_ne!(Tuning::of(&spec).unwrap(), Tuning::DEFAULT, "{spec:?}");
            }
        }
    }
}
