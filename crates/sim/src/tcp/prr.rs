//! Proportional rate reduction: how much to send on each acknowledgement of a recovery.
//!
//! ```text
//! entry            RecoverFS = SND.NXT − SND.UNA, prr_delivered = prr_out = 0
//! pipe > ssthresh  sndcnt = ceil(prr_delivered ssthresh / RecoverFS) − prr_out
//! else             sndcnt = min(ssthresh − pipe, limit)                          (PrrBound)
//! cwnd             pipe + sndcnt, and at least one segment until the first has been sent
//! end              cwnd = ssthresh
//! ```
//! Source: RFC 6937 section 3 and RFC 9937 section 6. The latter's RecoverFS excludes the bytes SACKed before
//! the entry. ns-3's departures are in [`PrrBound::Ns3`].
//!
//! All values are bytes. Ranges: windows below 4 GiB.

use super::stack::PrrBound;

/// Result of an acknowledgement in a recovery.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// Bytes newly acknowledged or SACKed.
    pub delivered: u64,
    /// The acknowledgement SACKed something new.
    pub has_sacked: bool,
    /// The acknowledgement moved SND.UNA.
    pub has_advanced: bool,
    /// The acknowledgement showed a loss.
    pub has_lost: bool,
    /// The acknowledgement covers a repair.
    pub covers_repair: bool,
}

/// The counters of one recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prr {
    bound: PrrBound,
    ssthresh: u64,
    recover_flight: u64,
    delivered: u64,
    out: u64,
}

impl Prr {
    /// Begins a recovery towards `ssthresh` from `flight`: the bytes between SND.UNA and SND.NXT, or in Linux
    /// the window.
    pub fn enter(bound: PrrBound, ssthresh: u64, flight: u64) -> Self {
        Self { bound, ssthresh, recover_flight: flight.max(1), delivered: 0, out: 0 }
    }

    /// The window after an acknowledgement that left `in_flight`; `None` leaves it as it is.
    pub fn on_ack(&mut self, told: Told, in_flight: u64, mss: u64) -> Option<u64> {
        match self.bound {
            PrrBound::Linux => (told.delivered > 0).then(|| self.window(told, in_flight, mss)),
            PrrBound::Ns3 => {
                let times = usize::from(told.has_sacked) + usize::from(told.has_advanced);
                (0..times).map(|_| self.window(told, in_flight, mss)).last()
            }
        }
    }

    fn window(&mut self, told: Told, in_flight: u64, mss: u64) -> u64 {
        self.delivered += told.delivered;
        let allowed = if in_flight > self.ssthresh {
            self.target().saturating_sub(self.out)
        } else {
            self.limit(told, mss).min(self.ssthresh - in_flight)
        };
        in_flight + if self.out == 0 { allowed.max(mss) } else { allowed }
    }

    fn target(&self) -> u64 {
        let product = self.delivered * self.ssthresh;
        let product = if self.bound == PrrBound::Ns3 { product as u32 as u64 } else { product };
        product.div_ceil(self.recover_flight)
    }

    fn limit(&self, told: Told, mss: u64) -> u64 {
        let owed = self.delivered.saturating_sub(self.out).max(told.delivered);
        match self.bound {
            PrrBound::Linux if told.has_advanced && !told.has_lost => owed + mss,
            PrrBound::Linux => owed,
            PrrBound::Ns3 if told.covers_repair => self.owed_after_repair(told, mss),
            PrrBound::Ns3 => told.delivered,
        }
    }

    /// ns-3 takes an unsigned difference. If more was sent than delivered, it is a very large number; the
    /// additional segment may or may not wrap it back above zero.
    fn owed_after_repair(&self, told: Told, mss: u64) -> u64 {
        match self.delivered.checked_sub(self.out) {
            Some(owed) => owed.max(told.delivered) + mss,
            None => (self.delivered + mss).saturating_sub(self.out),
        }
    }

