//! Offloads of network devices, read and set through ioctl(2) as ethtool does.
//!
//! A box handles one frame per packet and sends it byte for byte as received. Segmentation and receive offloads would
//! give it several packets in one. With transmit checksum offload, a veth passes packets on whose checksum no hardware
//! ever completes. VLAN offloads hide a tag, so the frame would go out without it. Offloads matter on the box's own
//! ports and on the veth devices that feed them. A physical link delivers exactly the frames of its wire.
//!
//! A receivebox only watches incoming frames. Offloads at the egress of its device do not matter, and neither does
//! merging behind the XDP program.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

forebay_core::named! {
    /// An offload that must be off around a box.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Offload {
        /// TCP segmentation.
        Tso => "tso",
        /// Generic segmentation.
        Gso => "gso",
        /// Generic receive offload.
        Gro => "gro",
        /// Large receive offload.
        Lro => "lro",
        /// Transmit checksums.
        TxChecksum => "tx",
        /// Insertion of VLAN tags.
        TxVlan => "txvlan",
        /// Removal of VLAN tags.
        RxVlan => "rxvlan",
    }
}

impl Offload {
    /// Offloads that change incoming frames before an XDP program of the driver sees them.
    pub const WATCHED: [Self; 2] = [Self::Lro, Self::RxVlan];

    /// The ethtool commands that read and write the offload, and its bit in their value (include/uapi/linux/ethtool.h).
    const fn command(self) -> (u32, u32, u32) {
        match self {
            Self::Tso => (ETHTOOL_GTSO, ETHTOOL_STSO, 1),
            Self::Gso => (ETHTOOL_GGSO, ETHTOOL_SGSO, 1),
            Self::Gro => (ETHTOOL_GGRO, ETHTOOL_SGRO, 1),
            Self::TxChecksum => (ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM, 1),
            Self::Lro => (ETHTOOL_GFLAGS, ETHTOOL_SFLAGS, ETH_FLAG_LRO),
            Self::TxVlan => (ETHTOOL_GFLAGS, ETHTOOL_SFLAGS, ETH_FLAG_TXVLAN),
            Self::RxVlan => (ETHTOOL_GFLAGS, ETHTOOL_SFLAGS, ETH_FLAG_RXVLAN),
        }
    }
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a device cannot carry a box's packets.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// Some offloads are on.
    #[error(
        "{device} merges packets or leaves work to the hardware: run `ethtool -K {device}{}`",
        arguments(active)
    )]
    Active {
        /// Device name.
        device: String,
        /// The offloads that are on.
        active: Vec<Offload>,
    },
    /// GRO is on, and the kernel runs the XDP program behind it.
    #[error(
        "{device} merges packets before a box sees them, since its driver runs no XDP program \
         (generic mode): run `ethtool -K {device} gro off`"
    )]
    Merged {
        /// Device name.
        device: String,
    },
    /// A device below merges packets, and the kernel runs the XDP program behind it.
    #[error(
        "{lower} merges packets before they reach {device}, where the box sees them (generic \
         mode): run `ethtool -K {lower} gro off lro off`"
    )]
    MergedBelow {
        /// Device name.
        device: String,
        /// Name of the device below.
        lower: String,
    },
    /// The system refused a request about the device.
    #[error("offload {offload} of {device}: {source}")]
    Os {
        /// Device name.
        device: String,
        /// The offload in question.
        offload: Offload,
        /// The kernel's error.
        source: io::Error,
    },
}

impl OffloadError {
    /// The finding, and the command that fixes it, if there is one.
    pub fn found_and_fix(&self) -> (String, String) {
        match self {
            Self::Active { device, active } => {
                let list: String = active.iter().map(|offload| format!(" {offload}")).collect();
                (
                    format!("{device} has on:{list}"),
                    format!("ethtool -K {device}{}", arguments(active)),
                )
            }
            Self::Merged { device } => {
                let found = format!("{device} merges packets, and its driver runs no XDP program");
                (found, format!("ethtool -K {device} gro off"))
            }
            Self::MergedBelow { device, lower } => (
                format!("{lower} merges packets before they reach {device}"),
                format!("ethtool -K {lower} gro off lro off"),
            ),
            Self::Os { .. } => (self.to_string(), "look at `ethtool -k`".into()),
        }
    }
}

fn arguments(active: &[Offload]) -> String {
    active.iter().map(|offload| format!(" {offload} off")).collect()
}

/// The offloads of [`Offload::ALL`] that are on. An offload that a device does not know counts as off.
pub fn active(device: &str) -> Result<Vec<Offload>, OffloadError> {
    active_of(device, &Offload::ALL)
}

fn active_of(device: &str, offloads: &[Offload]) -> Result<Vec<Offload>, OffloadError> {
    let mut active = Vec::new();
    for offload in offloads {
        if is_on(device, *offload)? {
            active.push(*offload);
        }
    }
    Ok(active)
}

