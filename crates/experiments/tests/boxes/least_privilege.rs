//! Boxes that run as user `nobody` once they are set up.

use std::fs::{self, File, Permissions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use forebay_host::daemon::keys;
use forebay_host::daemon::status::Status;
use forebay_host::service::control::{self, Answer, Request};
use forebay_host::service::privileges::Account;
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{PairSites, Site, Topology};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Group, Uid, User};

use crate::by_hand::{await_that, command, connect_the_sites};
use crate::outputs::{end, signal};
use crate::turns::together;
use crate::two_bundles::{RATES, await_both, flow, give_ipv6, write_configs};

fn ask(socket: &Path, request: Request) -> io::Result<Answer<Status>> {
    control::ask(socket, request)
}

/// Port of the test traffic.
const PORT: u16 = 7000;
/// Roles of the two boxes, in the order of their files and sockets.
const ROLES: [&str; 2] = ["receivebox", "sendbox"];
/// User of the boxes.
const USER: &str = "nobody";
/// Group whose members may ask for the status.
const GROUP: &str = "daemon";
/// User id that is neither root nor the boxes'.
const STRANGER: u32 = 54_321;
/// Bit of CAP_DAC_READ_SEARCH in `/proc/PID/status` (include/uapi/linux/capability.h).
const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
/// Bit of CAP_NET_ADMIN in `/proc/PID/status` (include/uapi/linux/capability.h).
const CAP_NET_ADMIN: u64 = 1 << 12;
/// Capabilities of the packet thread: CAP_BPF and CAP_IPC_LOCK.
const OF_PACKETS: u64 = 1 << 39 | 1 << 14;
/// Capabilities that a box needs to be set up, as setpriv(1) names them, ...
const NEEDED: [&str; 5] = ["net_admin", "net_raw", "bpf", "perfmon", "ipc_lock"];
/// ... and the optional one, which it uses if it has it.
const WELCOME: &str = "sys_nice";

/// Two boxes, started by the configuration of two bundles with `keys` added to each `[box]` table.
struct Scene {
    topology: Topology,
    folder: tempfile::TempDir,
    configs: [PathBuf; 2],
    sockets: [PathBuf; 2],
}

impl Scene {
    fn set_up(keys: &str) -> Option<Self> {
        if skip_without(Need::Root) {
            return None;
        }
        let topology = Topology::build(1, None).unwrap();
        connect_the_sites(&topology.emulator);
        give_ipv6(&topology.pairs[0]);
        let folder = tempfile::tempdir().unwrap();
        // Other users get as far as the sockets.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let configs = write_configs(folder.path());
        for config in &configs {
            let text = fs::read_to_string(config).unwrap();
            let text = text.replace("control = \"", "control = \"run/");
            let keyed = text.replacen("[[bundle]]", &format!("{keys}[[bundle]]"), 1);
            fs::write(config, keyed).unwrap();
        }
        let sockets = ROLES.map(|role| folder.path().join("run").join(format!("{role}.sock")));
        Some(Self { topology, folder, configs, sockets })
    }

    fn sites(&self) -> &PairSites {
        &self.topology.pairs[0]
    }

    fn namespaces(&self) -> [&Namespace; 2] {
        [&self.sites().right_box, &self.sites().left_box]
    }

    fn start(&self, index: usize) -> Running {
        let mut command = command(self.namespaces()[index], ROLES[index], &self.configs[index]);
        let log = File::create(self.folder.path().join(ROLES[index])).unwrap();
        Running(Some(command.stderr(log).spawn().unwrap()))
    }

    fn log(&self, index: usize) -> String {
        fs::read_to_string(self.folder.path().join(ROLES[index])).unwrap()
    }

    fn await_peers(&self) {
        await_both(&self.sockets, is_alive);
    }

    /// A flow of some seconds in the first bundle arrives, at no more than the shaped rate.
    fn carry(&self, counts: fn(&Status) -> u64) {
        let before = self.sendbox(counts);
        let began = Instant::now();
        let target = SocketAddr::new(IpAddr::V4(Site::RightHosts.address(0)), PORT);
        let (sender, receiver) = flow(self.sites(), target);
        assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
        let due = RATES[0] as f64 / 8.0 * began.elapsed().as_secs_f64();
        let carried = (self.sendbox(counts) - before) as f64;
        assert!(carried >= due / 4.0 && carried <= due + 20_000.0, "{carried} bytes of {due}");
    }

