//! Access paths drawn from a seed: rate, delay and loss over time as a [`PathTrace`].
//!
//! Each model has a file, whose constants name their source or say that they are assumed. A model is one direction. The
//! same model, seed and length give the same rows on every machine.

mod adsl;
mod carrier;
mod docsis;
mod leo;
mod lte;
mod wifi;

use alloc::string::ToString;
use alloc::vec::Vec;
use core::fmt;

use super::{Change, PathTrace};
use crate::named;
use crate::random::{Stream, Streams};
use crate::spec::{Param, Parameter, Spec, SpecError};
use crate::units::{Duration, Rate, Ratio};

/// One-way delay in ms from the access network to the far end, for models whose source gives the access network alone.
/// Assumed: a server in the same country. The double makes access delays half as visible.
const BEYOND_MS: f64 = 10.0;

/// Seed of the random draws of a model.
const SEED: Param<u64> = Param::new("seed", "seed of the draws").or(1);
/// Length of a generated trace in seconds.
const SECONDS: Param<u64> = Param::new("seconds", "length in seconds").or(60).within(1..=3600);

named! {
    /// A kind of access path.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum PathModel {
        /// Cellular downlink whose rate wanders, with outages.
        Lte => "lte",
        /// Cellular downlink as recorded in AT&T's network.
        LteAtt => "lte_att",
        /// Cellular downlink as recorded in T-Mobile's network.
        LteTmobile => "lte_tmobile",
        /// Cellular downlink as recorded in Verizon's network.
        LteVerizon => "lte_verizon",
        /// Downlink through satellites in low orbit, which change every 15 s.
        Leo => "leo",
        /// 802.11n link to a station that shares the channel.
        Wifi => "wifi",
        /// Cable upstream, which asks for each grant.
        Docsis => "docsis",
        /// ADSL downlink with interleaving.
        Adsl => "adsl",
    }
}

/// A path to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrawnPath {
    /// The kind of path.
    pub model: PathModel,
    /// Seed of all draws.
    pub seed: u64,
    /// Length of the trace in s, 1 to 3600.
    pub seconds: u64,
}

impl PathModel {
    /// The model called `name`.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|model| model.name() == name)
    }
}

impl DrawnPath {
    /// The path that `spec` describes, such as `lte(seed=3, seconds=90)`; `None` if its kind is no model.
    ///
    /// # Errors
    ///
    /// A parameter is unknown, or out of range.
    pub fn from_spec(spec: &Spec) -> Option<Result<Self, SpecError>> {
        let model = PathModel::by_name(&spec.kind)?;
        let read = || {
            let params: [&dyn Parameter; 2] = [&SEED, &SECONDS];
            spec.check_names(&params)?;
            Ok(Self { model, seed: SEED.of(spec)?, seconds: SECONDS.of(spec)? })
        };
        Some(read())
    }

    /// Draws the trace, which sets rate, delay and loss.
    ///
    /// # Errors
    ///
    /// `seconds` is out of range.
    pub fn trace(&self) -> Result<PathTrace, SpecError> {
        let refused =
            || SpecError::new(SECONDS.name, &self.seconds.to_string(), &SECONDS.allowed());
        if !(1..=3600).contains(&self.seconds) {
            return Err(refused());
        }
        let length = Duration::from_secs(self.seconds);
        let streams = Streams::new(self.seed).part(self.model.name());
        let mut rows: Vec<Change> = match self.model {
            PathModel::Lte => lte::rows(&streams, length),
            PathModel::LteAtt => carrier::ATT.rows(&streams, length),
            PathModel::LteTmobile => carrier::TMOBILE.rows(&streams, length),
            PathModel::LteVerizon => carrier::VERIZON.rows(&streams, length),
            PathModel::Leo => leo::rows(&streams, length),
            PathModel::Wifi => wifi::rows(&streams, length),
            PathModel::Docsis => docsis::rows(&streams, length),
            PathModel::Adsl => adsl::rows(&streams, length),
        };
        // A row that changes nothing is left out.
        rows.dedup_by(|row, before| Change { at: before.at, ..*row } == *before);
        PathTrace::from_rows(rows, length).ok_or_else(refused)
    }
}

impl fmt::Display for DrawnPath {
    /// Writes the form that [`Spec`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(seconds={}, seed={})", self.model.name(), self.seconds, self.seed)
    }
}

/// Times from zero on, `every` apart, before `length`.
fn times(every: Duration, length: Duration) -> impl Iterator<Item = Duration> {
    (0_u32..).map(move |step| every * step).take_while(move |at| *at < length)
}

/// A row; the rate is rounded to 1 kbit/s and the delay to 1 µs, to keep files short.
fn row(at: Duration, mbps: f64, delay_ms: f64, loss: f64) -> Change {
    Change {
        at,
        rate: Some(Rate::from_bits_per_sec(libm::round(mbps * 1e3) as u64 * 1000)),
        delay: Some(Duration::from_micros(libm::round(delay_ms * 1e3) as u64)),
        loss: Ratio::new(loss),
    }
}

/// Uniform from `low` to `high`.
fn uniform(stream: &mut Stream, [low, high]: [f64; 2]) -> f64 {
    low + (high - low) * stream.unit()
}

/// Probability that an event with a mean distance of `mean_s` falls into `step`.
fn chance_within(step: Duration, mean_s: f64) -> f64 {
    1.0 - libm::exp(-step.as_secs_f64() / mean_s)
}

#[cfg(test)]
mod tests;
