//! The fields of a connection's `TCP_INFO` that a trial needs (`struct tcp_info` of
//! include/uapi/linux/tcp.h).

use std::io;
use std::ops::AddAssign;
use std::os::fd::AsRawFd;

/// Counters of one or several connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TcpInfo {
    /// Bytes acknowledged.
    pub bytes_acked: u64,
    /// Segments received; at a sender these are acknowledgements.
    pub segments_in: u64,
    /// Segments with data sent.
    pub data_segments_out: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
}

/// Larger than the kernel's structure (248 bytes in 6.18); the kernel returns the written length.
const ROOM: usize = 512;
/// Offset of `tcpi_total_retrans` in the kernel's `tcp_info` (bytes; include/uapi/linux/tcp.h).
const RETRANSMITTED: usize = 100;
/// Offset of `tcpi_bytes_acked` (bytes).
const BYTES_ACKED: usize = 120;
/// Offset of `tcpi_segs_in` (bytes).
const SEGMENTS_IN: usize = 140;
/// Offset of `tcpi_data_segs_out` (bytes).
const DATA_SEGMENTS_OUT: usize = 156;

impl TcpInfo {
    /// The present counters of this connection.
    pub fn of(socket: &impl AsRawFd) -> io::Result<Self> {
        let mut bytes = [0_u8; ROOM];
        let mut len = ROOM as u32;
        // SAFETY: the kernel writes at most `len` bytes.
        let status = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &mut len,
            )
        };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self::parse(&bytes))
    }

    /// The sum over `sockets`.
    pub fn sum<S: AsRawFd>(sockets: &[S]) -> io::Result<Self> {
        let mut sum = Self::default();
        for socket in sockets {
            sum += Self::of(socket)?;
        }
        Ok(sum)
    }

    /// The increase since `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            bytes_acked: self.bytes_acked.saturating_sub(earlier.bytes_acked),
            segments_in: self.segments_in.saturating_sub(earlier.segments_in),
            data_segments_out: self.data_segments_out.saturating_sub(earlier.data_segments_out),
            retransmitted: self.retransmitted.saturating_sub(earlier.retransmitted),
        }
    }

    fn parse(bytes: &[u8; ROOM]) -> Self {
        let half = |at: usize| {
            u64::from(u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes")))
        };
        let acked = bytes[BYTES_ACKED..BYTES_ACKED + 8].try_into().expect("eight bytes");
        Self {
            bytes_acked: u64::from_ne_bytes(acked),
            segments_in: half(SEGMENTS_IN),
            data_segments_out: half(DATA_SEGMENTS_OUT),
            retransmitted: half(RETRANSMITTED),
        }
    }
}

impl AddAssign for TcpInfo {
    fn add_assign(&mut self, other: Self) {
        self.bytes_acked += other.bytes_acked;
        self.segments_in += other.segments_in;
        self.data_segments_out += other.data_segments_out;
        self.retransmitted += other.retransmitted;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_kernel_counts_what_was_sent_and_acknowledged() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let before = TcpInfo::of(&sender).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        for _ in 0..10 {
            sender.write_all(&[7; 1000]).unwrap();
            receiver.read_exact(&mut [0; 1000]).unwrap();
        }
        let mut seen = TcpInfo::default();
        while seen.bytes_acked < 10_000 && Instant::now() < deadline {
            seen = TcpInfo::of(&sender).unwrap().since(before);
        }
        assert_eq!((seen.bytes_acked, seen.retransmitted), (10_000, 0));
        assert!((1..=10).contains(&seen.data_segments_out), "{seen:?}");
        assert!((1..=seen.data_segments_out + 1).contains(&seen.segments_in), "{seen:?}");
        let both = TcpInfo::sum(&[sender, receiver]).unwrap().since(before);
        assert_eq!(both.bytes_acked, 10_000, "the receiver has sent nothing");
    }
}
