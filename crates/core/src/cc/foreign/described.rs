//! Algorithms of programs in other languages, which describe in words the contents of a registry entry.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::setting::{Known, Setting};
use super::{Every, seldom};
use crate::cc::{Algorithm, CongestionControl, Field};
use crate::spec::{Parameter, Spec, SpecError, Value};

/// A program's description of its own algorithm.
#[derive(Clone, Debug)]
pub struct Described {
    /// Name as written in plans.
    pub name: String,
    /// One line.
    pub summary: String,
    /// Names of the fields of a measurement that the algorithm cannot do without.
    pub needs: Vec<String>,
    /// How often the algorithm gets measurements, as [`Every`] is written.
    pub every: String,
    /// Parameters of the algorithm.
    pub params: Vec<Setting>,
}

/// The value of each parameter by its name.
pub type Values = Vec<(&'static str, Value)>;

impl Described {
    /// The entry of a registry, with instances made by `make`. The contents of the entry live as long as the
    /// program.
    ///
    /// # Errors
    ///
    /// A field or a time that does not exist, or a parameter that plans cannot write.
    pub fn algorithm(
        self,
        make: impl Fn(Values) -> Box<dyn CongestionControl> + Send + Sync + 'static,
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
        let known = known(self.params)?;
        let params: Vec<&'static dyn Parameter> = known.iter().map(Known::parameter).collect();
        let build = move |spec: &Spec| -> Result<Box<dyn CongestionControl>, SpecError> {
            let values = known.iter().map(|it| Ok((it.parameter().name(), it.of(spec)?)));
            Ok(seldom(make(values.collect::<Result<_, SpecError>>()?), every))
        };
        Ok(Algorithm {
            name: self.name.leak(),
            summary: self.summary.leak(),
            sources: &[],
            params: params.leak(),
            needs: needs.leak(),
            min_window_mss: 1.0,
            batch_tolerance: 0.2,
            build: Box::leak(Box::new(build)),
        })
    }

    /// The value of each parameter, from `spec` or its default.
    ///
    /// # Errors
    ///
    /// A parameter that plans cannot write, that is unknown, or out of range.
    pub fn values(self, spec: &Spec) -> Result<Values, SpecError> {
        let known = known(self.params)?;
        let params: Vec<&dyn Parameter> = known.iter().map(Known::parameter).collect();
        spec.check_names(&params)?;
        known.iter().map(|it| Ok((it.parameter().name(), it.of(spec)?))).collect()
    }
}

/// The parameters, which live from now on until the program ends.
fn known(params: Vec<Setting>) -> Result<&'static [Known], SpecError> {
    let known = params.into_iter().map(Setting::known).collect::<Result<Vec<_>, _>>()?;
    Ok(known.leak())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc;

    #[test]
    fn unknown_fields_and_times_are_refused_by_name() {
        let make = |_: Values| cc::build(&Spec::named("const"), &[]).unwrap();
        let with = |needs: &str, every: &str| Described {
            name: "told".into(),
            summary: String::new(),
            needs: vec![needs.into()],
            every: every.into(),
            params: Vec::new(),
        };
        let error = with("luck", "round").algorithm(make).unwrap_err().to_string();
        assert!(error.starts_with("needs = luck: allowed is one of lost, "), "{error}");
        let error = with("rtt", "often").algorithm(make).unwrap_err().to_string();
        assert!(error.starts_with("every = often: allowed is \"round\""), "{error}");
        let algorithm = with("rtt", "10ms").algorithm(make).unwrap();
        assert_eq!((algorithm.name, algorithm.needs), ("told", &[Field::Rtt][..]));
    }

    #[test]
    fn parameters_reach_each_instance() {
        let setting = |name: &str, default| Setting {
            name: name.into(),
            summary: String::new(),
            default,
            low: None,
            high: None,
        };
        let described = Described {
            name: "told".into(),
            summary: String::new(),
            needs: Vec::new(),
            every: "ack".into(),
            params: vec![setting("keep", Value::Float(0.5)), setting("on", Value::Bool(true))],
        };
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Values::new()));
        let told = seen.clone();
        let make = move |values| {
            *told.lock().unwrap() = values;
            cc::build(&Spec::named("const"), &[]).unwrap()
        };
        let algorithm = described.algorithm(make).unwrap();
        let spec = Spec::named("told").with("keep", Value::Text("0.7".into()));
        algorithm.build(&spec.with_defaults(algorithm.params)).unwrap();
        let expected = vec![("keep", Value::Float(0.7)), ("on", Value::Bool(true))];
        assert_eq!(*seen.lock().unwrap(), expected);
        let error = algorithm.build(&Spec::named("told").with("kept", Value::Bool(true)));
        assert!(error.err().unwrap().to_string().contains("keep"));
    }
}
