//! A measurement in the form that programs in other languages get.

use crate::cc::Measurement;
use crate::units::{ByteCount, Rate, Ratio, duration_nanos};

/// A [`Measurement`] in plain numbers, under names that end in the unit. `None` is not known.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Told {
    /// [`Measurement::interval`].
    pub interval_ns: u64,
    /// [`Measurement::acked`].
    pub acked_bytes: u64,
    /// [`Measurement::lost`].
    pub lost_bytes: Option<u64>,
    /// [`Measurement::ecn_ce`].
    pub ecn_ce_bytes: Option<u64>,
    /// [`Measurement::ect1`].
    pub ect1_bytes: Option<u64>,
    /// The newest of [`Measurement::rtt`].
    pub rtt_latest_ns: Option<u64>,
    /// The least of [`Measurement::rtt`].
    pub rtt_min_ns: Option<u64>,
    /// [`Measurement::feedback_delay`].
    pub feedback_delay_ns: Option<u64>,
    /// [`Measurement::one_way`].
    pub one_way_ns: Option<u64>,
    /// [`Measurement::send_rate`].
    pub send_rate_bits_per_s: Option<u64>,
    /// [`Measurement::delivery_rate`].
    pub delivery_rate_bits_per_s: Option<u64>,
    /// [`Measurement::train_rate`].
    pub train_rate_bits_per_s: Option<u64>,
    /// [`Measurement::in_flight`].
    pub in_flight_bytes: Option<u64>,
    /// [`Measurement::delivered`].
    pub delivered_bytes: u64,
    /// [`Measurement::prior_delivered`].
    pub prior_delivered_bytes: u64,
    /// [`Measurement::lost_prior_delivered`].
    pub lost_prior_delivered_bytes: Option<u64>,
    /// [`Measurement::backlog`].
    pub backlog_bytes: Option<u64>,
    /// [`Measurement::idle`], 0 to 1.
    pub idle_share: Option<f64>,
    /// [`Measurement::app_limited`].
    pub app_limited: bool,
    /// [`Measurement::cwnd_limited`].
    pub cwnd_limited: Option<bool>,
}

impl From<&Measurement> for Told {
    fn from(it: &Measurement) -> Self {
        let bytes = |bytes: Option<ByteCount>| bytes.map(ByteCount::as_u64);
        let rate = |rate: Option<Rate>| rate.map(Rate::as_bits_per_sec);
        Self {
            interval_ns: duration_nanos(it.interval),
            acked_bytes: it.acked.as_u64(),
            lost_bytes: bytes(it.lost),
            ecn_ce_bytes: bytes(it.ecn_ce),
            ect1_bytes: bytes(it.ect1),
            rtt_latest_ns: it.rtt.map(|rtt| duration_nanos(rtt.latest)),
            rtt_min_ns: it.rtt.map(|rtt| duration_nanos(rtt.min)),
            feedback_delay_ns: it.feedback_delay.map(duration_nanos),
            one_way_ns: it.one_way.map(duration_nanos),
            send_rate_bits_per_s: rate(it.send_rate),
            delivery_rate_bits_per_s: rate(it.delivery_rate),
            train_rate_bits_per_s: rate(it.train_rate),
            in_flight_bytes: bytes(it.in_flight),
            delivered_bytes: it.delivered.as_u64(),
            prior_delivered_bytes: it.prior_delivered.as_u64(),
            lost_prior_delivered_bytes: bytes(it.lost_prior_delivered),
            backlog_bytes: bytes(it.backlog),
            idle_share: it.idle.map(Ratio::as_f64),
            app_limited: it.app_limited,
            cwnd_limited: it.cwnd_limited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::RttSample;
    use crate::units::Duration;

    #[test]
    fn numbers_have_named_units_and_unknowns_stay_unknown() {
        let [latest, min] = [30, 20].map(Duration::from_millis);
        let told = Told::from(&Measurement {
            interval: Duration::MAX,
            acked: ByteCount::new(1448),
            lost: Some(ByteCount::ZERO),
            rtt: Some(RttSample { latest, min }),
            delivery_rate: Some(Rate::from_mbit_per_sec(8)),
            idle: Some(Ratio::ONE),
            ..Measurement::default()
        });
        assert_eq!((told.interval_ns, told.acked_bytes), (u64::MAX, 1448));
        assert_eq!((told.lost_bytes, told.ecn_ce_bytes), (Some(0), None));
        assert_eq!((told.rtt_latest_ns, told.rtt_min_ns), (Some(30_000_000), Some(20_000_000)));
        assert_eq!(told.delivery_rate_bits_per_s, Some(8_000_000));
        assert_eq!((told.idle_share, told.cwnd_limited), (Some(1.0), None));
    }
}
