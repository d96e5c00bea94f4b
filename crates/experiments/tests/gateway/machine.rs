//! Virtual machines: namespaces with settings, and the tools that run in them.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use forebay_host::offload;
use forebay_testbed::namespace::Namespace;

/// No neighbour discovery, replies by any way, and no redirects: routes alone decide the path.
const SETTINGS: [(&str, &str); 6] = [
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
];

/// Further settings of a machine that forwards.
const FORWARDING: [(&str, &str); 1] = [("net/ipv4/ip_forward", "1")];

/// Further settings of a host: buffers that hold path and queue, and no memory of earlier connections.
const HOST: [(&str, &str); 3] = [
    ("net/ipv4/tcp_no_metrics_save", "1"),
    ("net/ipv4/tcp_rmem", "4096\t131072\t33554432"),
    ("net/ipv4/tcp_wmem", "4096\t131072\t33554432"),
];

/// A machine that forwards.
pub fn router() -> Namespace {
    machine(&FORWARDING)
}

/// A machine that does not.
pub fn host() -> Namespace {
    machine(&HOST)
}

fn machine(settings: &[(&str, &str)]) -> Namespace {
    let namespace = Namespace::new().unwrap();
    let written = namespace.within(|| {
        SETTINGS.iter().chain(settings).try_for_each(|(key, value)| {
            match std::fs::write(format!("/proc/sys/{key}"), value) {
                // A kernel without IPv6 has nothing to switch off.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                written => written,
            }
        })
    });
    written.unwrap();
    ip(&namespace, "link set dev lo up\n");
    namespace
}

/// Runs these lines of `ip -batch`.
pub fn ip(namespace: &Namespace, lines: &str) {
    let mut command = Command::new("ip");
    command.args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    namespace.host(&mut command).unwrap();
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{lines}{}", String::from_utf8_lossy(&output.stderr));
}

/// Output of a tool.
pub fn output(namespace: &Namespace, line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    namespace.host(&mut command).unwrap();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Has a device send and receive the frames of the wire.
pub fn without_offloads(namespace: &Namespace, device: &str) {
    let off = || offload::disable_all(device).map_err(io::Error::other);
    namespace.within(off).unwrap();
}
