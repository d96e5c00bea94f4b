//! Interface of the samplers that count and sample the packets of bundles for a receivebox. One is a BPF
//! program in the kernel, the other is this process with a packet socket ([`packets`](super::packets)).

use std::collections::BTreeSet;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use forebay_core::bundle::{BlockVersions, BundleId, EpochSize};
use forebay_ebpf::{Boundary, BundleCounters, MessageEnd, SamplerBundle};

use crate::service::privileges::seccomp::Task;

/// Counts and samples the packets that come in at one device.
pub(super) trait Sampling: Send {
    /// Switches to a device that has replaced a deleted one: bundles and counters stay. Needs only the rights
    /// of [`Sampling::task`].
    fn attach_anew(&mut self, device: &str, ifindex: u32) -> Result<(), Box<dyn Error>>;

    /// Stops watching the bundles `gone`, and adds or changes the bundles of `set`, all at once.
    ///
    /// # Errors
    ///
    /// The bundles cannot be watched together; nothing has changed.
    fn change(
        &mut self,
        gone: &[BundleId],
        set: Vec<(BundleId, SamplerBundle)>,
    ) -> Result<(), forebay_ebpf::Error>;

    /// Changes a bundle's epoch size.
    fn set_epoch_size(&mut self, id: BundleId, size: EpochSize);

    /// Leaves packets from these addresses out of a bundle, and counts packets from all other addresses
    /// again.
    fn set_senders(
        &mut self,
        id: BundleId,
        addresses: &[IpAddr],
    ) -> Result<(), forebay_ebpf::Error>;

    /// As [`Sampling::set_senders`], of packets to these addresses.
    fn set_left_out(
        &mut self,
        id: BundleId,
        addresses: &[IpAddr],
    ) -> Result<(), forebay_ebpf::Error>;

    /// Leaves the boxes' messages out of all bundles from now on, by their destinations.
    fn set_messages(&mut self, ends: BTreeSet<MessageEnd>) -> Result<(), forebay_ebpf::Error>;

    /// Passes the waiting boundaries to `f`.
    fn consume(&mut self, f: &mut dyn FnMut(Boundary)) -> io::Result<()>;

    /// Readable when there may be something to consume.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// How long a new packet may wait, because more packets will have come by then.
    fn rest(&self) -> Duration {
        Duration::ZERO
    }

    /// Counters of a bundle; zero for a bundle that is not watched.
    fn counters(&self, id: BundleId) -> BundleCounters;

    /// Place of the sampler, for people.
    fn mode(&self) -> &'static str;

    /// The lost samples or packets, with their name.
    fn lost(&self) -> (&'static str, u64);

    /// The versions of the sampling block that it builds.
    fn versions(&self) -> BlockVersions;

    /// Confinement of the thread that consumes.
    fn task(&self) -> Task;
}

#[cfg(feature = "bpf")]
mod program {
    use forebay_core::bundle::BlockVersion;
    use forebay_ebpf::{Sampler, SamplerPlace, XdpMode};

    use super::*;

    impl Sampling for Sampler {
        fn attach_anew(&mut self, device: &str, ifindex: u32) -> Result<(), Box<dyn Error>> {
            Ok(Self::attach_anew(self, device, ifindex)?)
        }

        fn change(
            &mut self,
            gone: &[BundleId],
            set: Vec<(BundleId, SamplerBundle)>,
        ) -> Result<(), forebay_ebpf::Error> {
            Self::change(self, gone, set)
        }

        fn set_epoch_size(&mut self, id: BundleId, size: EpochSize) {
            Self::set_epoch_size(self, id, size);
        }

        fn set_senders(
            &mut self,
            id: BundleId,
            addresses: &[IpAddr],
        ) -> Result<(), forebay_ebpf::Error> {
            Self::set_senders(self, id, addresses)
        }

        fn set_left_out(
            &mut self,
            id: BundleId,
            addresses: &[IpAddr],
        ) -> Result<(), forebay_ebpf::Error> {
            Self::set_left_out(self, id, addresses)
        }

        fn set_messages(&mut self, ends: BTreeSet<MessageEnd>) -> Result<(), forebay_ebpf::Error> {
            Self::set_messages(self, &ends)
        }

        fn consume(&mut self, f: &mut dyn FnMut(Boundary)) -> io::Result<()> {
            Self::consume(self, f).map(drop).map_err(io::Error::other)
        }

        fn as_fd(&self) -> BorrowedFd<'_> {
            Self::as_fd(self)
        }

        fn counters(&self, id: BundleId) -> BundleCounters {
            // The status shows a map that cannot be read.
            Self::counters(self, id).ok().flatten().unwrap_or_default()
        }

        fn mode(&self) -> &'static str {
            match self.place() {
                Some(SamplerPlace::Xdp(XdpMode::Native)) => "xdp native",
                Some(SamplerPlace::Xdp(XdpMode::Generic)) => "xdp generic",
                Some(SamplerPlace::Tcx) => "tcx",
                None => "detached",
            }
        }

        fn lost(&self) -> (&'static str, u64) {
            ("boundaries_lost", self.lost_boundaries().unwrap_or_default())
        }

        fn versions(&self) -> BlockVersions {
            match self.place() {
                Some(SamplerPlace::Tcx) => BlockVersions::of(BlockVersion::V2),
                Some(SamplerPlace::Xdp(_)) | None => BlockVersions::ALL,
            }
        }

        fn task(&self) -> Task {
            Task::Packets
        }
    }
}