    fn sendbox(&self, value: fn(&Status) -> u64) -> u64 {
        match ask(&self.sockets[1], Request::Status).unwrap() {
            Answer::Status(status) => value(&status),
            other => panic!("{other:?}"),
        }
    }
}

/// A box that dies with the test. The kernel forgets the parent-death signal when a process becomes
/// another user.
struct Running(Option<Child>);

impl Running {
    fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    fn signal(&self, wanted: Signal) {
        signal(self.0.as_ref().unwrap(), wanted);
    }

    fn end(mut self) {
        end(self.0.take().unwrap());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn is_alive(both: &[Status; 2]) -> bool {
    both.iter().flat_map(|one| &one.bundles).all(|bundle| bundle.peer.state == "alive")
}

fn bytes(status: &Status) -> u64 {
    status.bundles[0].bytes
}

fn counter(status: &Status, name: &str) -> u64 {
    status.ports[0].counters.iter().find(|(it, _)| it == name).unwrap().1
}

/// The fields of a `status` file of /proc.
fn fields(file: &Path) -> impl Fn(&str) -> String {
    let text = fs::read_to_string(file).unwrap();
    move |key| {
        let line = text.lines().find(|line| line.starts_with(&format!("{key}:"))).unwrap();
        line[key.len() + 1..].split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Asserts a thread's name, user, group and capabilities.
fn assert_confined(status: &Path, name: &str, uid: u32, gid: u32, capabilities: u64) {
    let field = fields(status);
    assert_eq!(field("Name"), name);
    assert_eq!(field("Uid"), [uid; 4].map(|id| id.to_string()).join(" "), "{name}");
    assert_eq!(field("Gid"), [gid; 4].map(|id| id.to_string()).join(" "), "{name}");
    for (key, expected) in
        [("CapEff", capabilities), ("CapPrm", capabilities), ("CapInh", 0), ("CapAmb", 0)]
    {
        assert_eq!(u64::from_str_radix(&field(key), 16), Ok(expected), "{name}: {key}");
    }
    assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1".into(), "2".into()), "{name}");
}

/// Processes that this one has started and that have not ended.
fn children(pid: &str) -> Vec<String> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    listed.split_whitespace().map(str::to_string).collect()
}

/// Does it as another user, without privilege.
fn as_user<T: Send + 'static>(uid: u32, gid: Gid, work: impl FnOnce() -> T + Send + 'static) -> T {
    let account = Account { name: String::new(), uid: Uid::from_raw(uid), gid };
    let thread = std::thread::spawn(move || {
        account.assume().unwrap();
        work()
    });
    thread.join().unwrap()
}

fn new_keys(folder: &Path, names: &[&str]) {
    for name in names {
        let file = folder.join(format!("{name}.key"));
        let _ = fs::remove_file(&file);
        keys::generate(&file).unwrap();
    }
}

#[test]
fn boxes_as_other_user_carry_reload_and_stop() {
    let keys = format!("user = \"{USER}\"\nstatus_group = \"{GROUP}\"\n");
    let _turn = together();
    let Some(scene) = Scene::set_up(&keys) else { return };
    let user = User::from_name(USER).unwrap().unwrap();
    let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
    let group = Group::from_name(GROUP).unwrap().unwrap().gid;
    let mut boxes = [scene.start(0), scene.start(1)];
    scene.await_peers();
    for one in &boxes {
        let mut threads = Vec::new();
        for task in fs::read_dir(format!("/proc/{}/task", one.pid())).unwrap() {
            let status = task.unwrap().path().join("status");
            let name = fields(&status)("Name");
            let capabilities = if name == "packets" { OF_PACKETS } else { 0 };
            assert_confined(&status, &name, uid, gid, capabilities);
            assert_eq!(fields(&status)("Groups"), "", "{name}");
            threads.push(name);
        }
        threads.sort();
        // The name of a process has at most 15 bytes.
        assert_eq!(threads, ["forebay-experim", "log", "packets"]);
        let status = |child: &str| Path::new("/proc").join(child).join("status");
        let of_box = children(&one.pid().to_string());
        let [reader, observer] = &of_box[..] else { panic!("{of_box:?}") };
        assert_confined(&status(reader), "exe", uid, gid, CAP_DAC_READ_SEARCH);
        // The process that looks names up.
        let of_observer = children(observer);
        let [names] = &of_observer[..] else { panic!("{of_observer:?}") };
        assert_confined(&status(names), "exe", uid, gid, 0);
        let observer = status(observer);
        let observer = fields(&observer);
        for key in ["CapEff", "CapPrm", "CapBnd"] {
            assert_eq!(u64::from_str_radix(&observer(key), 16), Ok(CAP_NET_ADMIN), "{key}");
        }
        assert_eq!(observer("NoNewPrivs"), "1");
    }
    scene.carry(bytes);

    // The group can read but not command; other users get no access.
    let asked = |by: u32, group: Gid, request: Request| {
        let socket = scene.sockets[1].clone();
        as_user(by, group, move || ask(&socket, request))
    };
    let answer = asked(STRANGER, group, Request::Status).unwrap();
    assert!(matches!(answer, Answer::Status(_)), "{answer:?}");
    let refused = asked(STRANGER, group, Request::Reload).unwrap();
    assert!(matches!(&refused, Answer::Failed(why) if why.contains("root")), "{refused:?}");
    let error = asked(STRANGER, Gid::from_raw(STRANGER), Request::Status).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);

    // Reloads read files that only root can read: first a wrong one, then one of another user, and
    // then equal ones at both boxes.
    let reload = |index: usize| match ask(&scene.sockets[index], Request::Reload).unwrap() {
        Answer::Changed(outcome) => *outcome,
        other => panic!("{other:?}"),
    };
    let folder = scene.folder.path();
    fs::write(folder.join("four.key"), "no key\n").unwrap();
    let failed = reload(1);
    assert!(failed.refused.join("").contains("four.key: line 1"), "{failed}");
    new_keys(folder, &["four", "six"]);
    let renewed = reload(1);
    assert_eq!(renewed.summary(), "2 changed", "{renewed}");
    assert!(renewed.listing().contains("four.key with other keys"), "{renewed}");
    /// Alarm of a box whose peer has another key.
    const KEYS_DIFFER: &str = "the peer's messages do not verify: do the keys differ?";
    for (index, role) in ROLES.into_iter().enumerate() {
        await_that(&format!("the {role} asks for the keys"), || {
            let asked = ask(&scene.sockets[index], Request::Status);
            let Ok(Answer::Status(status)) = asked else {
                return false;
            };
            status.table().contains(KEYS_DIFFER) && scene.log(index).contains(KEYS_DIFFER)
        });
    }
    boxes[0].signal(Signal::SIGHUP);
    scene.await_peers();
    let watching = ask(&scene.sockets[0], Request::Status).unwrap();
    assert!(matches!(&watching, Answer::Status(status) if !status.table().contains(KEYS_DIFFER)));
    scene.carry(bytes);

    // The kernel carries the packets while the box has no heartbeat, and the box then takes packets
    // again.
    boxes[1].signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(600));
    let target = SocketAddr::new(IpAddr::V4(Site::RightHosts.address(0)), PORT);
    let (sender, receiver) = flow(scene.sites(), target);
    assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
    boxes[1].signal(Signal::SIGCONT);
    await_that("the sendbox answers", || ask(&scene.sockets[1], Request::Status).is_ok());
    let passed = scene.sendbox(|status| counter(status, "passed_stale"));
    assert!(passed > 10, "{passed} packets");
    // A box that was stopped has to run for half a second before it takes packets again.
    std::thread::sleep(Duration::from_millis(600));
    scene.await_peers();
    scene.carry(bytes);

