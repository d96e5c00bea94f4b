//! Packets on a link, one by one.

/// Outcome of a packet on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u16)]
pub enum Fate {
    /// The packet reached the far end.
    #[default]
    Delivered = 0,
    /// The queue dropped it.
    QueueDrop = 1,
    /// The packet was lost on purpose.
    Lost = 2,
    /// The packet was still on the link at the end of the run.
    Inside = 3,
    /// The emulator could not send it: none in a valid run, and never in a simulator.
    EmulatorDrop = 4,
}

impl Fate {
    /// All outcomes, each at the place of its number.
    const ALL: [Self; 5] =
        [Self::Delivered, Self::QueueDrop, Self::Lost, Self::Inside, Self::EmulatorDrop];
}

/// A packet log holds a number that is no [`Fate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fate {0} in a packet log: allowed is 0 to 4")]
pub struct UnknownFate(pub u64);

/// One packet on a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketRecord {
    /// Arrival at the queue.
    pub arrived_ns: u64,
    /// When its last byte left the server, before the delay line; 0: it never did.
    pub departed_ns: u64,
    /// When it was released to the far end; 0: it never was.
    pub released_ns: u64,
    /// Identity of the packet: on the testbed [`SampleBlock::identity`](crate::bundle::SampleBlock::identity) of version 2. It
    /// is the same on every link, and hardly any other packet's.
    pub identity: u64,
    /// Bytes of the frame.
    pub bytes: u32,
    /// Place of its pair of sites.
    pub pair: u16,
    /// Outcome of the packet.
    pub fate: Fate,
    /// The queue marked it congestion experienced.
    pub marked: bool,
    /// Packets in the queue after its arrival, without the one being sent.
    pub queue_packets: u32,
}

impl PacketRecord {
    /// Bytes of a record in a file: six little-endian words of 64 bits.
    pub const BYTES: usize = 48;

    /// As written in a file. The fifth word holds the bytes of the frame (bits 0 to 31), the pair (32 to
    /// 47), the fate (48 to 62) and the mark (63).
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let fate = (self.fate as u64) << 48 | u64::from(self.marked) << 63;
        let words = [
            self.arrived_ns,
            self.departed_ns,
            self.released_ns,
            self.identity,
            u64::from(self.bytes) | u64::from(self.pair) << 32 | fate,
            self.queue_packets.into(),
        ];
        let mut bytes = [0; Self::BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads the bytes of [`PacketRecord::to_bytes`].
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, UnknownFate> {
        let (words, _) = bytes.as_chunks::<8>();
        let [arrived_ns, departed_ns, released_ns, identity, packed, queue] =
            core::array::from_fn(|index| u64::from_le_bytes(words[index]));
        let fate = packed >> 48 & 0x7fff;
        Ok(Self {
            arrived_ns,
            departed_ns,
            released_ns,
            identity,
            bytes: packed as u32,
            pair: (packed >> 32) as u16,
            fate: *Fate::ALL.get(fate as usize).ok_or(UnknownFate(fate))?,
            marked: packed >> 63 == 1,
            queue_packets: queue as u32,
        })
    }

    /// This record with times that count from `start_ns`; a time of 0 (never) stays 0, and no other time
    /// becomes 0.
    pub fn since(self, start_ns: u64) -> Self {
        let since = |at_ns: u64| match at_ns {
            0 => 0,
            at_ns => at_ns.saturating_sub(start_ns).max(1),
        };
        Self {
            arrived_ns: self.arrived_ns.saturating_sub(start_ns),
            departed_ns: since(self.departed_ns),
            released_ns: since(self.released_ns),
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> PacketRecord {
        PacketRecord {
            arrived_ns: 1_100,
            departed_ns: 1_300,
            released_ns: 1_400,
            identity: u64::MAX,
            bytes: 1514,
            pair: 7,
            fate: Fate::QueueDrop,
            marked: true,
            queue_packets: 8,
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let of_fate = |fate| PacketRecord { fate, marked: fate == Fate::Lost, ..record() };
        for record in Fate::ALL.map(of_fate) {
            assert_eq!(PacketRecord::from_bytes(&record.to_bytes()), Ok(record));
        }
        let mut bytes = record().to_bytes();
        bytes[38] = 5;
        assert_eq!(PacketRecord::from_bytes(&bytes), Err(UnknownFate(5)));
    }

    #[test]
    fn times_count_from_start_and_missing_stay_missing() {
        let since = record().since(1_000);
        assert_eq!([since.arrived_ns, since.departed_ns, since.released_ns], [100, 300, 400]);
        let lost = PacketRecord { departed_ns: 0, released_ns: 0, ..record() }.since(1_300);
        assert_eq!([lost.arrived_ns, lost.departed_ns, lost.released_ns], [0, 0, 0]);
        assert_eq!(record().since(1_300).departed_ns, 1, "it did depart");
    }
}
