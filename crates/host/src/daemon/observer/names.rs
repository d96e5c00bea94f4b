//! Names of the other boxes, looked up by a thread of the observer: an answer may take many seconds, and a packet
//! thread waits for nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;

use serde::{Deserialize, Serialize};

use crate::daemon::config::MAX_BUNDLES;

/// Most addresses that are kept of a name.
const ADDRESSES_MAX: usize = 16;
/// More than any name has bytes: what is longer is none.
const LINE_MAX: usize = 1024;

/// What was found of each name that was asked for.
pub type Names = BTreeMap<String, Resolved>;

/// What was found of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The addresses, in the order in which RFC 6724 has them tried; those found last, if a later look-up failed.
    pub addresses: Vec<IpAddr>,
    /// Why the last look-up failed, if it did.
    pub problem: Option<String>,
}

/// The names that a box asks for, one a line.
pub struct LookUp {
    wanted: mpsc::SyncSender<String>,
    found: mpsc::Receiver<(String, Resolved)>,
    names: Names,
    /// Names that are being looked up, or wait for that.
    asked: BTreeSet<String>,
    /// What was read of a line that is not whole.
    part: Vec<u8>,
}

impl LookUp {
    /// Starts the thread that waits for answers.
    pub fn start() -> io::Result<Self> {
        let (wanted, names) = mpsc::sync_channel::<String>(MAX_BUNDLES);
        let (finds, found) = mpsc::channel();
        thread::Builder::new().name("names".into()).spawn(move || {
            for name in names {
                let resolved = look_up(&name);
                // The process is about to end.
                if finds.send((name, resolved)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { wanted, found, names: Names::new(), asked: BTreeSet::new(), part: Vec::new() })
    }

    /// Takes what the box asks for; false: it has ended.
    pub fn take(&mut self, mut asked: impl BufRead) -> io::Result<bool> {
        let bytes = asked.fill_buf()?;
        let len = bytes.len();
        for byte in bytes {
            if *byte != b'\n' {
                self.part.extend((self.part.len() < LINE_MAX).then_some(*byte));
                continue;
            }
            let Ok(name) = String::from_utf8(std::mem::take(&mut self.part)) else { continue };
            // With so many waiting it is asked for again.
            if !self.asked.contains(&name) && self.wanted.try_send(name.clone()).is_ok() {
                self.asked.insert(name);
            }
        }
        asked.consume(len);
        Ok(len > 0)
    }

    /// What was found so far.
    pub fn names(&mut self) -> &Names {
        for (name, found) in self.found.try_iter() {
            self.asked.remove(&name);
            let before = self.names.entry(name).or_default();
            before.problem = found.problem;
            if before.problem.is_none() {
                before.addresses = found.addresses;
            }
        }
        &self.names
    }
}

/// Looks a name up, which may take many seconds.
pub fn look_up(name: &str) -> Resolved {
    let found = match (name, 0).to_socket_addrs() {
        Ok(found) => found,
        Err(error) => return Resolved { problem: Some(error.to_string()), ..Resolved::default() },
    };
    let mut addresses: Vec<IpAddr> = Vec::new();
    for ip in found.map(|address| address.ip()).take(ADDRESSES_MAX) {
        if !addresses.contains(&ip) && !ip.is_unspecified() && !ip.is_multicast() {
            addresses.push(ip);
        }
    }
    Resolved { addresses, problem: None }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_is_asked_for_in_parts_is_found_and_an_end_is_told() {
        let mut look_up = LookUp::start().unwrap();
        // The files of every machine have it.
        assert!(look_up.take(&b"local"[..]).unwrap());
        assert!(look_up.take(&b"host\n"[..]).unwrap());
        assert!(!look_up.take(&b""[..]).unwrap());
        let deadline = Instant::now() + Duration::from_secs(30);
        while look_up.names().is_empty() {
            assert!(Instant::now() < deadline, "nothing was found");
            thread::sleep(Duration::from_millis(10));
        }
        let found = &look_up.names()["localhost"];
        assert!(found.addresses.iter().all(IpAddr::is_loopback), "{found:?}");
        assert!(!found.addresses.is_empty() && found.problem.is_none(), "{found:?}");
    }

    #[test]
    fn addresses_stay_where_a_later_look_up_fails() {
        let (wanted, _) = mpsc::sync_channel(1);
        let (finds, found) = mpsc::channel();
        let (names, asked) = (Names::new(), BTreeSet::new());
        let mut look_up = LookUp { wanted, found, names, asked, part: Vec::new() };
        let resolved = |addresses: &[&str], problem: Option<&str>| Resolved {
            addresses: addresses.iter().map(|it| it.parse().unwrap()).collect(),
            problem: problem.map(str::to_string),
        };
        for (told, expected) in [
            (resolved(&["192.0.2.1"], None), resolved(&["192.0.2.1"], None)),
            (resolved(&[], Some("no answer")), resolved(&["192.0.2.1"], Some("no answer"))),
            (resolved(&["192.0.2.2"], None), resolved(&["192.0.2.2"], None)),
        ] {
            finds.send(("b.example".to_string(), told)).unwrap();
            assert_eq!(look_up.names()["b.example"], expected);
        }
    }
}
