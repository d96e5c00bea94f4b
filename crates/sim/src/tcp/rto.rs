//! Round-trip time estimate and retransmission timeout.
//!
//! ```text
//! first sample R    SRTT = R, RTTVAR = R/2
//! next samples      RTTVAR += (|SRTT − R| − RTTVAR)/4, SRTT += (R − SRTT)/8
//! RTO               max(SRTT + max(G, 4 RTTVAR), minimum), doubled by each timeout, at most 60 s
//! ```
//! Source: RFC 6298 sections 2 and 5. The minimum is the stack's: 1 s in the RFC and ns-3; Linux sets a
//! floor of 200 ms under 4 RTTVAR instead of under the sum (tcp_rtt_estimator, TCP_RTO_MIN).
//!
//! Integer nanoseconds throughout.

use super::stack::{MinRto, Tcp};

/// Longest timeout after doubling (RFC 6298 section 2.5).
const MAX_RTO_NS: u64 = 60_000_000_000;

/// Estimator of round-trip time and timeout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimator {
    /// Smoothed round-trip time, 0 before the first sample.
    srtt_ns: u64,
    variation_ns: u64,
    min_ns: u64,
    min_smoothed_ns: u64,
    latest_ns: u64,
    min_rto: MinRto,
    granularity_ns: u64,
    rto_ns: u64,
}

impl RttEstimator {
    /// State before the first sample, with the settings of `tcp`.
    pub fn new(tcp: &Tcp) -> Self {
        Self {
            srtt_ns: 0,
            variation_ns: 0,
            min_ns: u64::MAX,
            min_smoothed_ns: u64::MAX,
            latest_ns: 0,
            min_rto: tcp.min_rto,
            granularity_ns: tcp.rto_granularity_ns,
            rto_ns: tcp.initial_rto_ns,
        }
    }

    /// Takes a sample, which also ends any backing off (RFC 6298 section 5.7).
    pub fn on_sample(&mut self, rtt_ns: u64) {
        self.min_ns = self.min_ns.min(rtt_ns);
        self.latest_ns = rtt_ns;
        if self.srtt_ns == 0 {
            self.srtt_ns = rtt_ns.max(1);
            self.variation_ns = rtt_ns / 2;
        } else {
            let difference = self.srtt_ns.abs_diff(rtt_ns);
            self.variation_ns = (3 * self.variation_ns + difference) / 4;
            self.srtt_ns = (7 * self.srtt_ns + rtt_ns) / 8;
        }
        self.min_smoothed_ns = self.min_smoothed_ns.min(self.srtt_ns);
        self.reset_backoff();
    }

    /// Forgets doublings, once something new is acknowledged.
    pub fn reset_backoff(&mut self) {
        if self.srtt_ns == 0 {
            return;
        }
        let spread = self.granularity_ns.max(4 * self.variation_ns);
        let rto = match self.min_rto {
            MinRto::OfSum(min) => min.max(self.srtt_ns + spread),
            MinRto::OfVariation(min) => self.srtt_ns + min.max(spread),
        };
        self.rto_ns = rto.min(MAX_RTO_NS);
    }

    /// A timeout: the next one waits twice as long.
    pub fn back_off(&mut self) {
        self.rto_ns = (2 * self.rto_ns).min(MAX_RTO_NS);
    }

    /// The timeout in force.
    pub fn rto_ns(&self) -> u64 {
        self.rto_ns
    }

    /// Smoothed round-trip time, 0 before the first sample.
    pub fn srtt_ns(&self) -> u64 {
        self.srtt_ns
    }

    /// Least smoothed round-trip time, [`u64::MAX`] before the first.
    pub fn min_smoothed_ns(&self) -> u64 {
        self.min_smoothed_ns
    }

    /// Least sample, [`u64::MAX`] before the first.
    pub fn min_ns(&self) -> u64 {
        self.min_ns
    }

    /// The last sample, 0 before the first.
    pub fn latest_ns(&self) -> u64 {
        self.latest_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nanoseconds per millisecond.
    const MS: u64 = 1_000_000;

    #[test]
    fn the_formulas_of_rfc_6298_section_2() {
        let tcp = Tcp { min_rto: MinRto::OfSum(0), ..Tcp::NS3 };
        let mut estimator = RttEstimator::new(&tcp);
        assert_eq!(estimator.rto_ns(), tcp.initial_rto_ns);
        estimator.on_sample(100 * MS);
        assert_eq!((estimator.srtt_ns(), estimator.rto_ns()), (100 * MS, 300 * MS));
        estimator.on_sample(180 * MS);
        // RTTVAR = 3/4 x 50 + 1/4 x 80 = 57.5 ms; SRTT = 7/8 x 100 + 1/8 x 180 = 110 ms.
        assert_eq!((estimator.srtt_ns(), estimator.rto_ns()), (110 * MS, 340 * MS));
    }

    #[test]
    fn minimum_bounds_rto_or_its_variation() {
        for (tcp, rto_ms) in [(Tcp::NS3, 1000), (Tcp::LINUX, 220)] {
            let mut estimator = RttEstimator::new(&tcp);
            for _ in 0..100 {
                estimator.on_sample(20 * MS);
            }
            assert_eq!(estimator.rto_ns(), rto_ms * MS);
        }
    }

    #[test]
    fn timeouts_double_up_to_minute_until_next_sample() {
        let mut estimator = RttEstimator::new(&Tcp::NS3);
        estimator.on_sample(20 * MS);
        estimator.back_off();
        assert_eq!(estimator.rto_ns(), 2000 * MS);
        for _ in 0..10 {
            estimator.back_off();
        }
        assert_eq!(estimator.rto_ns(), 60_000 * MS);
        estimator.reset_backoff();
        assert_eq!(estimator.rto_ns(), 1000 * MS);
    }
}
