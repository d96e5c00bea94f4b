//! Process figures from the kernel: CPU time, scheduling, load and stolen time.

use std::fs;
use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, SysconfVar, sysconf};

/// Puts the calling thread under `SCHED_FIFO` with `priority` (1 to 99); false if this is not allowed.
pub fn try_realtime(priority: i32) -> bool {
    // SAFETY: all fields of sched_param are integers, for which zero is a valid value.
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

/// Puts the calling thread at `nice` (-20 to 19); false if not allowed.
pub fn try_nice(nice: i32) -> bool {
    // SAFETY: the call takes numbers alone; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) == 0 }
}

/// Whether a hypervisor runs this machine, according to the flags of its x86 processors (`hypervisor`,
/// bit 31 of ECX of CPUID leaf 1); false on other architectures.
pub fn is_virtual_machine() -> io::Result<bool> {
    Ok(has_hypervisor(&fs::read_to_string("/proc/cpuinfo")?))
}

fn has_hypervisor(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_ascii_whitespace().any(|flag| flag == "hypervisor"))
}

/// Keeps the calling thread on the processor `cpu`; false if this is not allowed.
pub fn try_keep_to(cpu: usize) -> bool {
    try_keep_among(&[cpu])
}

/// Keeps the calling thread on these processors, at least one; false if this is not allowed.
pub fn try_keep_among(cpus: &[usize]) -> bool {
    let mut only = CpuSet::new();
    let are_set = cpus.iter().all(|cpu| only.set(*cpu).is_ok());
    are_set && sched_setaffinity(Pid::from_raw(0), &only).is_ok()
}

/// Keeps the calling thread away from the processor `cpu`, unless it is the only one; false if this is
/// not allowed.
pub fn try_keep_off(cpu: usize) -> bool {
    let mut others = CpuSet::new();
    let allowed = processors().unwrap_or_default();
    for other in allowed.into_iter().filter(|other| *other != cpu) {
        if others.set(other).is_err() {
            return false;
        }
    }
    let is_alone = (0..CpuSet::count()).all(|cpu| !others.is_set(cpu).unwrap_or(false));
    is_alone || sched_setaffinity(Pid::from_raw(0), &others).is_ok()
}

/// Raises this process's limit of open files to its hard limit.
pub fn raise_file_limit() -> io::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

/// CPU time of process `pid` with all its threads (ns), read from its CPU clock. It is exact to the
/// nanosecond, where [`cpu_time_ns`] counts ticks. Both include the same work.
pub fn cpu_clock_ns(pid: u32) -> io::Result<u64> {
    let time = clock_gettime(clock_getcpuclockid(Pid::from_raw(pid.cast_signed()))?)?;
    Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}

/// The kernel thread for left-over packet work of the processor `cpu` (`ksoftirqd`). `None` if it is
/// not visible, as from another PID namespace.
pub fn ksoftirqd(cpu: usize) -> io::Result<Option<u32>> {
    let wanted = format!("ksoftirqd/{cpu}");
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // The process may have ended meanwhile. Only kernel threads have no command line.
        let read = |file| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
        if read("comm").trim_end() == wanted && read("cmdline").is_empty() {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

/// The processors on which the calling thread may run, ascending.
pub fn processors() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false)).collect())
}

/// User and system time of process `pid` with all its threads (ns). It includes packet work (softirq)
/// that ran in its context, even for other processes. It excludes work in kernel threads.
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

    /// Share of time that the hypervisor stole since `earlier`.
    pub fn steal_since(self, earlier: Self) -> f64 {
        let total = self.total.saturating_sub(earlier.total);
        let steal = self.steal.saturating_sub(earlier.steal);
        if total == 0 { 0.0 } else { steal as f64 / total as f64 }
    }

    fn parse(stat: &str) -> Option<Self> {
        let times = times(stat.lines().next()?.strip_prefix("cpu ")?)?;
        Some(Self { total: times.iter().sum(), steal: times[7] })
    }
}

/// Use of one processor's time so far, from the ticks of `/proc/stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// Idle time.
    pub idle_ns: u64,
    /// Packet and timer work of the kernel. The CPU time of the interrupted process includes it too,
    /// unless the kernel was built with `CONFIG_IRQ_TIME_ACCOUNTING`.
    pub softirq_ns: u64,
    /// Stolen by the hypervisor.
    pub steal_ns: u64,
    /// Sum of all times.
    pub total_ns: u64,
}

