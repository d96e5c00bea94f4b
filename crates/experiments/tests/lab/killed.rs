//! A killed run, and the resources that it must not leave behind.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use forebay_skips::{Need, skip_without};

use crate::{forebay, stdout_of};

/// The processes whose ancestor is `root`, by number.
fn descendants(root: u32) -> Vec<u32> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name in parentheses may hold anything; the parent is the second word after it.
        let parent = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1));
        parents.extend(parent.and_then(|parent| Some((id, parent.parse().ok()?))));
    }
    let mut found = vec![root];
    let mut index = 0;
    while let Some(parent) = found.get(index).copied() {
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(id, _)| *id));
        index += 1;
    }
    found.split_off(1)
}

fn all_processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn namespace_file(process: u32) -> PathBuf {
    format!("/proc/{process}/ns/net").into()
}

/// The network namespaces of these processes, except the one of this test.
fn namespaces_of(processes: &[u32]) -> BTreeSet<PathBuf> {
    let files = processes.iter().map(|process| namespace_file(*process));
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    files.filter_map(|file| std::fs::read_link(file).ok()).filter(|it| *it != own).collect()
}

/// Whether a lock that this process took is still held, by any process that has its descriptor (proc_locks(5)).
fn holds_a_lock(process: u32) -> bool {
    let locks = std::fs::read_to_string("/proc/locks").unwrap();
    let mut takers = locks.lines().filter(|line| line.contains("FLOCK"));
    takers.any(|line| line.split_whitespace().nth(4) == Some(&process.to_string()))
}

/// The temporary folders of a process.
fn scratch_of(process: u32) -> Vec<PathBuf> {
    let prefix = format!("forebay-run-{process}-");
    let entries = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let ours =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(|n| n.starts_with(&prefix)));
    ours.map(|entry| entry.path()).collect()
}

/// A BPF object: the name of its number in fdinfo, and that number.
type Object = (&'static str, u32);

/// Kinds of BPF objects, each with the command of bpf(2) that finds the next one by number
/// (`BPF_{PROG,MAP,LINK}_GET_NEXT_ID`, include/uapi/linux/bpf.h).
const KINDS: [(&str, nix::libc::c_long); 3] = [("prog_id:", 11), ("map_id:", 12), ("link_id:", 31)];

/// The BPF objects that these processes hold.
fn objects_of(processes: &[u32]) -> BTreeSet<Object> {
    let folders = processes.iter().map(|process| format!("/proc/{process}/fdinfo"));
    let files = folders.filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let texts = files.filter_map(|file| std::fs::read_to_string(file.path()).ok());
    let objects = |text: String| -> Vec<Object> {
        let object = |line: &str| {
            let (kind, _) = KINDS.into_iter().find(|(kind, _)| line.starts_with(kind))?;
            Some((kind, line[kind.len()..].trim().parse().ok()?))
        };
        text.lines().filter_map(object).collect()
    };
    texts.flat_map(objects).collect()
}

/// Whether such a BPF object exists, held by any process or pin.
fn exists((kind, number): Object) -> bool {
    use nix::libc;

    #[repr(C)]
    struct Arguments {
        start: u32,
        next: u32,
        open_flags: u32,
    }
    let (_, command) = KINDS.into_iter().find(|(known, _)| *known == kind).unwrap();
    let mut arguments = Arguments { start: number - 1, next: 0, open_flags: 0 };
    // SAFETY: the arguments outlive the call, which writes to `next` alone.
    let status = unsafe {
        libc::syscall(libc::SYS_bpf, command, &raw mut arguments, size_of::<Arguments>())
    };
    status == 0 && arguments.next == number
}

/// The network devices in sight, and the mounts that hold a namespace or a BPF object.
fn devices_and_mounts() -> (BTreeSet<String>, usize) {
    let devices = std::fs::read_dir("/sys/class/net").unwrap().flatten();
    let devices = devices.filter_map(|entry| entry.file_name().into_string().ok());
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let kinds = mounts.lines().filter_map(|line| line.split(' ').nth(2));
    (devices.collect(), kinds.filter(|kind| matches!(*kind, "nsfs" | "bpf")).count())
}

fn wait_until(what: &str, seconds: u64, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited {seconds} s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_killed_run_leaves_nothing_behind() {
    if skip_without(Need::Root) {
        return;
    }
    let before = devices_and_mounts();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let mut child = forebay(&[
        "run",
        "bundler/queue_shift",
        "--arms",
        "copa_sfq",
        "--seed",
        "1",
        "--set",
        "stop=60s",
        "--out",
        out.to_str().unwrap(),
    ])
    .stdout(Stdio::null())
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let began = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("[1/1]")));
    assert!(began.is_some());
    // Emulator, two boxes, an observer and a name resolver for each box, the hosts of two sides, and the watcher
    // of the folder. The wait for another emulation may be long.
    wait_until("the programs run", 900, || descendants(child.id()).len() >= 10);
    let (programs, scratch) = (descendants(child.id()), scratch_of(child.id()));
    let objects = objects_of(&programs);
    let namespaces = namespaces_of(&programs);
    // While they are open, no other test's namespace gets one of their numbers.
    let _held: Vec<_> =
        programs.iter().map(|id| File::open(namespace_file(*id)).unwrap()).collect();
    assert!(namespaces.len() >= 5 && holds_a_lock(child.id()), "{namespaces:?}");
    assert_eq!(scratch.len(), 1, "{scratch:?}");
    let is_there = |(least, kind)| objects.iter().filter(|(it, _)| *it == kind).count() >= least;
    assert!([4, 1, 4].into_iter().zip(KINDS.map(|(kind, _)| kind)).all(is_there), "{objects:?}");
    assert!(objects.iter().all(|object| exists(*object)), "{objects:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    let is_alive = |id: &u32| Path::new(&format!("/proc/{id}")).exists();
    wait_until("the programs die", 60, || !programs.iter().any(is_alive));
    // A dying process leaves its namespace after its sockets and devices.
    wait_until("the namespaces are left", 60, || {
        namespaces_of(&all_processes()).is_disjoint(&namespaces)
    });
    assert!(!holds_a_lock(child.id()));
    wait_until("the folder goes", 60, || !scratch[0].exists());
    wait_until("the BPF objects go", 60, || !objects.iter().any(|object| exists(*object)));
    assert_eq!(devices_and_mounts(), before);
    let _ = std::fs::remove_dir_all(out.join("csv"));
    stdout_of(&["export", out.to_str().unwrap()]);
    let runs = std::fs::read_to_string(out.join("csv/runs.csv")).unwrap();
    assert_eq!(runs.lines().count(), 1, "{runs}");
}