    /// Counts sent bytes, new or retransmitted.
    pub fn on_send(&mut self, bytes: u64) {
        self.out += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a recovery of `window` segments after the loss of the first `lost`, with one acknowledgement for
    /// each arrival. Returns the segments in flight after each, until the first repair arrives.
    fn recover(bound: PrrBound, window: u64, lost: u64, ssthresh: u64) -> Vec<u64> {
        let mut in_flight = window - lost;
        let mut prr = Prr::enter(bound, ssthresh, window);
        let mut history = Vec::new();
        for _ in 0..window - lost {
            in_flight -= 1;
            let told = Told { delivered: 1, has_sacked: true, ..Told::default() };
            let cwnd = prr.on_ack(told, in_flight, 1).unwrap();
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
        // RFC 6937 section 3.1, first example: with ssthresh a half of the flight, PRR sends on alternate
        // acknowledgements and ends at ssthresh.
        for bound in [PrrBound::Linux, PrrBound::Ns3] {
            let history = recover(bound, 20, 1, 10);
            assert_eq!(*history.last().unwrap(), 10);
            let falls = history.windows(2).filter(|pair| pair[1] < pair[0]).count();
            assert!((8..=10).contains(&falls), "{history:?}");
        }
    }

    #[test]
    fn heavy_loss_flight_grows_only_on_advancing_acks() {
        // RFC 9937 section 6.2: SafeACK. 5 of 20 are left in flight, below ssthresh 10.
        for bound in [PrrBound::Linux, PrrBound::Ns3] {
            assert_eq!(recover(bound, 20, 15, 10), [5; 5]);
            let mut prr = Prr::enter(bound, 10, 20);
            let told = Told { delivered: 1, has_advanced: true, ..Told::default() };
            assert_eq!(prr.on_ack(Told { covers_repair: true, ..told }, 5, 1), Some(7));
            prr.on_send(2);
            let grows = if bound == PrrBound::Linux { 8 } else { 7 };
            assert_eq!(prr.on_ack(told, 6, 1), Some(grows));
        }
    }

    #[test]
    fn the_first_acknowledgement_always_lets_a_segment_out() {
        let mut prr = Prr::enter(PrrBound::Ns3, 10, 20);
        let nothing = Told { has_sacked: true, ..Told::default() };
        assert_eq!(prr.on_ack(nothing, 19, 1), Some(20));
        prr.on_send(1);
        assert_eq!(prr.on_ack(nothing, 20, 1), Some(20));
    }

    #[test]
    fn in_ns3_the_target_wraps_at_32_bits() {
        // Traced in ns-3.37: 124 segments outstanding, ssthresh 60, one delivered an acknowledgement:
        // the 34th still lets one out, from the 35th on (35 x 60 x 1448² > 2³²) none do.
        let mss = 1448;
        let mut prr = Prr::enter(PrrBound::Ns3, 60 * mss, 124 * mss);
        let told = Told { delivered: mss, has_sacked: true, ..Told::default() };
        let mut sent = Vec::new();
        for _ in 0..40 {
            let is_sent = prr.on_ack(told, 100 * mss, mss).unwrap() >= 101 * mss;
            if is_sent {
                prr.on_send(mss);
            }
            sent.push(is_sent);
        }
        assert_eq!(sent.iter().rposition(|is_sent| *is_sent), Some(33));
        let before = sent.iter().filter(|is_sent| **is_sent).count();
        assert!((16..=17).contains(&before), "{before}");
    }

    #[test]
    fn ns3_counts_sacking_and_advancing_ack_twice() {
        let told = Told { delivered: 10, has_sacked: true, has_advanced: true, ..Told::default() };
        for (bound, window) in [(PrrBound::Linux, 105), (PrrBound::Ns3, 110)] {
            assert_eq!(Prr::enter(bound, 50, 100).on_ack(told, 100, 1), Some(window));
        }
    }
}
