//! Algorithms of programs in other languages, which say in words what an entry of the registry says.

use forebay_core::cc::{Algorithm, CongestionControl, Field};
use forebay_core::spec::{Spec, SpecError};

use super::{Every, Own, add, seldom};

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
    /// The file that the algorithm is in.
    pub file: String,
    /// Digest of its text, in hex.
    pub sources: String,
}

/// Adds the algorithm `it`, instances of which `make` makes, to what this program knows, as [`add`] does.
///
/// # Errors
///
/// A field or a time that there is not, or what [`add`] refuses.
pub fn add_described(
    it: Described,
    make: impl Fn() -> Box<dyn CongestionControl> + Send + Sync + 'static,
) -> Result<(), SpecError> {
    let every: Every =
        it.every.parse().map_err(|allowed: String| SpecError::new("every", &it.every, &allowed))?;
    let field = |name: &String| {
        let found = Field::ALL.into_iter().find(|field| field.name() == name);
        let allowed = || format!("one of {}", Field::ALL.map(Field::name).join(", "));
        found.ok_or_else(|| SpecError::new("needs", name, &allowed()))
    };
    let needs = it.needs.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let build = move |_: &Spec| -> Result<Box<dyn CongestionControl>, SpecError> {
        Ok(seldom(make(), every))
    };
    let algorithm = Algorithm {
        name: it.name.leak(),
        summary: it.summary.leak(),
        sources: &[],
        params: &[],
        needs: needs.leak(),
        min_window_mss: 1.0,
        batch_tolerance: 0.2,
        build: Box::leak(Box::new(build)),
    };
    add(&[Own { algorithm, folder: it.file.leak(), sources: it.sources.leak() }])
}

#[cfg(test)]
mod tests {
    use forebay_core::cc;

    use super::*;

    #[test]
    fn fields_and_times_that_there_are_not_are_refused_by_name() {
        let make = || cc::build(&Spec::named("const"), &[]).unwrap();
        let with = |needs: &str, every: &str| Described {
            name: "told".into(),
            summary: String::new(),
            needs: vec![needs.into()],
            every: every.into(),
            file: "told.py".into(),
            sources: "0".into(),
        };
        let error = add_described(with("luck", "round"), make).unwrap_err().to_string();
        assert!(error.starts_with("needs = luck: allowed is one of lost, "), "{error}");
        let error = add_described(with("rtt", "often"), make).unwrap_err().to_string();
        assert!(error.starts_with("every = often: allowed is \"round\""), "{error}");
    }
}
