//! The truth log: packet records in order, and the first bytes of packets. A separate thread writes each
//! file, so that the packet path never waits for the disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use forebay_core::record::PacketRecord;

/// Bytes kept from the start of each frame if headers are requested: enough for TCP with its options.
pub const HEADER_BYTES: usize = 128;

/// Records per batch: 48 KiB, about 0.1 s of a 96 Mbit/s link.
const BATCH_RECORDS: usize = 1024;

/// Most batches that wait for the disk: 48 MiB, about 2 minutes of such a link.
const QUEUE_BATCHES: usize = 1024;

/// The log of link `name` in a run that writes to `dir`: [`PacketRecord`]s in order of arrival.
pub fn packets_file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.packets"))
}

/// The first bytes of the frames of link `name` in a run that writes to `dir`: [`HEADER_BYTES`] of each,
/// padded with zeros, in the order of [`packets_file`].
pub fn headers_file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.headers"))
}

/// Reads a log. Fails if it cannot be read, ends within a record or contains an unknown fate.
pub fn read_packets(path: &Path) -> io::Result<Vec<PacketRecord>> {
    let invalid = |error: String| {
        let message = format!("{}: {error}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let bytes = std::fs::read(path)?;
    let (records, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        return Err(invalid("the file ends in the middle of a record".into()));
    }
    let packets = records.iter().map(PacketRecord::from_bytes);
    packets.collect::<Result<_, _>>().map_err(|error| invalid(error.to_string()))
}

/// The packet path's end of a log with records of `BYTES` bytes.
pub(super) struct Log<const BYTES: usize> {
    batch: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    empty: Receiver<Vec<u8>>,
    lost: u64,
    writer: JoinHandle<io::Result<()>>,
}

impl<const BYTES: usize> Log<BYTES> {
    /// Creates the file and starts the writer.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = File::create(path)?;
        let (full, batches) = sync_channel::<Vec<u8>>(QUEUE_BATCHES);
        let (give_back, empty) = sync_channel(QUEUE_BATCHES);
        let writer = std::thread::Builder::new().name("truth log".into()).spawn(move || {
            for mut batch in batches {
                file.write_all(&batch)?;
                batch.clear();
                // At the end, the packet path no longer takes buffers back.
                let _ = give_back.try_send(batch);
            }
            Ok(())
        })?;
        Ok(Self { batch: new_batch::<BYTES>(), full, empty, lost: 0, writer })
    }

    /// Appends a record.
    pub fn push(&mut self, record: &[u8; BYTES]) {
        self.batch.extend_from_slice(record);
        if self.batch.len() >= BATCH_RECORDS * BYTES {
            let next = self.empty.try_recv().unwrap_or_else(|_| new_batch::<BYTES>());
            let batch = std::mem::replace(&mut self.batch, next);
            // Full: the disk is too slow. Disconnected: the disk failed, and `finish` returns its error.
            if self.full.try_send(batch).is_err() {
                self.lost += BATCH_RECORDS as u64;
            }
        }
    }

    /// Writes the remaining records; returns the number of missing ones.
    pub fn finish(mut self) -> io::Result<u64> {
        let records = (self.batch.len() / BYTES) as u64;
        if self.full.send(self.batch).is_err() {
            self.lost += records;
        }
        drop(self.full);
        self.writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(self.lost)
    }
}

fn new_batch<const BYTES: usize>() -> Vec<u8> {
    Vec::with_capacity(BATCH_RECORDS * BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("packets");
        let mut log = Log::create(&path).unwrap();
        let record = |n| PacketRecord { arrived_ns: n, ..PacketRecord::default() };
        let count = 3 * BATCH_RECORDS as u64 + 7;
        (0..count).for_each(|n| log.push(&record(n).to_bytes()));
        assert_eq!(log.finish().unwrap(), 0);
        let read = read_packets(&path).unwrap();
        assert!(read.iter().copied().eq((0..count).map(record)));
        std::fs::write(&path, [0; PacketRecord::BYTES + 1]).unwrap();
        let error = read_packets(&path).unwrap_err().to_string();
        assert!(error.ends_with("packets: the file ends in the middle of a record"), "{error}");
    }

    #[test]
    fn disk_failure_is_reported_at_end_without_blocking() {
        // Every write to this device fails with ENOSPC (full(4)).
        let mut log = Log::create(Path::new("/dev/full")).unwrap();
        for _ in 0..10 * BATCH_RECORDS {
            log.push(&PacketRecord::default().to_bytes());
        }
        assert_eq!(log.finish().unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    }
}
