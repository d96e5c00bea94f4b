//! A user that opens connections without end, next to root and another user.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::libc;
use serde_json::Value;

use super::running::Running;
use super::{forebay, select, text};

/// User id of the user who opens too many connections.
const NOBODY: u64 = 65_534;
/// User id of another user.
const DAEMON: u64 = 1;

/// Runs `body` in a thread of this user, who has no capability.
fn as_user<T: Send>(uid: u64, body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: plain numbers. Unlike the function of the C library it changes this thread alone.
            let status = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
            assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
            body()
        });
        thread.join().unwrap()
    })
}

/// Connections over the loopback device with both of their ends.
struct Pairs(Vec<(TcpStream, TcpStream)>);

impl Pairs {
    /// Opens `count` connections of a user and sends data over each.
    fn open(uid: u64, name: &str, count: usize) -> Self {
        let pair = |_| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let client = as_user(uid, || {
                let client = TcpStream::connect(address).unwrap();
                select(&client, name);
                client
            });
            (client, listener.accept().unwrap().0)
        };
        let mut pairs = Self((0..count).map(pair).collect());
        pairs.carry(0..count);
        pairs
    }

    /// Carries 64 KiB over these.
    fn carry(&mut self, which: impl IntoIterator<Item = usize>) {
        let bytes = [7; 1 << 16];
        for index in which {
            let (client, server) = &mut self.0[index];
            std::thread::scope(|scope| {
                scope.spawn(|| client.write_all(&bytes).unwrap());
                let mut read = vec![0; bytes.len()];
                server.read_exact(&mut read).unwrap();
                assert_eq!(read, bytes);
            });
        }
    }

    fn local(&self, index: usize) -> String {
        self.0[index].0.local_addr().unwrap().to_string()
    }
}

/// Whether the agent decides for the connection with this end.
fn is_led(status: &Value, local: &str) -> bool {
    let flows = status["flows"].as_array().unwrap();
    flows.iter().any(|flow| flow["local"] == local && flow["decides"] == "agent")
}

fn holders(status: &Value) -> Vec<(u64, u64)> {
    let holders = status["algorithms"][0]["slots"]["holders"].as_array().unwrap();
    let number = |holder: &Value, name: &str| holder[name].as_u64().unwrap();
    holders.iter().map(|holder| (number(holder, "uid"), number(holder, "slots"))).collect()
}

/// Has a connection carry something until the agent decides for it.
fn lead(agent: &Running, pairs: &mut Pairs, index: usize) {
    let local = pairs.local(index);
    for _ in 0..200 {
        pairs.carry([index]);
        if is_led(&agent.status(Value::is_object), &local) {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("{local} is not led: {}", agent.status(Value::is_object));
}

#[test]
fn greedy_user_leaves_slots_and_loses_idle_ones() {
    let folder = tempfile::tempdir().unwrap();
    let Some(agent) = Running::start(folder.path(), "bbr", &["--slots", "16"]) else { return };
    let name = "fb_bbr";
    let mut nobody = Pairs::open(NOBODY, name, 20);
    let status = agent.status(|status| holders(status) == [(NOBODY, 12)]);
    let slots = &status["algorithms"][0]["slots"];
    assert_eq!((&slots["total"], &slots["reserved"]), (&16.into(), &1.into()));
    assert_eq!((&slots["free"], &slots["beyond_share"]), (&4.into(), &8.into()));
    let table = forebay(folder.path(), &["status", "--socket", "agent.sock"]).output().unwrap();
    let expected = "slots: 4 of 16 free, 1 for root alone; held by uid 65534 12; \
                    8 connections beyond their user's share";
    assert!(text(&table.stdout).contains(expected), "{table:?}");

    // The agent decides for other users, and connections beyond the share work.
    let mut root = Pairs::open(0, name, 1);
    lead(&agent, &mut root, 0);
    let mut other = Pairs::open(DAEMON, name, 1);
    lead(&agent, &mut other, 0);
    nobody.carry(12..20);

    // The 12 are idle, and the last, which is not, gets a slot of theirs.
    lead(&agent, &mut nobody, 19);
    let status = agent.status(|status| status["totals"]["taken_back"].as_u64() > Some(0));
    let left = holders(&status).iter().find(|(uid, _)| *uid == NOBODY).unwrap().1;
    assert!(left < 12, "{status}");
    let led = status["flows"].as_array().unwrap();
    let idle: Vec<usize> = (0..12)
        .filter(|index| !led.iter().any(|flow| flow["local"] == nobody.local(*index)))
        .collect();
    assert!(!idle.is_empty(), "{status}");
    // A connection that lost its slot continues, and gets another slot.
    lead(&agent, &mut nobody, idle[0]);
    let status = agent.status(Value::is_object);
    assert!(Running::counter(&status, "regained") >= 2, "{status}");
    assert!(is_led(&status, &nobody.local(19)), "{status}");
    drop((nobody, root, other));
    agent.status(|status| {
        holders(status).is_empty() && status["algorithms"][0]["slots"]["free"] == 16
    });
    agent.stop();
}

#[test]
fn shares_shrink_as_more_users_come() {
    /// User id of a third user.
    const BIN: u64 = 2;
    let folder = tempfile::tempdir().unwrap();
    let Some(agent) = Running::start(folder.path(), "bbr3", &["--slots", "64"]) else { return };
    let mut all = [(NOBODY, 100), (DAEMON, 40), (0, 20)].map(|(uid, count)| {
        let pairs = Pairs::open(uid, "fb_bbr3", count);
        (pairs, count)
    });
    let status = agent.status(|status| status["algorithms"][0]["slots"]["free"] == 0);
    println!("before the third user: {:?}", holders(&status));
    let mut third = Pairs::open(BIN, "fb_bbr3", 5);
    let began = Instant::now();
    loop {
        // All are busy.
        for (pairs, count) in &mut all {
            pairs.carry(0..*count);
        }
        third.carry(0..5);
        let status = agent.status(Value::is_object);
        let led = (0..5).filter(|index| is_led(&status, &third.local(*index))).count();
        let held = holders(&status);
        if led == 5 {
            println!("all of the third user's are led after {:?}: {held:?}", began.elapsed());
            // Root has 20 of 60, and each of three users three tenths of the rest at least, if it wants them.
            let most = held.into_iter().find(|(uid, _)| *uid == NOBODY).unwrap().1;
            assert!((12..45).contains(&most), "{most}");
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{led} of 5 led: {held:?}");
    }
    agent.stop();
}
