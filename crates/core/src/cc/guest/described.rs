//! Algorithms of programs in other languages, which say in words what an entry of the registry says.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Every, seldom};
use crate::cc::{Algorithm, CongestionControl, Field};
use crate::spec::{Spec, SpecError};

/// What a program says of an algorithm of its own.
#[derive(Clone, Debug)]
pub struct Described {
    /// Name as written in plans.
    pub name: String,
    /// One line.
    pub summary: String,
    /// Names of the fields of a measurement that the algorithm cannot do without.
    pub needs: Vec<String>,
    /// How often the algorithm hears of measurements, as [`Every`] is written.
    pub every: String,
}

impl Described {
    /// The entry of a registry, instances of which `make` makes. What the entry says lives as long as the program.
    ///
    /// # Errors
    ///
    /// A field or a time that there is not.
    pub fn algorithm(
        self,
        make: impl Fn() -> Box<dyn CongestionControl> + Send + Sync + 'static,
    ) -> Result<Algorithm, SpecError> {
        let every: Every = self
            .every
            .parse()
            .map_err(|allowed: String| SpecError::new("every", &self.every, &allowed))?;
        let field = |name: &String| {
            let found = Field::ALL.into_iter().find(|field| field.name() == name);
            let allowed = || format!("one of {}", Field::ALL.map(Field::name).join(", "));
            found.ok_or_else(|| SpecError::new("needs", name, &allowed()))
        };
        let needs = self.needs.iter().map(field).collect::<Result<Vec<_>, _>>()?;
        let build = move |_: &Spec| -> Result<Box<dyn CongestionControl>, SpecError> {
            Ok(seldom(make(), every))
        };
        Ok(Algorithm {
            name: self.name.leak(),
            summary: self.summary.leak(),
            sources: &[],
            params: &[],
            needs: needs.leak(),
            min_window_mss: 1.0,
            batch_tolerance: 0.2,
            build: Box::leak(Box::new(build)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc;

    #[test]
    fn fields_and_times_that_there_are_not_are_refused_by_name() {
        let make = || cc::build(&Spec::named("const"), &[]).unwrap();
        let with = |needs: &str, every: &str| Described {
            name: "told".into(),
            summary: String::new(),
            needs: vec![needs.into()],
            every: every.into(),
        };
        let error = with("luck", "round").algorithm(make).unwrap_err().to_string();
        assert!(error.starts_with("needs = luck: allowed is one of lost, "), "{error}");
        let error = with("rtt", "often").algorithm(make).unwrap_err().to_string();
        assert!(error.starts_with("every = often: allowed is \"round\""), "{error}");
        let algorithm = with("rtt", "10ms").algorithm(make).unwrap();
        assert_eq!((algorithm.name, algorithm.needs), ("told", &[Field::Rtt][..]));
    }
}
