//! A list of the algorithms that a host can build: the algorithms of this crate, and any that the
//! host registers in addition.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{ALGORITHMS, Algorithm, CongestionControl, Field, delay};
use crate::spec::{Spec, SpecError, Value, one_of};

/// Algorithms that plans, configurations and hosts may name. [`Default`]: [`Registry::BUILTIN`].
#[derive(Clone, Debug)]
pub struct Registry(Cow<'static, [Algorithm]>);

impl Registry {
    /// The algorithms of this crate.
    pub const BUILTIN: Self = Self(Cow::Borrowed(ALGORITHMS));

    /// Adds `algorithm`, from any crate.
    ///
    /// # Errors
    ///
    /// The registry has an algorithm of the same name.
    pub fn register(&mut self, algorithm: Algorithm) -> Result<(), SpecError> {
        if self.named(algorithm.name).is_some() {
            let allowed = "a name that no registered algorithm has";
            return Err(SpecError::new("name", algorithm.name, allowed));
        }
        self.0.to_mut().push(algorithm);
        Ok(())
    }

    /// All algorithms, in the order in which they were registered.
    pub fn algorithms(&self) -> &[Algorithm] {
        &self.0
    }

    /// The algorithm called `name`.
    pub fn named(&self, name: &str) -> Option<&Algorithm> {
        self.0.iter().find(|algorithm| algorithm.name == name)
    }

    /// The algorithm that `spec` names, for a host that fills the fields of `supplied`.
    ///
    /// # Errors
    ///
    /// No algorithm has that name, or it needs a field that the host does not supply.
    pub fn fit(&self, spec: &Spec, supplied: &[Field]) -> Result<&Algorithm, SpecError> {
        let missing = |algorithm: &Algorithm| {
            let missing = algorithm.needs.iter().filter(|need| !supplied.contains(need));
            missing.map(|field| field.name()).collect::<Vec<_>>()
        };
        match self.named(&spec.kind) {
            Some(algorithm) if missing(algorithm).is_empty() => Ok(algorithm),
            unfit => {
                let fit = self.0.iter().filter(|algorithm| missing(algorithm).is_empty());
                let names: Vec<&str> = fit.map(|algorithm| algorithm.name).collect();
                let allowed = match unfit {
                    None => one_of(&spec.kind, &names),
                    Some(algorithm) => {
                        let (names, missing) = (names.join(", "), missing(algorithm).join(", "));
                        let name = algorithm.name;
                        alloc::format!(
                            "one of {names}; {name} needs {missing}, which is not measured here"
                        )
                    }
                };
                Err(SpecError::new("kind", &spec.kind, &allowed))
            }
        }
    }

    /// Builds the algorithm that `spec` names, for a host that fills the fields of `supplied`.
    ///
    /// # Errors
    ///
    /// [`Registry::fit`] fails, or a parameter is unknown or out of range.
    pub fn build(
        &self,
        spec: &Spec,
        supplied: &[Field],
    ) -> Result<Box<dyn CongestionControl>, SpecError> {
        self.fit(spec, supplied)?.build(spec)
    }

    /// `spec` for the sender of a single flow. If the algorithm can also control a bundle, it gets `flow =
    /// true`, unless `spec` sets `flow`.
    pub fn of_single_flow(&self, mut spec: Spec) -> Spec {
        let params = self.named(&spec.kind).map_or(&[][..], |algorithm| algorithm.params);
        if params.iter().any(|param| param.name() == delay::FLOW.name) {
            spec.params.entry(delay::FLOW.name.into()).or_insert(Value::Bool(true));
        }
        spec
    }

    /// `spec` completed with the algorithm's defaults.
    pub fn with_defaults(&self, spec: Spec) -> Spec {
        match self.named(&spec.kind) {
            Some(algorithm) => spec.with_defaults(algorithm.params),
            None => spec,
        }
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::BUILTIN
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;
    use crate::cc::algorithms::{constant, newreno};

    #[test]
    fn host_lacking_a_needed_field_is_refused() {
        let (registry, spec) = (Registry::BUILTIN, Spec::named("copa"));
        assert!(registry.build(&spec, &[Field::DeliveryRate, Field::Rtt, Field::Lost]).is_ok());
        let error = registry.build(&spec, &[Field::DeliveryRate]).err().unwrap();
        let text = error.to_string();
        assert!(text.starts_with("kind = copa: allowed is one of "), "{text}");
        assert!(text.ends_with("; copa needs rtt, which is not measured here"), "{text}");
        let error = registry.build(&Spec::named("nonesuch"), &[Field::DeliveryRate]).err().unwrap();
        let text = error.to_string();
        let allowed: Vec<&str> =
            text.strip_prefix("kind = nonesuch: allowed is one of ").unwrap().split(", ").collect();
        assert!(allowed.contains(&"const") && allowed.contains(&"newreno"), "{text}");
        assert!(!allowed.contains(&"copa") && !allowed.contains(&"hybla"), "{text}");
    }

    #[test]
    fn registered_algorithm_is_built_and_named_in_errors() {
        let mut registry = Registry::default();
        // As for an algorithm of another language, the builder is known only at run time.
        let window = Value::Text("30000B".to_string());
        let build = move |_: &Spec| {
            let spec = Spec::named(constant::ALGORITHM.name).with("cwnd", window.clone());
            constant::ALGORITHM.build(&spec)
        };
        let build = Box::leak(Box::new(build));
        registry
            .register(Algorithm { name: "mine", params: &[], build, ..constant::ALGORITHM })
            .unwrap();
        let cwnd = registry.build(&Spec::named("mine"), &[]).unwrap().send_limits().cwnd;
        assert_eq!(cwnd.unwrap().as_u64(), 30_000);
        let error = registry.build(&Spec::named("yours"), &[]).err().unwrap().to_string();
        assert!(error.ends_with(", mine"), "{error}");
        assert!(Registry::BUILTIN.named("mine").is_none());
    }

    #[test]
    fn a_key_that_is_gone_names_its_successor() {
        let spec = Spec::named("copa").with("competes", Value::Bool(false));
        let supplied = [Field::DeliveryRate, Field::Rtt];
        let error = Registry::BUILTIN.build(&spec, &supplied).err().unwrap().to_string();
        assert!(
            error.starts_with("competes = false: allowed is no value: set `supervised = false`")
        );
    }

    #[test]
    fn bundle_algorithm_starts_a_flow_in_slow_start() {
        let flow = |cc: Spec| Registry::BUILTIN.of_single_flow(cc).params.get("flow").cloned();
        for law in ["copa", "setpoint", "basic_delay"] {
            let law = Spec::named(law);
            assert_eq!(flow(law.clone()), Some(Value::Bool(true)));
            assert_eq!(flow(law.with("flow", Value::Bool(false))), Some(Value::Bool(false)));
        }
        assert_eq!(flow(Spec::named("cubic")), None);
    }

    #[test]
    fn a_name_is_registered_once() {
        let error = Registry::default().register(newreno::ALGORITHM).unwrap_err();
        assert_eq!(error.value, "newreno");
    }
}
