//! Members of the status group hold connections. The owner's commands, the watchdog and the end of a box
//! must still work.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forebay_host::service::privileges::Account;
use nix::sys::signal::Signal;
use nix::unistd::Group;

use crate::by_hand::{await_status, signal};
use crate::many::{Layout, Scene};
use crate::turns::together;

/// Group whose members may ask for the status.
const GROUP: &str = "daemon";
/// User id of a member of that group who has no other privilege.
const MEMBER: u32 = 54_321;
/// Connections that are held all the time.
const HELD: usize = 24;
/// `WatchdogSec=` of the unit.
const WATCHDOG_US: &str = "10000000";

#[test]
fn status_members_delay_neither_owner_nor_watchdog() {
    let notices = tempfile::tempdir().unwrap();
    let manager = notices.path().join("notify");
    let notices = UnixDatagram::bind(&manager).unwrap();
    let layout = Layout { bundles: 300, rate_mbit: 24, weight: 1, datapath: "user" };
    let keyed =
        |text: String| text.replacen("[box]\n", &format!("[box]\nstatus_group = \"{GROUP}\"\n"), 1);
    let mut is_watched = [false, true].into_iter();
    let scene = Scene::start_as(together, &layout, keyed, |command| {
        if is_watched.next() == Some(true) {
            command.env("NOTIFY_SOCKET", &manager).env("WATCHDOG_USEC", WATCHDOG_US);
        }
    });
    let Some(mut scene) = scene else { return };
    fs::set_permissions(scene.folder.path(), Permissions::from_mode(0o755)).unwrap();
    let [_, socket] = scene.sockets();
    let other = scene.folder.path().join("other.toml");
    let own = scene.folder.path().join("sendbox.toml");
    let text = fs::read_to_string(&own).unwrap();
    fs::write(&other, text.replace("weight = 1 # 299", "weight = 2 # 299")).unwrap();
    let forebay = |words: &[&str], file: Option<&Path>| -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
        command.args(words).args(file).arg("--socket").arg(&socket).arg("--config").arg(&own);
        command.output().unwrap()
    };
    let is_over = Arc::<AtomicBool>::default();
    let holds: [fn(&mut UnixStream, &AtomicBool); 2] = [hold_silently, hold_unread];
    for (turn, hold) in holds.into_iter().enumerate() {
        is_over.store(false, Ordering::Relaxed);
        let held: Vec<JoinHandle<()>> =
            (0..HELD).map(|_| member(hold, &socket, &is_over)).collect();
        thread::sleep(Duration::from_millis(500));
        for _ in 0..3 {
            let began = Instant::now();
            let applied = forebay(&["apply", "--confirm", "10s", "--json"], Some(&other));
            assert!(applied.status.success(), "{applied:?}");
            let confirmed = forebay(&["confirm"], None);
            println!("applied and confirmed in {:?}", began.elapsed());
            assert!(confirmed.status.success(), "{confirmed:?}");
            let status = await_status(&socket);
            let weight = status.bundles[299].shaping.as_ref().unwrap().share.unwrap().weight;
            assert_eq!((status.trial, weight), (None, 2));
            fs::write(&own, &text).unwrap();
            assert!(forebay_reload(&socket).status.success());
        }
        let gap = longest_gap(&notices, Duration::from_secs(15));
        println!("longest time between two signs of life: {gap:?}");
        // Four looks in each period.
        assert!(gap < Duration::from_millis(3000), "{gap:?}");
        if turn == 1 {
            let began = Instant::now();
            signal(&scene.boxes[1], Signal::SIGTERM);
            let ended = scene.boxes[1].wait().unwrap();
            println!("ended {:?} after SIGTERM", began.elapsed());
            assert!(ended.success() && began.elapsed() < Duration::from_secs(3), "{ended}");
        }
        is_over.store(true, Ordering::Relaxed);
        held.into_iter().for_each(|one| one.join().unwrap());
    }
}

fn forebay_reload(socket: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.arg("reload").arg("--socket").arg(socket).output().unwrap()
}

/// A member of the status group that does `hold` with one connection after another.
fn member(
    hold: fn(&mut UnixStream, &AtomicBool),
    socket: &Path,
    is_over: &Arc<AtomicBool>,
) -> JoinHandle<()> {
    let gid = Group::from_name(GROUP).unwrap().unwrap().gid.as_raw();
    let (socket, is_over): (PathBuf, _) = (socket.into(), is_over.clone());
    thread::spawn(move || {
        Account::of(MEMBER, gid).assume().unwrap();
        while !is_over.load(Ordering::Relaxed) {
            match UnixStream::connect(&socket) {
                Ok(mut stream) => hold(&mut stream, &is_over),
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    })
}

/// Says nothing until the box closes the connection.
fn hold_silently(stream: &mut UnixStream, is_over: &AtomicBool) {
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let is_open = |stream: &mut UnixStream| match stream.read(&mut [0; 1]) {
        Ok(count) => count > 0,
        Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
    };
    while is_open(stream) && !is_over.load(Ordering::Relaxed) {}
}

/// Asks for the status, and does not read it.
fn hold_unread(stream: &mut UnixStream, is_over: &AtomicBool) {
    let _ = stream.write_all(b"\"status\"\n");
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until && !is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(50));
    }
}

/// The longest time within `span` in which the box sent the service manager no notification.
fn longest_gap(notices: &UnixDatagram, span: Duration) -> Duration {
    let mut text = [0; 64];
    notices.set_nonblocking(true).unwrap();
    while notices.recv(&mut text).is_ok() {}
    notices.set_nonblocking(false).unwrap();
    let began = Instant::now();
    let (mut last, mut longest) = (began, Duration::ZERO);
    while began.elapsed() < span {
        notices.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let is_sign = notices.recv(&mut text).is_ok_and(|count| &text[..count] == b"WATCHDOG=1");
        longest = longest.max(last.elapsed());
        if is_sign {
            last = Instant::now();
        }
    }
    longest
}
