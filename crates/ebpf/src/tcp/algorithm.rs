//! Laws of `forebay_core::cc` in the kernel alone: objects of `cargo xtask bpf-algorithms`.

use std::fmt;
use std::os::fd::AsFd;

use libbpf_rs::{MapCore, MapHandle, ObjectBuilder, OpenObject};

use super::Native;
use super::load::{attach, check_name, set_name, verified};
use crate::{Error, program};

/// Name and ELF object of each law.
mod objects {
    include!(concat!(env!("OUT_DIR"), "/algorithms.rs"));
}

/// Programs of `bpf/tcp_algorithm.bpf.c` and `bpf/tcp_paced.bpf.c` that run on a connection. Either has some.
const PROGRAMS: [&str; 9] = [
    "algorithm_cong_avoid",
    "algorithm_cong_control",
    "algorithm_cwnd_event",
    "algorithm_in_ack_event",
    "algorithm_init",
    "algorithm_release",
    "algorithm_ssthresh",
    "algorithm_set_state",
    "algorithm_undo_cwnd",
];
/// The program that tests run.
const CHECK: &str = "check_algorithm";

/// struct settings of `bpf/tcp_algorithm.bpf.c`.
#[derive(Clone, Copy, Default)]
struct Settings {
    is_recorded: u32,
    left_out: u32,
}

impl Settings {
    fn bytes(self) -> [u8; 8] {
        (u64::from(self.is_recorded) | u64::from(self.left_out) << 32).to_le_bytes()
    }
}

/// A law of core as BPF, with its default settings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CoreLaw {
    name: &'static str,
    object: &'static [u8],
}

impl fmt::Debug for CoreLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CoreLaw").field(&self.name).finish()
    }
}

impl CoreLaw {
    /// All algorithms of this program.
    pub fn all() -> impl Iterator<Item = Self> {
        objects::OBJECTS.iter().map(|&(name, object)| Self { name, object })
    }

    /// The law of this name in core, such as `vegas`.
    pub fn named(name: &str) -> Option<Self> {
        Self::all().find(|law| law.name == name)
    }

    /// Whether the law sets a pacing rate (`bpf/tcp_paced.bpf.c`).
    pub fn is_paced(self) -> bool {
        self.name == "bbr3"
    }

    /// Name of the programs in errors.
    fn program(self) -> &'static str {
        if self.is_paced() { "tcp_paced" } else { "tcp_algorithm" }
    }

    /// Core's name.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Loads its programs and registers them under `name`, for all network namespaces. Errors are as for
    /// [`super::Datapath::register`].
    pub fn register(self, name: &str) -> Result<Native, Error> {
        Ok(self.load(name, Settings::default())?.0)
    }

    /// Registers it with a ring of its calls and answers (`struct told`).
    #[cfg(test)]
    pub(super) fn record(self, name: &str) -> Result<(Native, MapHandle), Error> {
        let settings = Settings { is_recorded: 1, ..Settings::default() };
        let (native, calls) = self.load(name, settings)?;
        Ok((native, calls.expect("recorded")))
    }

    /// As [`super::Datapath::left_out`].
    #[cfg(test)]
    pub(super) fn left_out(self, name: &str, left_out: u32) -> Result<Native, Error> {
        Ok(self.load(name, Settings { left_out, ..Settings::default() })?.0)
    }

    /// Loads its programs, the test's among them, and registers nothing.
    #[cfg(test)]
    pub(super) fn check(self) -> Result<libbpf_rs::Object, Error> {
        self.open("checked", Settings::default(), true)?.load().map_err(Error::load(self.program()))
    }

    fn open(self, name: &str, settings: Settings, is_checked: bool) -> Result<OpenObject, Error> {
        program::quiet_libbpf();
        let mut open = ObjectBuilder::default()
            .open_memory(self.object)
            .map_err(Error::load(self.program()))?;
        for mut map in open.maps_mut() {
            match map.name().to_str() {
                Some("algorithm") => set_name(&mut map, name, false),
                Some("calls") => {
                    map.set_autocreate(settings.is_recorded != 0).map_err(Error::map("calls"))?
                }
                Some(".rodata.settings") => {
                    let value = map.initial_value_mut().expect("read-only data");
                    value.copy_from_slice(&settings.bytes());
                }
                _ => {}
            }
        }
        open.progs_mut()
            .filter(|program| program.name() == CHECK)
            .for_each(|mut program| program.set_autoload(is_checked));
        Ok(open)
    }

    fn load(self, name: &str, settings: Settings) -> Result<(Native, Option<MapHandle>), Error> {
        check_name(name)?;
        let open = self.open(name, settings, false)?;
        let mut object = open.load().map_err(Error::load(self.program()))?;
        let of = |called| {
            let program = object.progs().find(|program| program.name() == called)?;
            Some((called, verified(program.as_fd())))
        };
        let instructions = PROGRAMS.into_iter().filter_map(of).collect();
        let calls = object.maps().find(|map| settings.is_recorded != 0 && map.name() == "calls");
        let calls = calls.map(|map| program::handle("calls", &map)).transpose()?;
        let mut ops = object.maps_mut().find(|map| map.name() == "algorithm");
        let Some(ops) = &mut ops else {
            let reason = "the object registers nothing".to_string();
            return Err(Error::Register { name: name.to_string(), reason });
        };
        let link = attach(ops, name, None)?;
        Ok((Native::held(name, instructions, link), calls))
    }
}
