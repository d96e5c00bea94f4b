//! Proportional rate reduction: how much may be sent on each acknowledgement of a recovery.
//!
//! ```text
//! entry            RecoverFS = SND.NXT − SND.UNA, prr_delivered = prr_out = 0
//! pipe > ssthresh  sndcnt = ceil(prr_delivered ssthresh / RecoverFS) − prr_out
//! else             sndcnt = min(ssthresh − pipe, max(prr_delivered − prr_out, DeliveredData) + MSS)
//!                  without the MSS where the acknowledgement is not safe
//! cwnd             pipe + sndcnt, and at least one segment until the first has been sent
//! end              cwnd = ssthresh
//! ```
//! Source: RFC 6937 section 3.1 with the slow-start reduction bound (PRR-SSRB), which is what ns-3.37
//! runs: there every acknowledgement is safe. In Linux and RFC 9937 one is that moves SND.UNA and tells
//! of no more losses, and RecoverFS is the window before the recovery (tcp_cwnd_reduction).
//!
//! All in bytes. Ranges: windows below 4 GiB.

/// The counters of one recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prr {
    ssthresh: u64,
    recover_flight: u64,
    delivered: u64,
    out: u64,
}

impl Prr {
    /// Begins a recovery towards `ssthresh` with `outstanding` bytes between SND.UNA and SND.NXT.
    pub fn enter(ssthresh: u64, outstanding: u64) -> Self {
        Self { ssthresh, recover_flight: outstanding.max(1), delivered: 0, out: 0 }
    }

    /// The window after an acknowledgement of `delivered` bytes that left `in_flight`.
    pub fn on_ack(&mut self, delivered: u64, in_flight: u64, mss: u64, is_safe: bool) -> u64 {
        self.delivered += delivered;
        let allowed = if in_flight > self.ssthresh {
            let target = (self.delivered * self.ssthresh).div_ceil(self.recover_flight);
            target.saturating_sub(self.out)
        } else {
            let limit = self.delivered.saturating_sub(self.out).max(delivered);
            (limit + if is_safe { mss } else { 0 }).min(self.ssthresh - in_flight)
        };
        in_flight + if self.out == 0 { allowed.max(mss) } else { allowed }
    }

    /// Notes what was sent, new or again.
    pub fn on_send(&mut self, bytes: u64) {
        self.out += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a recovery of `window` segments of which the first `lost` are lost, one acknowledgement
    /// for each that arrives; returns what is in flight after each, until the first repair comes.
    fn recover(window: u64, lost: u64, ssthresh: u64, is_safe: bool) -> Vec<u64> {
        let mut in_flight = window - lost;
        let mut prr = Prr::enter(ssthresh, window);
        let mut history = Vec::new();
        for _ in 0..window - lost {
            in_flight -= 1;
            let cwnd = prr.on_ack(1, in_flight, 1, is_safe);
            while in_flight < cwnd {
                in_flight += 1;
                prr.on_send(1);
            }
            history.push(in_flight);
        }
        history
    }

    #[test]
    fn one_loss_is_answered_by_every_second_acknowledgement() {
        // RFC 6937 section 4, first example: with ssthresh a half of the flight, PRR sends on alternate
        // acknowledgements and ends at ssthresh.
        let history = recover(20, 1, 10, true);
        assert_eq!(*history.last().unwrap(), 10);
        let falls = history.windows(2).filter(|pair| pair[1] < pair[0]).count();
        assert!((8..=10).contains(&falls), "{history:?}");
    }

    #[test]
    fn after_heavy_loss_each_acknowledgement_sends_one_more_than_it_delivers() {
        // RFC 6937 section 4, second example: below ssthresh the bound lets the flight grow by one
        // segment an acknowledgement, up to ssthresh and never beyond.
        let history = recover(20, 15, 10, true);
        assert_eq!(history, [6, 7, 8, 9, 10]);
        assert!(recover(20, 11, 10, true).iter().all(|in_flight| *in_flight <= 10));
    }

    #[test]
    fn an_acknowledgement_that_is_not_safe_sends_what_it_delivers() {
        assert_eq!(recover(20, 15, 10, false), [5; 5]);
    }

    #[test]
    fn the_first_acknowledgement_always_lets_a_segment_out() {
        let mut prr = Prr::enter(10, 20);
        assert_eq!(prr.on_ack(0, 19, 1, true), 20);
        prr.on_send(1);
        assert_eq!(prr.on_ack(0, 20, 1, true), 20);
    }
}
