//! Parts that the loaders share: descriptors and counters that outlive the skeleton.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Once;

use libbpf_rs::{Map, MapCore, MapFlags, MapHandle, PrintLevel, libbpf_sys};

use crate::Error;

thread_local! {
    /// Text that libbpf has printed in this thread since [`quiet_libbpf`] was last called.
    static PRINTED: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Bounds [`PRINTED`]; the verifier's log of our programs is a few hundred lines.
const PRINTED_MAX: usize = 1 << 20;

/// A hash map that is a set of keys.
#[derive(Debug)]
pub(crate) struct KeySet {
    name: &'static str,
    map: MapHandle,
    held: BTreeSet<Vec<u8>>,
}

impl KeySet {
    /// The set of a map that has no keys yet.
    pub(crate) fn of(name: &'static str, map: &Map<'_>) -> Result<Self, Error> {
        Ok(Self { name, map: handle(name, map)?, held: BTreeSet::new() })
    }

    /// Holds the keys `wanted`, and only these, from now on. A key that stays is never missing in between.
    ///
    /// # Errors
    ///
    /// There is not room for all keys: the first ones are held.
    pub(crate) fn set(&mut self, wanted: BTreeSet<Vec<u8>>) -> Result<(), Error> {
        let (count, max) = (wanted.len(), self.map.max_entries() as usize);
        let wanted: BTreeSet<Vec<u8>> = wanted.into_iter().take(max).collect();
        let stale: Vec<Vec<u8>> = self.held.difference(&wanted).cloned().collect();
        for key in stale {
            self.map.delete(&key).map_err(Error::map(self.name))?;
            self.held.remove(&key);
        }
        for key in wanted {
            if !self.held.contains(&key) {
                self.map.update(&key, &[1], MapFlags::ANY).map_err(Error::map(self.name))?;
                self.held.insert(key);
            }
        }
        if count > max { Err(Error::Full { map: self.name, count, max }) } else { Ok(()) }
    }
}

/// Keeps what libbpf prints, the verifier's log included, off the terminal.
pub(crate) fn quiet_libbpf() {
    /// libbpf has one print function per process; only the first call sets it.
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        fn keep(_: PrintLevel, text: String) {
            tracing::debug!(target: "libbpf", "{}", text.trim_end());
            PRINTED.with_borrow_mut(|printed| {
                if printed.len() + text.len() <= PRINTED_MAX {
                    printed.push_str(&text);
                }
            });
        }
        libbpf_rs::set_print(Some((PrintLevel::Info, keep)));
        // libbpf reads a file of sysfs for this and remembers it: a box that is confined later may not read
        // it. A failure shows where it matters, such as when counters are read.
        let _ = libbpf_rs::num_possible_cpus();
    });
    PRINTED.with_borrow_mut(String::clear);
}

/// The verifier's verdict on the program that this thread loaded last, if it spoke one: the line
/// before its statistics, with the instruction it is about.
pub(crate) fn verdict() -> Option<String> {
    PRINTED.with_borrow(|printed| {
        let lines: Vec<&str> = printed.lines().collect();
        let end = lines.iter().position(|line| line.starts_with("processed "))?;
        Some(lines[end.saturating_sub(2)..end].join("; "))
    })
}

/// Whether this process has the rights to load any of our programs: CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
/// In a user namespace these count for nothing here.
pub(crate) fn may_load() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    is_privileged(&status, &users)
}

fn is_privileged(status: &str, users: &str) -> bool {
    /// Bits of CAP_NET_ADMIN, CAP_PERFMON and CAP_BPF (include/uapi/linux/capability.h).
    const NEEDED: u64 = 1 << 12 | 1 << 38 | 1 << 39;
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|held| u64::from_str_radix(held.trim(), 16).ok()).unwrap_or(0);
    held & NEEDED == NEEDED && users.split_whitespace().eq(["0", "0", "4294967295"])
}

/// A handle of its own for a map, which stays when the skeleton goes.
pub(crate) fn handle(name: &'static str, map: &Map<'_>) -> Result<MapHandle, Error> {
    MapHandle::try_from(map).map_err(Error::map(name))
}

/// A descriptor of its own for a program, which stays when the skeleton goes.
pub(crate) fn descriptor(name: &'static str, fd: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    fd.try_clone_to_owned()
        .map_err(|error: io::Error| Error::Kernel { program: name, reason: error.to_string() })
}

