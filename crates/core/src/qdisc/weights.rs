//! Weights: the share of one class relative to another.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::qdisc::Classifier;
use crate::qdisc::classify::CLASSES_MAX;
use crate::spec::{Param, Quantity, Spec, SpecError};

/// A flow with 64 quanta a round makes other flows wait for as long as 64 flows do.
const WEIGHT_MAX: u8 = 64;

/// The parameter of disciplines in which the class of a flow decides how much the flow gets.
pub(super) const WEIGHTS: Param<Weights> =
    Param::new("weights", "quanta that a flow of each class may send in a round, class 0 first");

/// A weight from 1 to 64 for each of 1 to 16 classes.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Weights {
    /// The weight of each class, and 0 behind the last.
    values: [u8; CLASSES_MAX],
    count: usize,
}

impl Weights {
    /// One class, in which every flow has the weight 1.
    pub const ONE: Self = {
        let mut values = [0; CLASSES_MAX];
        values[0] = 1;
        Self { values, count: 1 }
    };

    /// The weight of class 0, of class 1 and so on; `None` for other than 1 to 16 weights from 1 to 64.
    pub fn new(weights: &[u8]) -> Option<Self> {
        let is_allowed = |weight: &u8| (1..=WEIGHT_MAX).contains(weight);
        let (count, mut values) = (weights.len(), [0; CLASSES_MAX]);
        values.get_mut(..count)?.copy_from_slice(weights);
        (count > 0 && weights.iter().all(is_allowed)).then_some(Self { values, count })
    }

    /// The weights of the classes of `spec`, which gives both or neither.
    pub(super) fn of_classes(spec: &Spec) -> Result<Self, SpecError> {
        let absent = |key, allowed| Err(SpecError::new(key, "(absent)", allowed));
        match (WEIGHTS.given(spec)?, spec.params.contains_key("classes")) {
            (Some(weights), true) => Classifier::from_spec(spec).map(|_| weights),
            (None, false) => Ok(Self::ONE),
            (Some(_), false) => {
                absent("classes", "rules such as [{ dscp = 46, class = 0 }], required by weights")
            }
            (None, true) => {
                absent("weights", "one for each class, such as [4, 1], required by classes")
            }
        }
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.count
    }

    /// The weight of `class`; 0 if there is no such class.
    pub fn of(&self, class: usize) -> u64 {
        self.values.get(class).copied().unwrap_or(0).into()
    }
}

impl Quantity for Weights {
    /// A value of `weights`.
    const WHAT: &'static str = "a list of 1 to 16 whole numbers, 1 to 64, such as [4, 1]";
    fn read(text: &str) -> Option<Self> {
        let list = text.strip_prefix('[')?.strip_suffix(']')?;
        let weights = list.split(',').map(|weight| weight.trim().parse());
        Self::new(&weights.collect::<Result<Vec<u8>, _>>().ok()?)
    }
    fn written(&self) -> String {
        let weights = self.values[..self.count].iter().map(ToString::to_string);
        alloc::format!("[{}]", weights.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Value;

    #[test]
    fn list_of_weights_is_read_in_its_range() {
        let read = |weights: Vec<i64>| {
            let list = Value::List(weights.into_iter().map(Value::Integer).collect());
            WEIGHTS.of(&Spec::named("sfq").with("weights", list))
        };
        let weights = read(alloc::vec![4, 1, 64]).unwrap();
        assert_eq!((weights.classes(), weights.of(0), weights.of(2)), (3, 4, 64));
        assert_eq!(weights.of(3), 0);
        assert_eq!(Weights::read(&weights.written()), Some(weights));
        assert_eq!(read(alloc::vec![1]), Ok(Weights::ONE));
        assert_eq!(read(alloc::vec![1; 16]).unwrap().classes(), 16);
        for wrong in [alloc::vec![], alloc::vec![1; 17], alloc::vec![0], alloc::vec![1, 65]] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.contains("a list of 1 to 16 whole numbers, 1 to 64"), "{error}");
        }
        assert_eq!(Weights::read("4"), None);
        assert_eq!(Weights::read("[4, one]"), None);
    }

    #[test]
    fn weights_and_classes_ask_for_each_other() {
        let weights = Value::List([4, 1].map(Value::Integer).to_vec());
        let rule = |class| {
            let class = ("class".to_string(), Value::Integer(class));
            Value::List(alloc::vec![Value::Table([class].into())])
        };
        for kind in ["sfq", "drr"] {
            let weighted = Spec::named(kind).with("weights", weights.clone());
            let both = weighted.clone().with("classes", rule(1));
            assert_eq!(Weights::of_classes(&both), Ok(Weights::new(&[4, 1]).unwrap()));
            assert_eq!(Weights::of_classes(&Spec::named(kind)), Ok(Weights::ONE));
            for (spec, expected) in [
                (weighted.clone(), "classes = (absent): allowed is rules such as"),
                (Spec::named(kind).with("classes", rule(0)), "weights = (absent): allowed is one"),
                (weighted.with("classes", rule(2)), "classes[0].class = 2: allowed is a whole"),
            ] {
                let error = crate::qdisc::check(&spec).unwrap_err().to_string();
                assert!(error.starts_with(expected), "{error}");
            }
        }
    }
}
