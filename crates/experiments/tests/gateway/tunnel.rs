//! A tunnel from gateway to gateway whose device has no Ethernet header, with the boxes at it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::thread;

use forebay_skips::{Need, skip_without};
use nix::libc;

use crate::alone;
use crate::course::{self, Ends};
use crate::machine::ip;
use crate::vpc::{Vpc, gateway_at};

/// Networks behind the tunnel at each site: the host, but not the gateway, where the tunnel ends.
pub const BEHIND: [&str; 2] = ["10.1.1.8/29", "10.1.2.8/29"];

/// Address of a gateway in the tunnel.
pub fn inner(site: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, site as u8 + 1)
}

/// Gives the tunnel's device at both gateways an address and the route to the other site.
pub fn join(vpc: &Vpc, device: &str, mtu: u32) {
    for (own, other) in [(0, 1), (1, 0)] {
        let lines = format!(
            "address add {}/24 dev {device}\n\
             link set dev {device} mtu {mtu}\n\
             link set dev {device} up\n\
             route add {} dev {device}\n",
            inner(own),
            BEHIND[other],
        );
        ip(&vpc.sites[own].gateway, &lines);
    }
}

/// Boxes at both ends of the tunnel; the way around it is the gateway's NIC.
pub fn ends<'a>(vpc: &'a Vpc, device: &'static str) -> Ends<'a> {
    let [near, far] = &vpc.sites;
    Ends {
        sendbox: &near.gateway,
        receivebox: &far.gateway,
        hosts: [&near.host, &far.host],
        wan: [device; 2],
        listen: [inner(0), inner(1)],
        networks: BEHIND.map(String::from),
        more: "datapath = \"kernel\"\n".into(),
        detour: [
            format!("route replace {} via 10.0.0.1 dev eth0 onlink\n", BEHIND[1]),
            format!("route replace {} dev {device}\n", BEHIND[1]),
        ],
    }
}

#[test]
#[ignore = "half a minute of real traffic: make test-gateway"]
fn gre_bundle_is_measured() {
    if skip_without(Need::Gre) {
        return;
    }
    let _alone = alone();
    let vpc = Vpc::build([true; 2]);
    for (own, other) in [(0, 1), (1, 0)] {
        let (local, remote) = (gateway_at(own), gateway_at(other));
        let line = format!("link add gre1 type gre local {local} remote {remote}\n");
        ip(&vpc.sites[own].gateway, &line);
    }
    join(&vpc, "gre1", 1476);
    course::short("GRE", &ends(&vpc, "gre1")).judge(&vpc.link.finish());
}

#[test]
#[ignore = "half a minute of real traffic: make test-gateway"]
fn tun_bundle_is_measured() {
    if skip_without(Need::Tun) {
        return;
    }
    let _alone = alone();
    let vpc = Vpc::build([true; 2]);
    for (own, other) in [(0, 1), (1, 0)] {
        relay(&vpc, own, other);
    }
    join(&vpc, "tun0", 1472);
    course::short("tun", &ends(&vpc, "tun0")).judge(&vpc.link.finish());
}

/// A program between `tun0` and a UDP socket, each packet in a datagram, for as long as the test takes.
fn relay(vpc: &Vpc, own: usize, other: usize) {
    /// Port of the datagrams that carry the packets.
    const PORT: u16 = 5000;
    let open = || {
        let device = OpenOptions::new().read(true).write(true).open("/dev/net/tun")?;
        // SAFETY: plain numbers, for which zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(b"tun0") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI) as i16;
        // SAFETY: a structure of the kernel's layout, which outlives the call.
        let status = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
        if status != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let socket = UdpSocket::bind((gateway_at(own), PORT))?;
        socket.connect((gateway_at(other), PORT))?;
        Ok((device, socket))
    };
    let (device, socket) = vpc.sites[own].gateway.within(open).unwrap();
    let (mut out, back) = (device.try_clone().unwrap(), socket.try_clone().unwrap());
    thread::spawn(move || carry_out(device, &socket));
    thread::spawn(move || {
        let mut packet = [0; 2048];
        loop {
            // Until the other end is open, the kernel refuses packets to it.
            if let Ok(bytes) = back.recv(&mut packet) {
                let _ = out.write(&packet[..bytes]);
            }
        }
    });
}

fn carry_out(mut device: File, socket: &UdpSocket) {
    let mut packet = [0; 2048];
    loop {
        // Reads fail while the device is down.
        if let Ok(bytes) = device.read(&mut packet) {
            let _ = socket.send(&packet[..bytes]);
        }
    }
}