impl ProcessorTime {
    /// Reads `/proc/stat` for the processor `cpu`.
    pub fn now(cpu: usize) -> io::Result<Self> {
        let tick_ns = 1_000_000_000 / ticks_per_second()?;
        Self::parse(&fs::read_to_string("/proc/stat")?, cpu, tick_ns).ok_or_else(malformed)
    }

    /// Differences from `earlier`.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
            softirq_ns: self.softirq_ns.saturating_sub(earlier.softirq_ns),
            steal_ns: self.steal_ns.saturating_sub(earlier.steal_ns),
            total_ns: self.total_ns.saturating_sub(earlier.total_ns),
        }
    }

    fn parse(stat: &str, cpu: usize, tick_ns: u64) -> Option<Self> {
        let name = format!("cpu{cpu} ");
        let times = times(stat.lines().find_map(|line| line.strip_prefix(&name))?)?;
        Some(Self {
            idle_ns: (times[3] + times[4]) * tick_ns,
            softirq_ns: times[6] * tick_ns,
            steal_ns: times[7] * tick_ns,
            total_ns: times.iter().sum::<u64>() * tick_ns,
        })
    }
}

/// user nice system idle iowait irq softirq steal (proc_stat(5)). guest and guest_nice, which follow,
/// are part of the first two.
fn times(line: &str) -> Option<[u64; 8]> {
    let times: Vec<u64> =
        line.split_ascii_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
    times.try_into().ok()
}

/// Field `utime` of `/proc/PID/stat` (proc_pid_stat(5)): time in user space, in clock ticks.
const UTIME: usize = 14;
/// Field `stime` of `/proc/PID/stat`: time in the kernel, in clock ticks.
const STIME: usize = 15;
/// Field `policy` of `/proc/PID/stat`: the scheduling policy.
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
    fn kernel_thread_of_processor_is_found_by_name() {
        // In containers it may be hidden.
        if let Some(pid) = ksoftirqd(0).unwrap() {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
            assert_eq!(name.trim_end(), "ksoftirqd/0");
            assert!(cpu_clock_ns(pid).is_ok());
        }
        assert_eq!(ksoftirqd(1_000_000).unwrap(), None);
    }

    #[test]
    fn virtual_machine_is_detected_by_processor_flags() {
        assert!(has_hypervisor("model name\t: x\nflags\t\t: fpu sse hypervisor lahf_lm\n"));
        assert!(!has_hypervisor("model name\t: hypervisor\nflags\t\t: fpu sse\n"));
        assert!(!has_hypervisor(""));
    }

    #[test]
    fn stat_fields_follow_names_with_parentheses() {
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
    fn processor_time_is_read_from_its_own_line() {
        let stat = "cpu  1 2 3 4 5 6 7 8 0 0\ncpu1 9 9 9 9 9 9 9 9\ncpu10 1 2 3 4 5 6 7 8 9 9\n";
        let time = ProcessorTime::parse(stat, 10, 10).unwrap();
        let expected = ProcessorTime { idle_ns: 90, softirq_ns: 70, steal_ns: 80, total_ns: 360 };
        assert_eq!(time, expected);
        assert_eq!(ProcessorTime::parse(stat, 0, 10), None);
        assert_eq!(time.since(time), ProcessorTime::default());
    }

    #[test]
    fn a_busy_process_uses_cpu_time() {
        let pid = std::process::id();
        let before = cpu_time_ns(pid).unwrap();
        let mut sum = 0u64;
        // 30 ms: three ticks of /proc.
        let exactly = cpu_clock_ns(pid).unwrap();
        while cpu_time_ns(pid).unwrap() < before + 30_000_000 {
            sum = (0..100_000).fold(sum, |sum, i| std::hint::black_box(sum ^ i));
        }
        // A tick may have begun before, and the kernel may have charged a tick that was hardly used.
        assert!(cpu_clock_ns(pid).unwrap() >= exactly + 10_000_000);
        assert!(load_average().unwrap() >= 0.0);
    }

    #[test]
    fn a_usual_process_is_not_realtime() {
        // Threads of other tests in this process may be.
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let is = is_realtime(other.id());
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!is.unwrap());
    }
}