/// Whether the offload is on. An offload that a device does not know counts as off.
pub fn is_on(device: &str, offload: Offload) -> Result<bool, OffloadError> {
    let (read, _, bit) = offload.command();
    match ethtool_value(device, read, 0) {
        Ok(value) => Ok(value & bit != 0),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
        Err(source) => Err(os_error(device, offload)(source)),
    }
}

/// Refuses a device, of the current network namespace, with any offload of [`Offload::ALL`] on.
pub fn check(device: &str) -> Result<(), OffloadError> {
    check_of(device, &Offload::ALL)
}

/// Refuses a device, of the current network namespace, with any offload of [`Offload::WATCHED`] on.
pub fn check_watched(device: &str) -> Result<(), OffloadError> {
    check_of(device, &Offload::WATCHED)
}

/// Refuses a device, of the current network namespace, that merges packets without a record of the original ones.
pub fn check_by_socket(device: &str) -> Result<(), OffloadError> {
    check_of(device, &[Offload::Lro])
}

fn check_of(device: &str, offloads: &[Offload]) -> Result<(), OffloadError> {
    let active = active_of(device, offloads)?;
    if active.is_empty() {
        return Ok(());
    }
    Err(OffloadError::Active { device: device.to_string(), active })
}

/// Switches all of [`Offload::ALL`] off. An offload that cannot be switched off is an error.
pub fn disable_all(device: &str) -> Result<(), OffloadError> {
    for offload in active(device)? {
        disable(device, offload)?;
    }
    check(device)
}

/// Switches an offload off, as far as the device obeys.
pub fn disable(device: &str, offload: Offload) -> Result<(), OffloadError> {
    switch(device, offload, false)
}

/// Switches an offload on, as far as the device obeys.
pub fn enable(device: &str, offload: Offload) -> Result<(), OffloadError> {
    switch(device, offload, true)
}

fn switch(device: &str, offload: Offload, on: bool) -> Result<(), OffloadError> {
    let (read, write, bit) = offload.command();
    // The flags share one word: keep the other bits.
    let value = ethtool_value(device, read, 0).map_err(os_error(device, offload))?;
    // A mask of 1 means a plain switch, written as 0 or 1.
    let value = if on { value | bit } else { value & !bit };
    ethtool_value(device, write, value).map_err(os_error(device, offload))?;
    Ok(())
}

