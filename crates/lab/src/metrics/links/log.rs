//! The log of a link's packets in a back end.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::PathBuf;

use forebay_core::record::PacketRecord;

use super::LinkTruth;

/// The log of the packets of a link.
#[derive(Clone, Debug)]
pub enum PacketLog {
    /// A file of records, with the start of the run on the same clock.
    File {
        /// The file.
        path: PathBuf,
        /// Start of the run.
        started_ns: u64,
    },
    /// In memory.
    Rows(Vec<PacketRecord>),
    /// Read during the run, for the metrics of the experiment's windows, and not kept.
    Read(Box<LinkTruth>),
}

impl PacketLog {
    /// Measurements from the packets, if they were read before.
    pub fn truth(&self) -> Option<&LinkTruth> {
        match self {
            Self::Read(truth) => Some(truth),
            Self::File { .. } | Self::Rows(_) => None,
        }
    }

    /// Calls `visit` with every packet, in order of arrival. Fails if they cannot be read.
    pub fn for_each(&self, mut visit: impl FnMut(&PacketRecord)) -> io::Result<()> {
        let (path, started_ns) = match self {
            Self::Rows(rows) => {
                rows.iter().for_each(visit);
                return Ok(());
            }
            Self::Read(_) => return Err(io::Error::other("packets that were not kept")),
            Self::File { path, started_ns } => (path, *started_ns),
        };
        let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut record = [0; PacketRecord::BYTES];
        loop {
            match reader.read_exact(&mut record) {
                Ok(()) => {
                    let packet = PacketRecord::from_bytes(&record);
                    let packet =
                        packet.map_err(|it| io::Error::new(io::ErrorKind::InvalidData, it))?;
                    visit(&packet.since(started_ns));
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_packets_have_times_since_start() {
        let written = PacketRecord { arrived_ns: 1_100, departed_ns: 1_300, ..<_>::default() };
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut bytes = written.to_bytes().to_vec();
        let read = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            let log = PacketLog::File { path: file.path().into(), started_ns: 1_000 };
            let mut packets = Vec::new();
            log.for_each(|packet| packets.push(*packet)).map(|()| packets)
        };
        assert_eq!(read(&bytes).unwrap(), [written.since(1_000)]);
        bytes[38] = 9;
        let error = read(&bytes).unwrap_err().to_string();
        assert_eq!(error, "fate 9 in a packet log: allowed is 0 to 4");
    }
}
