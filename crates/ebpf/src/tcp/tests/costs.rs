//! Run times of programs, on a real connection.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

use super::super::{Empty, RunTimes, program_times};
use super::loopback::{connect, fresh_name, is_registered};
use crate::program::tests::loaded;

#[test]
fn empty_program_time_is_counted_per_call() {
    let name = fresh_name();
    let known: BTreeSet<u32> =
        program_times(&BTreeSet::new()).unwrap_or_default().iter().map(|it| it.id).collect();
    let Some(empty) = loaded(Empty::register(&name)) else { return };
    let times = RunTimes::enable().unwrap();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut sender = connect(listener.local_addr().unwrap(), &name);
    let (mut receiver, _) = listener.accept().unwrap();
    let bytes = 1 << 20;
    let sent = std::thread::spawn(move || sender.write_all(&vec![0; bytes]));
    receiver.read_exact(&mut vec![0; bytes]).unwrap();
    sent.join().unwrap().unwrap();
    // Other tests register programs of their own names meanwhile.
    let seen = program_times(&known).unwrap();
    let control = seen.iter().find(|it| it.name == "empty_control").unwrap();
    assert!(control.calls > 0 && control.time_ns > 0, "{control:?}");
    assert!(control.time_ns / control.calls < 100_000, "{control:?}");
    drop((empty, times));
    assert!(!is_registered(&name));
}
