//! What the kernel says about processes: CPU time, scheduling, load and stolen time.

use std::fs;
use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// Puts the calling thread under `SCHED_FIFO` with `priority` (1 to 99); false if not allowed.
pub fn try_realtime(priority: i32) -> bool {
    // SAFETY: all fields of sched_param are integers, for which zero is a value.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = priority;
    // SAFETY: the parameter lives through the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) == 0 }
}

/// Puts the calling thread under `SCHED_IDLE`, below every nice value; false if not allowed.
pub fn try_idle_priority() -> bool {
    // SAFETY: all fields of sched_param are integers; zero is the only priority of this class.
    let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the parameter lives through the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameter) == 0 }
}

/// Whether a hypervisor runs this machine, as the flags of its x86 processors say (`hypervisor`,
/// bit 31 of ECX of CPUID leaf 1); false on other architectures.
pub fn is_virtual_machine() -> io::Result<bool> {
    Ok(has_hypervisor(&fs::read_to_string("/proc/cpuinfo")?))
}

fn has_hypervisor(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

/// Keeps the calling thread on the processor `cpu`; false if that is not allowed.
pub fn try_keep_to(cpu: usize) -> bool {
    let mut only = CpuSet::new();
    only.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &only)).is_ok()
}

/// The processors on which the calling thread may run, ascending.
pub fn processors() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect())
}

/// User and system time of process `pid` with all its threads (ns). It includes the packet work
/// (softirq) that ran in its context, also for others, and not what ran in kernel threads.
pub fn cpu_time_ns(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let ticks = field(&stat, UTIME)? + field(&stat, STIME)?;
    Ok(ticks * 1_000_000_000 / ticks_per_second()?)
}

/// Whether any thread of `pid` runs under `SCHED_FIFO` or `SCHED_RR`.
pub fn is_realtime(pid: u32) -> io::Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("stat"))?;
        let policy = field(&stat, POLICY)?;
        if policy == libc::SCHED_FIFO as u64 || policy == libc::SCHED_RR as u64 {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Load average over one minute.
pub fn load_average() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/loadavg")?;
    text.split(' ').next().and_then(|load| load.parse().ok()).ok_or_else(malformed)
}

/// CPU time of the machine so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineTime {
    total: u64,
    steal: u64,
}

impl MachineTime {
    /// Reads `/proc/stat`.
    pub fn now() -> io::Result<Self> {
        Self::parse(&fs::read_to_string("/proc/stat")?).ok_or_else(malformed)
    }

    /// The share of time stolen by the hypervisor since `earlier`.
    pub fn steal_since(self, earlier: Self) -> f64 {
        let total = self.total.saturating_sub(earlier.total);
        let steal = self.steal.saturating_sub(earlier.steal);
        if total == 0 { 0.0 } else { steal as f64 / total as f64 }
    }

    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        // user nice system idle iowait irq softirq steal guest guest_nice (proc_stat(5)); the
        // last two are part of the first two.
        let times: Vec<u64> =
            line.split_ascii_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        Some(Self { total: times.iter().sum(), steal: *times.get(7)? })
    }
}

/// Field numbers of `/proc/PID/stat` (proc_pid_stat(5)).
const UTIME: usize = 14;
const STIME: usize = 15;
const POLICY: usize = 41;

/// The field `number` of a stat line; the name in parentheses, field 2, may contain anything.
fn field(stat: &str, number: usize) -> io::Result<u64> {
    let after_name = &stat[stat.rfind(')').ok_or_else(malformed)? + 1..];
    let text = after_name.split_ascii_whitespace().nth(number - 3);
    text.and_then(|text| text.parse().ok()).ok_or_else(malformed)
}

fn ticks_per_second() -> io::Result<u64> {
    let ticks = sysconf(SysconfVar::CLK_TCK)?.unwrap_or(100);
    u64::try_from(ticks).map_err(|_| malformed())
}

fn malformed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "unexpected text under /proc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_machine_is_told_by_the_flags_of_its_processors() {
        assert!(has_hypervisor("model name\t: x\nflags\t\t: fpu sse hypervisor lahf_lm\n"));
        assert!(!has_hypervisor("model name\t: hypervisor\nflags\t\t: fpu sse\n"));
        assert!(!has_hypervisor(""));
    }

    #[test]
    fn fields_are_counted_after_a_name_with_spaces_and_parentheses() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13";
        assert_eq!(field(stat, UTIME).unwrap(), 11);
        assert_eq!(field(stat, STIME).unwrap(), 12);
        assert!(field(stat, POLICY).is_err());
        assert!(field("", UTIME).is_err());
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let earlier = MachineTime::parse("cpu  10 0 10 80 0 0 0 0 5 5\ncpu0 1").unwrap();
        let later = MachineTime::parse("cpu  20 0 20 150 0 0 0 10 9 9\n").unwrap();
        assert!((later.steal_since(earlier) - 0.1).abs() < 1e-9);
        assert_eq!(MachineTime::parse("cpu0 1 2"), None);
    }

    #[test]
    fn a_busy_process_uses_cpu_time() {
        let pid = std::process::id();
        let before = cpu_time_ns(pid).unwrap();
        let mut sum = 0u64;
        // 30 ms: three ticks of /proc.
        while cpu_time_ns(pid).unwrap() < before + 30_000_000 {
            sum = (0..100_000).fold(sum, |sum, i| std::hint::black_box(sum ^ i));
        }
        assert!(load_average().unwrap() >= 0.0);
        assert!(!is_realtime(pid).unwrap());
    }
}