/// Name of the device's driver, such as `veth`; empty if the device does not report it.
pub(crate) fn driver(device: &str) -> io::Result<String> {
    // struct ethtool_drvinfo: command, then the driver's name in 32 bytes and more of 196 in all.
    let mut information = [0_u32; 49];
    information[0] = ETHTOOL_GDRVINFO;
    match ethtool(device, &mut information) {
        Ok(()) => {
            let name = information[1..9].iter().flat_map(|word| word.to_ne_bytes());
            let name: Vec<u8> = name.take_while(|byte| *byte != 0).collect();
            Ok(String::from_utf8_lossy(&name).into_owned())
        }
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Receive queues in use; 1 if the device does not report them.
pub(crate) fn receive_queues(device: &str) -> io::Result<u32> {
    // struct ethtool_channels: command, four maxima, then rx, tx, other and combined counts.
    let mut channels = [0_u32; 9];
    channels[0] = ETHTOOL_GCHANNELS;
    match ethtool(device, &mut channels) {
        Ok(()) => Ok((channels[5] + channels[8]).max(1)),
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(1),
        Err(error) => Err(error),
    }
}

/// The device's MTU, in bytes.
pub fn mtu(device: &str) -> io::Result<u32> {
    let mut request = request(device)?;
    ioctl(libc::SIOCGIFMTU as libc::Ioctl, &mut request)?;
    // SAFETY: SIOCGIFMTU has filled this member.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.max(0) as u32)
}

/// The device's hardware type, `ARPHRD_*` of include/uapi/linux/if_arp.h.
pub(crate) fn hardware_type(device: &str) -> io::Result<u16> {
    let mut request = request(device)?;
    ioctl(libc::SIOCGIFHWADDR as libc::Ioctl, &mut request)?;
    // SAFETY: SIOCGIFHWADDR has filled this member.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr }.sa_family)
}

/// Command: read the name of the driver (include/uapi/linux/ethtool.h, as the following).
const ETHTOOL_GDRVINFO: u32 = 0x03;
/// Command: read the transmit checksum offload.
const ETHTOOL_GTXCSUM: u32 = 0x16;
/// Command: set the transmit checksum offload.
const ETHTOOL_STXCSUM: u32 = 0x17;
/// Command: read TSO.
const ETHTOOL_GTSO: u32 = 0x1e;
/// Command: set TSO.
const ETHTOOL_STSO: u32 = 0x1f;
/// Command: read GSO.
const ETHTOOL_GGSO: u32 = 0x23;
/// Command: set GSO.
const ETHTOOL_SGSO: u32 = 0x24;
/// Command: read the flags `ETH_FLAG_*`.
const ETHTOOL_GFLAGS: u32 = 0x25;
/// Command: set the flags `ETH_FLAG_*`.
const ETHTOOL_SFLAGS: u32 = 0x26;
/// Command: read GRO.
const ETHTOOL_GGRO: u32 = 0x2b;
/// Command: set GRO.
const ETHTOOL_SGRO: u32 = 0x2c;
/// Command: read the numbers of queues.
const ETHTOOL_GCHANNELS: u32 = 0x3c;
/// Flag: the device inserts VLAN tags.
const ETH_FLAG_TXVLAN: u32 = 1 << 7;
/// Flag: the device removes VLAN tags.
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
/// Flag: the device merges received packets (LRO).
const ETH_FLAG_LRO: u32 = 1 << 15;
/// Request of ioctl(2) for all commands of ethtool (include/uapi/linux/sockios.h).
const SIOCETHTOOL: libc::Ioctl = 0x8946;

fn os_error(device: &str, offload: Offload) -> impl FnOnce(io::Error) -> OffloadError {
    move |source| OffloadError::Os { device: device.to_string(), offload, source }
}

/// `struct ethtool_value`: sends a command with `data`, and returns the data of the answer.
fn ethtool_value(device: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut value = [command, data];
    ethtool(device, &mut value)?;
    Ok(value[1])
}

/// SIOCETHTOOL with a structure of 32-bit words; the first word is the command.
fn ethtool(device: &str, words: &mut [u32]) -> io::Result<()> {
    let mut request = request(device)?;
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    ioctl(SIOCETHTOOL, &mut request)
}

fn request(device: &str) -> io::Result<libc::ifreq> {
    // SAFETY: plain numbers and null pointers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn ioctl(command: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: plain system call; the result is checked.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the request is a whole ifreq, and the memory that it points to outlives the call and is as large as the
    // command requires.
    if unsafe { libc::ioctl(socket.as_raw_fd(), command, request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::tests::{on_a_veth_pair, run};

    #[test]
    fn fresh_veth_is_refused_with_its_fix() {
        on_a_veth_pair(|| {
            let error = check("left").unwrap_err().to_string();
            let (_, line) = error.split_once('`').unwrap();
            let line = line.trim_end_matches('`');
            assert!(line.starts_with("ethtool -K left tso off gso off"), "{line}");
            assert!(line.contains(" tx off"), "{line}");
            run(line);
            check("left").unwrap();
            assert!(check("right").is_err(), "the other end is another device");
        });
    }

    #[test]
    fn example_of_the_package_switches_every_offload_off() {
        let example = include_str!("../../../packaging/etc/10-forebay.link");
        let key = |offload: Offload| match offload {
            Offload::Tso => "TCPSegmentationOffload",
            Offload::Gso => "GenericSegmentationOffload",
            Offload::Gro => "GenericReceiveOffload",
            Offload::Lro => "LargeReceiveOffload",
            Offload::TxChecksum => "TransmitChecksumOffload",
            Offload::TxVlan => "TransmitVLANCTAGHardwareAcceleration",
            Offload::RxVlan => "ReceiveVLANCTAGHardwareAcceleration",
        };
        for offload in Offload::ALL {
            assert!(example.contains(&format!("\n{}=no\n", key(offload))), "{offload}");
        }
        let of_receivebox: Vec<&str> = example.trim_end().lines().rev().take(2).collect();
        assert!(
            Offload::WATCHED.iter().all(|it| of_receivebox.contains(&&*format!("{}=no", key(*it))))
        );
    }

    #[test]
    fn disabling_everything_satisfies_the_check() {
        on_a_veth_pair(|| {
            run("ethtool -K left gro on");
            disable_all("left").unwrap();
            check("left").unwrap();
            disable_all("left").unwrap();
            assert!(matches!(check("nowhere"), Err(OffloadError::Os { .. })));
        });
    }

    #[test]
    fn a_device_tells_its_driver() {
        on_a_veth_pair(|| {
            run("ip tuntap add dev tap0 mode tap");
            assert_eq!(driver("left").unwrap(), "veth");
            assert_eq!(driver("tap0").unwrap(), "tun");
            assert!(driver("nowhere").is_err());
        });
    }

    #[test]
    fn a_veth_tells_its_receive_queues() {
        on_a_veth_pair(|| {
            assert_eq!(receive_queues("left").unwrap(), 1);
            run("ip link add many numrxqueues 3 numtxqueues 3 type veth peer name few");
            assert_eq!(receive_queues("many").unwrap(), 3);
        });
    }
}