    let pids = boxes.each_ref().map(Running::pid);
    for index in [1, 0] {
        std::mem::replace(&mut boxes[index], Running(None)).end();
        assert!(!scene.sockets[index].exists(), "the socket goes with its box");
        let children = format!("/proc/{0}/task/{0}/children", pids[index]);
        assert!(fs::read_to_string(children).is_err());
    }
}

#[test]
fn missing_account_is_logged_or_refused_if_named() {
    let _turn = together();
    let Some(scene) = Scene::set_up("user = \"nonesuch\"\n") else { return };
    let output = |scene: &Scene| {
        command(scene.namespaces()[0], ROLES[0], &scene.configs[0]).output().unwrap()
    };
    let refused = output(&scene);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("receivebox.toml:6: box.user = \"nonesuch\": allowed is"), "{error}");
    let edit = |from: &str, to: &str| {
        let text = fs::read_to_string(&scene.configs[0]).unwrap();
        fs::write(&scene.configs[0], text.replace(from, to)).unwrap();
    };
    edit("user = ", "status_group = ");
    let refused = output(&scene);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{error}");
    assert!(error.contains("box.status_group = \"nonesuch\": allowed is"), "{error}");
    if skip_without(Need::NoAccount) {
        return;
    }
    edit("status_group = \"nonesuch\"\n", "");
    let one = scene.start(0);
    await_that("it answers", || ask(&scene.sockets[0], Request::Status).is_ok());
    for task in fs::read_dir(format!("/proc/{}/task", one.pid())).unwrap() {
        let status = task.unwrap().path().join("status");
        let name = fields(&status)("Name");
        let capabilities = if name == "packets" { OF_PACKETS } else { 0 };
        assert_confined(&status, &name, 0, 0, capabilities);
    }
    assert!(
        scene.log(0).contains("there is no account forebay: the box stays root"),
        "{}",
        scene.log(0)
    );
    one.end();
}

