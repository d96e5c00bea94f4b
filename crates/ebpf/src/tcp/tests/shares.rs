//! Slots are shared among users, and change hands without one being lost or counted twice.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::super::{Datapath, FlowId, Holder, Mode, Options, Reporting};
use super::Random;
use super::loopback::{Agent, connect, options, set_option, until};
use super::safety::take_slot;
use crate::program::tests::loaded;

/// Uid for which slots are reserved.
const ROOT: u32 = 0;
/// Uid of a user without privileges.
const DAEMON: u32 = 1;
/// Uid of a second user without privileges.
const NOBODY: u32 = 65_534;

/// Runs `body` in a thread of this user, who has no capability.
fn as_user<T: Send>(uid: u32, body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: plain numbers. Unlike the function of the C library it changes this thread alone.
            let status = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
            assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
            body()
        });
        thread.join().expect("as another user")
    })
}

/// Connections with both of their ends, which both stay open.
struct Pairs {
    listener: TcpListener,
    pairs: Vec<(TcpStream, TcpStream)>,
}

impl Pairs {
    fn new() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        Self { listener, pairs: Vec::new() }
    }

    fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("an address")
    }

    /// Opens `count` more connections of a user, each of which has carried something: if the kernel
    /// leaves out the call at the begin, the acknowledgement replaces it.
    fn open(&mut self, uid: u32, name: &str, count: usize) {
        for _ in 0..count {
            let address = self.address();
            let client = as_user(uid, || connect(address, name));
            let (server, _) = self.listener.accept().expect("a connection");
            self.pairs.push((client, server));
            self.carry(self.pairs.len() - 1);
        }
    }

    fn carry(&mut self, index: usize) {
        carry(&mut self.pairs[index]);
    }
}

/// Sends 64 kB and reads them.
fn carry((client, server): &mut (TcpStream, TcpStream)) {
    let bytes = vec![7; 1 << 16];
    thread::scope(|scope| {
        scope.spawn(|| client.write_all(&bytes).expect("sent"));
        let mut read = vec![0; bytes.len()];
        server.read_exact(&mut read).expect("received");
        assert_eq!(read, bytes);
    });
}

fn of_16() -> Options {
    Options { flows: 16, ..options() }
}

/// Once all connections have ended, no share is held, and each slot is free once.
fn assert_nothing_is_held(datapath: &Datapath) {
    let (cells, used) = datapath.shares.all();
    assert!(cells.iter().all(|cell| cell.load(Ordering::Relaxed) as u32 == 0));
    assert_eq!((used.load(Ordering::Relaxed), datapath.holders()), (0, vec![]));
    assert_eq!(datapath.free_slots(), datapath.slots());
    let mut slots: Vec<u32> = std::iter::from_fn(|| take_slot(datapath)).collect();
    slots.sort_unstable();
    assert!(slots.iter().copied().eq(0..datapath.slots()), "{slots:?}");
}

fn is_led(datapath: &Datapath, uid: u32) -> bool {
    let led = |flow: FlowId| datapath.mode(flow) == Some(Mode::Agent);
    datapath.connections().any(|(flow, _)| datapath.uid(flow) == Some(uid) && led(flow))
}

#[test]
fn user_cannot_take_slots_of_other_users() {
    let Some(mut datapath) = loaded(Datapath::register(&of_16())) else { return };
    let name = datapath.name().to_string();
    let mut pairs = Pairs::new();
    pairs.open(NOBODY, &name, 20);
    // 12 <= 3 x 4, and 13 > 3 x 3.
    assert_eq!(datapath.holders(), [Holder { uid: NOBODY, slots: 12 }]);
    let counters = datapath.counters();
    assert_eq!((counters.opened, counters.refused, counters.beyond_share), (20, 8, 8));
    // The connections beyond the share have carried as much as the rest, and go on.
    (0..20).for_each(|index| pairs.carry(index));
    assert_eq!(datapath.connections().count(), 12);

    // The remaining slots are for other users, and the last is root's.
    let mut agent = Agent::default();
    for (uid, slots) in [(DAEMON, 1), (ROOT, 1)] {
        pairs.open(uid, &name, 1);
        assert!(datapath.holders().contains(&Holder { uid, slots }), "{:?}", datapath.holders());
        until("the agent controls it", || {
            pairs.carry(pairs.pairs.len() - 1);
            agent.serve(&mut datapath, Reporting::default());
            is_led(&datapath, uid)
        });
    }
    pairs.open(DAEMON, &name, 5);
    pairs.open(ROOT, &name, 1);
    assert_eq!(datapath.free_slots(), 0);
    let root = datapath.holders().into_iter().find(|holder| holder.uid == ROOT);
    assert_eq!(root, Some(Holder { uid: ROOT, slots: 2 }));
    drop(pairs);
    until("all end", || datapath.counters().closed == 28);
    assert_nothing_is_held(&datapath);
}

#[test]
fn accepted_connections_cannot_use_the_root_reserve() {
    let Some(datapath) = loaded(Datapath::register(&of_16())) else { return };
    let name = datapath.name().to_string();
    let mut pairs = Pairs::new();
    set_option(&pairs.listener, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes());
    let mut answer = |count: usize| {
        let before = pairs.pairs.len();
        pairs.open(NOBODY, "reno", count);
        pairs.pairs[before..].iter_mut().for_each(|(client, server)| {
            server.write_all(b"hello").expect("sent");
            client.read_exact(&mut [0; 5]).expect("received");
        });
    };
    answer(20);
    assert_eq!(datapath.holders(), [Holder { uid: ROOT, slots: 12 }]);
    assert_eq!(datapath.counters().beyond_share, 8);
    let mut own = Pairs::new();
    own.open(ROOT, &name, 4);
    assert_eq!(datapath.holders(), [Holder { uid: ROOT, slots: 16 }]);
    drop((pairs, own));
    until("all end", || datapath.counters().closed == 24);
    assert_nothing_is_held(&datapath);
}

