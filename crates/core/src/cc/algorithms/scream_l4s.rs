//! SCReAMv2 in L4S: it sends ECT(1) and reduces by the share of marks. All else is in [`super::scream`].

use super::scream::{Scream, TARGET};
use super::{Algorithm, Field, scream};

/// The registry entry.
pub const ALGORITHM: Algorithm = Algorithm {
    name: "scream_l4s",
    summary: "SCReAMv2 with ECT(1) and accurate feedback (L4S)",
    sources: &["draft-johansson-ccwg-rfc8298bis-screamv2-06", "RFC 9331"],
    params: &[&TARGET],
    needs: &[Field::Rtt, Field::EcnCe, Field::Ect1],
    build: &|spec| Scream::boxed(spec, true),
    ..scream::ALGORITHM
};