/// Has `command` run as user `nobody` with only these capabilities.
fn with_capabilities(command: &Command, capabilities: &[&str]) -> Command {
    let list: String = capabilities.iter().map(|name| format!(",+{name}")).collect();
    let mut narrowed = Command::new("setpriv");
    narrowed
        .args(["--reuid", USER, "--regid", "nogroup", "--clear-groups"])
        .args(["--inh-caps", &format!("-all{list}"), "--ambient-caps", &format!("-all{list}")])
        .args(["--bounding-set", &format!("-all{list}")])
        .arg(command.get_program())
        .args(command.get_args());
    narrowed
}

#[test]
fn six_capabilities_suffice_and_missing_is_named() {
    let _turn = together();
    let Some(scene) = Scene::set_up("") else { return };
    let user = User::from_name(USER).unwrap().unwrap();
    let folder = scene.folder.path();
    fs::create_dir(folder.join("run")).unwrap();
    for path in ["run", "four.key", "six.key"] {
        chown(folder.join(path), Some(user.uid.as_raw()), None).unwrap();
    }
    let start = |index: usize, capabilities: &[&str]| {
        let plain = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
        let mut command = with_capabilities(&plain, capabilities);
        command.args([ROLES[index], "--config"]).arg(&scene.configs[index]);
        scene.namespaces()[index].host(&mut command).unwrap();
        command
    };
    for lacking in NEEDED {
        let others: Vec<&str> = NEEDED.into_iter().filter(|name| *name != lacking).collect();
        let refused = start(1, &others).output().unwrap();
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success());
        let missing = format!("missing CAP_{} ", lacking.to_uppercase());
        assert!(error.contains(&missing) && error.matches("missing").count() == 1, "{error}");
        for name in NEEDED.into_iter().chain([WELCOME]) {
            assert!(error.contains(&format!("CAP_{}", name.to_uppercase())), "{error}");
        }
    }
    let all = [&NEEDED[..], &[WELCOME]].concat();
    let boxes = [0, 1].map(|index| Running(Some(start(index, &all).spawn().unwrap())));
    scene.await_peers();
    for one in &boxes {
        for task in fs::read_dir(format!("/proc/{}/task", one.pid())).unwrap() {
            let status = task.unwrap().path().join("status");
            let name = fields(&status)("Name");
            let capabilities = if name == "packets" { OF_PACKETS } else { 0 };
            let uid = user.uid.as_raw();
            assert_confined(&status, &name, uid, user.gid.as_raw(), capabilities);
        }
    }
    assert!(scene.sendbox(|status| u64::from(status.realtime)) == 1, "SCHED_FIFO");
    scene.carry(bytes);
    boxes.into_iter().rev().for_each(Running::end);
}