#[test]
fn resumed_connection_gets_a_new_slot() {
    let Some(mut datapath) = loaded(Datapath::register(&Options { flows: 1, ..options() })) else {
        return;
    };
    let name = datapath.name().to_string();
    let mut agent = Agent::default();
    let mut pairs = Pairs::new();
    pairs.open(NOBODY, &name, 1);
    until("the agent controls it", || {
        pairs.carry(0);
        agent.serve(&mut datapath, Reporting::default());
        is_led(&datapath, NOBODY)
    });
    let (first, _) = datapath.connections().next().expect("a connection");
    // Longer than it waits between two requests.
    thread::sleep(Duration::from_millis(1500));
    assert!(datapath.take_back(first));
    assert_eq!(datapath.holders(), []);
    pairs.open(DAEMON, &name, 1);
    assert_eq!(datapath.holders(), [Holder { uid: DAEMON, slots: 1 }]);
    // The connection asks for a slot, but its user has none left.
    let before = datapath.counters();
    until("the kernel controls it", || {
        pairs.carry(0);
        datapath.counters().fallbacks > before.fallbacks
    });
    until("its request for a slot fails", || {
        pairs.carry(0);
        datapath.counters().in_vain > before.in_vain
    });
    assert_eq!((before.refused, datapath.counters().refused), (0, 0), "those are not new");
    drop(pairs.pairs.pop());
    until("the agent controls it again", || {
        pairs.carry(0);
        agent.serve(&mut datapath, Reporting::default());
        is_led(&datapath, NOBODY)
    });
    assert_eq!(datapath.counters().regained, 1);
    let (again, _) = datapath.connections().next().expect("a connection");
    assert!(again.slot == first.slot && again.generation != first.generation, "{again:?}");
    drop(pairs);
    until("all end", || datapath.counters().closed == 2);
    assert_nothing_is_held(&datapath);
}

#[test]
fn user_without_cell_gets_no_slot() {
    let Some(datapath) = loaded(Datapath::register(&of_16())) else { return };
    let (cells, used) = datapath.shares.all();
    // As if each were another user's.
    for (uid, cell) in (1_000..).zip(cells) {
        cell.store(uid << 32 | 1, Ordering::Relaxed);
    }
    let name = datapath.name().to_string();
    let mut pairs = Pairs::new();
    pairs.open(NOBODY, &name, 1);
    assert_eq!((datapath.counters().beyond_share, datapath.connections().count()), (1, 0));
    pairs.open(ROOT, &name, 1);
    let (flow, _) = datapath.connections().next().expect("a connection");
    assert_eq!((datapath.uid(flow), used.load(Ordering::Relaxed)), (Some(ROOT), 1));
    drop(pairs);
    until("all end", || datapath.counters().closed == 2);
    for (uid, cell) in (1_000..).zip(cells) {
        assert_eq!(cell.swap(0, Ordering::Relaxed), uid << 32 | 1, "no user has counted here");
    }
    assert_nothing_is_held(&datapath);
}

#[test]
fn reclaimed_slots_are_counted_once_under_churn() {
    /// Connections of each user.
    const EACH: u32 = 400;
    /// Connections that a user keeps open at a time.
    const OPEN: usize = 6;
    let Some(mut datapath) = loaded(Datapath::register(&of_16())) else { return };
    let name = datapath.name().to_string();
    let ended = AtomicU32::new(0);
    let users = [NOBODY, DAEMON, 2, ROOT];
    let mut taken_back = 0;
    thread::scope(|scope| {
        for uid in users {
            let (name, ended) = (&name, &ended);
            scope.spawn(move || {
                let mut pairs = Pairs::new();
                let address = pairs.address();
                as_user(uid, || {
                    for _ in 0..EACH {
                        let client = connect(address, name);
                        let (server, _) = pairs.listener.accept().expect("a connection");
                        pairs.pairs.push((client, server));
                        for (client, server) in &mut pairs.pairs {
                            client.write_all(b"hello").expect("sent");
                            server.read_exact(&mut [0; 5]).expect("received");
                        }
                        if pairs.pairs.len() == OPEN {
                            pairs.pairs.remove(0);
                        }
                    }
                });
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        let mut random = Random(7);
        while ended.load(Ordering::Relaxed) < users.len() as u32 {
            let all: Vec<FlowId> = datapath.connections().map(|(flow, _)| flow).collect();
            let chosen = all.get(random.below(16) as usize);
            taken_back += u32::from(chosen.is_some_and(|flow| datapath.take_back(*flow)));
            datapath.drain(&mut |_| {}).expect("drained");
            thread::sleep(Duration::from_micros(200));
        }
    });
    println!("{taken_back} taken back; {:?}", datapath.counters());
    assert!(taken_back > 100, "{taken_back}");
    let all = u64::from(EACH) * users.len() as u64;
    until("all end", || datapath.counters().closed == all);
    datapath.drain(&mut |_| {}).expect("drained");
    assert_nothing_is_held(&datapath);
}