/// The kernel's information about a program.
pub(crate) fn info(program: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_prog_info> {
    // SAFETY: plain numbers, for which zero is valid.
    let mut info: libbpf_sys::bpf_prog_info = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: the structure and its length outlive the call.
    let status =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &mut info, &mut len) };
    if status < 0 { Err(io::Error::from_raw_os_error(-status)) } else { Ok(info) }
}

/// The sum over all CPUs of a 64-bit counter in a per-CPU array.
pub(crate) fn per_cpu_sum(name: &'static str, map: &MapHandle, index: u32) -> Result<u64, Error> {
    let values =
        map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).map_err(Error::map(name))?;
    let of_cpu = |bytes: Vec<u8>| bytes.try_into().map_or(0, u64::from_ne_bytes);
    Ok(values.unwrap_or_default().into_iter().map(of_cpu).sum())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::process::Command;
    use std::thread;

    use forebay_skips::{Need, skip_without};

    use super::*;

    /// Outcome of a program's run on a frame.
    pub(crate) struct Run {
        /// XDP action, or action of tc.
        pub(crate) action: u32,
        /// Mean duration of one run, in ns.
        pub(crate) duration_ns: u32,
    }

    /// A loaded program, or `None` without the privilege to load any.
    pub(crate) fn loaded<T>(result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(loaded) => Some(loaded),
            Err(Error::Privilege) if skip_without(Need::Root) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs a program of iproute2.
    pub(crate) fn command(line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        let status = Command::new(words[0]).args(&words[1..]).status().expect("iproute2 is here");
        assert!(status.success(), "{line}");
    }

    /// Runs `test` in a network namespace of its own, as root.
    pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
        if skip_without(Need::Root) {
            return;
        }
        let thread = thread::spawn(|| {
            // SAFETY: plain numbers; this thread ends with the test.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0);
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    #[test]
    fn loading_needs_capabilities_of_initial_user_namespace() {
        let root = "Name:\tx\nCapPrm:\t0\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n";
        let whole = "         0          0 4294967295\n";
        assert!(is_privileged(root, whole));
        assert!(!is_privileged(root, "         0       1000          1\n"));
        for missing in [1_u64 << 12, 1 << 38, 1 << 39] {
            let status = format!("CapEff:\t{:016x}\n", 0x1ff_ffff_ffff & !missing);
            assert!(!is_privileged(&status, whole), "{status}");
        }
        assert!(!is_privileged("", whole));
    }

    /// `struct __sk_buff` by its words (include/uapi/linux/bpf.h).
    pub(crate) type Buffer = [u32; 48];
    /// Word of `priority`.
    pub(crate) const PRIORITY: usize = 8;
    /// Word of `ingress_ifindex`.
    pub(crate) const INGRESS_IFINDEX: usize = 9;
    /// Word of `gso_segs`.
    pub(crate) const GSO_SEGS: usize = 41;
    /// Word of `gso_size`.
    pub(crate) const GSO_SIZE: usize = 44;

    /// Runs an XDP program `repeat` times on a frame, without a device (BPF_PROG_TEST_RUN).
    pub(crate) fn run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> Run {
        run_with(program, frame, repeat, None)
    }

    /// Runs a program at tc on a frame. `buffer` describes the buffer that the kernel has it in, before the
    /// run and after.
    pub(crate) fn run_at_tc(
        program: BorrowedFd<'_>,
        frame: &[u8],
        repeat: u32,
        buffer: &mut Buffer,
    ) -> Run {
        run_with(program, frame, repeat, Some(buffer))
    }

    fn run_with(
        program: BorrowedFd<'_>,
        frame: &[u8],
        repeat: u32,
        buffer: Option<&mut Buffer>,
    ) -> Run {
        // SAFETY: plain numbers and null pointers, for which zero is valid.
        let mut options: libbpf_sys::bpf_test_run_opts = unsafe { std::mem::zeroed() };
        options.sz = size_of_val(&options) as _;
        if let Some(buffer) = buffer {
            options.ctx_size_in = size_of_val(buffer) as u32;
            options.ctx_size_out = options.ctx_size_in;
            options.ctx_out = buffer.as_mut_ptr().cast();
            options.ctx_in = options.ctx_out;
        }
        options.data_in = frame.as_ptr().cast();
        options.data_size_in = frame.len() as u32;
        options.repeat = repeat as i32;
        // SAFETY: the options, the frame and the buffer outlive the call.
        let status =
            unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
        assert_eq!(status, 0, "BPF_PROG_TEST_RUN of {} bytes", frame.len());
        Run { action: options.retval, duration_ns: options.duration }
    }
}
