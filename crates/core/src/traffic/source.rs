//! Traffic without requests.

use crate::random::{Stream, Streams};
use crate::spec::SpecError;
use crate::units::{ByteCount, Duration, Rate, format_duration};

/// The sending pattern of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// As much as the transport takes, up to `bytes` of payload; `None`: without end.
    Greedy {
        /// Payload of the flow.
        bytes: Option<ByteCount>,
    },
    /// Packets at equal distances.
    Cbr {
        /// Rate of packets.
        rate: Rate,
        /// Bytes of a packet, as `rate` counts them.
        packet: ByteCount,
    },
    /// Packets at the arrivals of a Poisson process.
    Poisson {
        /// Mean rate of packets.
        rate: Rate,
        /// Bytes of a packet, as `rate` counts them.
        packet: ByteCount,
    },
    /// Packets at equal distances during exponentially distributed on times, nothing between.
    OnOff {
        /// Rate of packets while on.
        rate: Rate,
        /// Bytes of a packet, as `rate` counts them.
        packet: ByteCount,
        /// Mean on time.
        on: Duration,
        /// Mean off time.
        off: Duration,
    },
}

/// When datagrams are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize, serde::Serialize))]
pub enum Timing {
    /// At equal distances.
    Even,
    /// At the arrivals of a Poisson process.
    Poisson,
    /// At equal distances in exponentially distributed on times, not at all between.
    OnOff {
        /// Mean on time.
        on: Duration,
        /// Mean off time.
        off: Duration,
    },
}

impl Timing {
    /// Packets of `packet` bytes at these times: at `rate`, or at `rate` in the on times.
    pub fn source(self, rate: Rate, packet: ByteCount) -> Source {
        match self {
            Self::Even => Source::Cbr { rate, packet },
            Self::Poisson => Source::Poisson { rate, packet },
            Self::OnOff { on, off } => Source::OnOff { rate, packet, on, off },
        }
    }
}

impl Source {
    /// Refuses a rate, packet or on time of zero.
    pub fn check(&self) -> Result<(), SpecError> {
        let (rate, packet, on) = match *self {
            Self::Greedy { .. } => return Ok(()),
            Self::Cbr { rate, packet } | Self::Poisson { rate, packet } => {
                (rate, packet, Duration::MAX)
            }
            Self::OnOff { rate, packet, on, .. } => (rate, packet, on),
        };
        if rate == Rate::ZERO {
            return Err(SpecError::new("rate", "0bit/s", "more than 0"));
        }
        if packet == ByteCount::ZERO {
            return Err(SpecError::new("packet", "0B", "at least 1B"));
        }
        if on.is_zero() {
            return Err(SpecError::new("on", &format_duration(on), "more than 0"));
        }
        Ok(())
    }

    /// When packets are sent, since the start of the flow; `None` for a source that does not decide
    /// that itself, or that [`Source::check`] refuses.
    pub fn send_times(&self, streams: &Streams) -> Option<SendTimes> {
        self.check().ok()?;
        if matches!(self, Self::Greedy { .. }) {
            return None;
        }
        let mut times = SendTimes {
            source: *self,
            stream: streams.stream("send_times"),
            carry: 0,
            next: Duration::ZERO,
            on_until: Duration::MAX,
        };
        match *self {
            // The first arrival of a Poisson process is as random as the rest.
            Self::Poisson { .. } => times.next = times.gap(),
            Self::OnOff { on, .. } => times.on_until = times.exponential(on),
            _ => {}
        }
        Some(times)
    }
}

/// The send times of a flow, in order and without end; see [`Source::send_times`].
#[derive(Clone, Debug)]
pub struct SendTimes {
    source: Source,
    stream: Stream,
    carry: u64,
    next: Duration,
    on_until: Duration,
}

impl SendTimes {
    fn exponential(&mut self, mean: Duration) -> Duration {
        let secs = mean.as_secs_f64() * self.stream.exponential();
        Duration::try_from_secs_f64(secs).unwrap_or(Duration::MAX)
    }

    fn gap(&mut self) -> Duration {
        match self.source {
            Source::Greedy { .. } => Duration::ZERO,
            Source::Cbr { rate, packet } | Source::OnOff { rate, packet, .. } => {
                packet.time_at_carrying(rate, &mut self.carry).unwrap_or(Duration::MAX)
            }
            Source::Poisson { rate, packet } => {
                let mean = packet.time_at(rate).unwrap_or(Duration::MAX);
                self.exponential(mean)
            }
        }
    }
}

impl Iterator for SendTimes {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = self.next;
        self.next = now.saturating_add(self.gap());
        if let Source::OnOff { on, off, .. } = self.source
            && self.next >= self.on_until
        {
            self.next = self.on_until.saturating_add(self.exponential(off));
            self.on_until = self.next.saturating_add(self.exponential(on));
        }
        Some(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_mbit_per_sec(12);
    const PACKET: ByteCount = ByteCount::new(1500);

    fn sent_in(source: Source, secs: u64) -> Vec<Duration> {
        let end = Duration::from_secs(secs);
        let times = source.send_times(&Streams::new(1)).unwrap();
        times.take_while(|at| *at < end).collect()
    }

    #[test]
    fn a_constant_rate_is_kept_exactly() {
        let times = sent_in(Source::Cbr { rate: RATE, packet: PACKET }, 10);
        assert_eq!(times.len(), 10_000);
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == Duration::from_millis(1)));
    }

    #[test]
    fn poisson_gaps_have_their_mean_and_spread() {
        let times = sent_in(Source::Poisson { rate: RATE, packet: PACKET }, 20);
        let gaps: Vec<f64> =
            times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e3).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let square = gaps.iter().map(|gap| gap * gap).sum::<f64>() / gaps.len() as f64;
        // Five standard errors over 20,000 gaps; the second moment of an exponential is 2.
        assert!((mean - 1.0).abs() < 0.036, "{mean}");
        assert!((square - 2.0).abs() < 0.16, "{square}");
    }

    #[test]
    fn on_and_off_times_divide_by_their_means() {
        let [on, off] = [50, 150].map(Duration::from_millis);
        let times = sent_in(Source::OnOff { rate: RATE, packet: PACKET, on, off }, 400);
        // A quarter of 400,000 packets; about 2,000 periods, so 5 standard errors are some 12 %.
        // Half a packet more than the rate is sent in each on time.
        assert!((88_000..114_000).contains(&times.len()), "{}", times.len());
        let pauses =
            times.windows(2).filter(|pair| pair[1] - pair[0] > Duration::from_millis(1)).count();
        assert!((1_700..2_300).contains(&pauses), "{pauses}");
    }

    #[test]
    fn sources_without_rate_packet_or_on_time_fail() {
        let nothing = Duration::ZERO;
        for (source, key) in [
            (Source::Cbr { rate: Rate::ZERO, packet: PACKET }, "rate"),
            (Source::Poisson { rate: RATE, packet: ByteCount::ZERO }, "packet"),
            (Source::OnOff { rate: RATE, packet: PACKET, on: nothing, off: nothing }, "on"),
        ] {
            assert_eq!(source.check().unwrap_err().key, key);
            assert!(source.send_times(&Streams::new(1)).is_none());
        }
        assert!(Source::Greedy { bytes: None }.send_times(&Streams::new(1)).is_none());
    }
}
