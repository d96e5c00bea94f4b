//! my_cc: an algorithm in C, `my_cc.c`. This file makes a registry entry of its callbacks, and tests them.

use forebay_capi::Callbacks;
use forebay_core::cc::{Algorithm, CongestionControl};
use forebay_core::spec::{Spec, SpecError};

/// The registry entry: forebay looks for it under this name.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "my_cc",
    summary: "additive increase, multiplicative decrease, in C",
    sources: &[],
    params: &[],
    // The documentation of `Algorithm` explains these three fields. Hosts sample rates and request marks (ECN) only
    // if `needs` has `Field::DeliveryRate` and `Field::EcnCe` of `forebay_core::cc`.
    needs: &[],
    min_window_mss: 1.0,
    batch_tolerance: 0.05,
    build: &build,
};

unsafe extern "C" {
    /// `my_cc.c` defines it.
    static my_cc: Callbacks;
}

fn build(_spec: &Spec) -> Result<Box<dyn CongestionControl>, SpecError> {
    // SAFETY: its callbacks keep the contract in forebay_cc.h.
    unsafe { forebay_capi::build(&my_cc) }
}

#[cfg(test)]
mod tests {
    use super::ALGORITHM;

    #[test]
    fn it_keeps_the_rules_of_every_algorithm() {
        forebay_core::testing::cc::conform(&ALGORITHM);
    }
}
