//! The algorithms: one file or folder each. Shared parts lie in the folder above.

pub mod ns3;
pub mod policy;

use super::{
    Algorithm, CongestionControl, CongestionEvent, Field, Interim, Measurement, SendLimits, State,
};
use super::{delay, estimators, hystart, interim, pcc, rounds, window};

/// Declares a module for each name and lists every `ALGORITHM`.
macro_rules! algorithms {
    ($($name:ident,)*) => {
        $(pub mod $name;)*

        /// Every algorithm of this crate.
        pub const ALGORITHMS: &[Algorithm] = &[$($name::ALGORITHM),*];
    };
}

algorithms! {
    basic_delay,
    bbr,
    bbr3,
    bic,
    constant,
    copa,
    cubic,
    dctcp,
    highspeed,
    htcp,
    hybla,
    illinois,
    ledbat,
    ledbatpp,
    lp,
    newreno,
    nimbus,
    prague,
    proteus_p,
    proteus_s,
    scalable,
    scream,
    scream_l4s,
    setpoint,
    vegas,
    veno,
    vivace,
    westwood,
    yeah,
}
