//! Loading and registering a congestion control.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::ReferencesType;
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{
    Map, MapCore, MapFlags, MapHandle, MapMut, OpenMapMut, RingBufferBuilder, libbpf_sys,
};

use super::halves::{self, Halves};
use super::pins::{MAPS, Pins, c_path};
use super::shares::{self, Shares};
use super::slot::{Reporting, Slots, law};
use super::{Datapath, Fallback, NAME_MAX, Options};
use crate::mapped::MappedWords;
use crate::skel::tcp_datapath::{self as skel, types as shared};
use crate::{Error, program};

/// Slots that `struct flow` can name.
const FLOWS_MAX: u32 = 65_535;
/// Records that may wait: 1 GiB, and the other half takes as much again.
const RECORDS_MAX: u32 = 1 << 23;
/// `struct tcp_congestion_ops` begins with the name and the flags.
const FLAGS_AT: usize = std::mem::offset_of!(shared::tcp_congestion_ops, flags);
/// tcp_congestion_ops.flags: usable in any network namespace, and by any user.
const NON_RESTRICTED: u32 = 1;
/// tcp_congestion_ops.flags: `TCP_CONG_NEEDS_ECN`.
const NEEDS_ECN: u32 = 2;
/// Arguments of cong_control before Linux 6.10.
const OLD_ARGUMENTS: usize = 2;

/// Whether a name can be registered.
pub(super) fn check_name(name: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_plain) {
        return Err(Error::CongestionControlName { name: name.to_string(), max: NAME_MAX });
    }
    Ok(())
}

/// Features of the kernel's interface to congestion controls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hook {
    /// `cong_control` has two arguments and not four.
    pub(super) is_old: bool,
    /// `snd_cwnd_stamp` may be written.
    pub(super) has_stamp: bool,
    /// As [`Datapath::left_out`] says; 0: the kernel calls the programs.
    pub(super) left_out: u32,
    /// The kernel does not call `init`.
    pub(super) is_init_left_out: bool,
}

impl Hook {
    /// The features of the running kernel. Linux 6.10 brought both the arguments and the
    /// stamp (`bpf_tcp_ca_btf_struct_access`), and only the arguments can be seen from here.
    pub(super) fn of_kernel() -> Self {
        let is_old = Self::has_old_cong_control().unwrap_or(false);
        Self { is_old, has_stamp: !is_old, left_out: 0, is_init_left_out: false }
    }

    fn has_old_cong_control() -> Option<bool> {
        let btf = Btf::from_vmlinux().ok()?;
        let ops: types::Struct<'_> = btf.type_by_name("tcp_congestion_ops")?;
        let named = |name: &std::ffi::OsStr| name == "cong_control";
        let member = ops.iter().find(|member| member.name.is_some_and(named))?;
        let pointer: types::Ptr<'_> = btf.type_by_id(member.ty)?;
        let prototype = types::FuncProto::try_from(pointer.referenced_type()).ok()?;
        Some(prototype.iter().count() == OLD_ARGUMENTS)
    }
}

/// Gives the congestion control behind a struct_ops map its name and flags.
pub(super) fn set_name(map: &mut OpenMapMut<'_>, name: &str, ecn: bool) {
    let Some(ops) = map.initial_value_mut() else { return };
    let mut bytes = [0; FLAGS_AT];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    ops[..FLAGS_AT].copy_from_slice(&bytes);
    let flags = NON_RESTRICTED | if ecn { NEEDS_ECN } else { 0 };
    ops[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&flags.to_ne_bytes());
}

/// Registers a struct_ops map under its name. A pinned link that has the name is taken over.
pub(super) fn attach(
    map: &mut MapMut<'_>,
    name: &str,
    pinned: Option<&Path>,
) -> Result<OwnedFd, Error> {
    let link = match map.attach_struct_ops() {
        Ok(link) => link,
        Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => {
            let taken = Error::NameTaken { name: name.to_string() };
            return pinned.map_or(Err(taken), |path| take_over(map.as_fd(), path, name));
        }
        Err(error)
            if error.kind() == libbpf_rs::ErrorKind::PermissionDenied && !program::may_load() =>
        {
            return Err(Error::Privilege);
        }
        Err(error) => {
            let reason = error.to_string();
            return Err(Error::Register { name: name.to_string(), reason });
        }
    };
    program::descriptor("struct_ops link", link.as_fd())
}

/// Puts `map`, which is loaded, in the place of the map that a pinned link has registered.
fn take_over(map: BorrowedFd<'_>, path: &Path, name: &str) -> Result<OwnedFd, Error> {
    let failed =
        |error: io::Error| Error::Register { name: name.to_string(), reason: error.to_string() };
    let file = c_path(path);
    // SAFETY: a terminated string that outlives the call.
    let fd = unsafe { libbpf_sys::bpf_obj_get(file.as_ptr()) };
    if fd == -libc::ENOENT {
        return Err(Error::NameTaken { name: name.to_string() });
    }
    if fd < 0 {
        return Err(failed(io::Error::from_raw_os_error(-fd)));
    }
    // SAFETY: the kernel just gave us this descriptor.
    let link = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: two open descriptors, and no options.
    let status =
        unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), map.as_raw_fd(), std::ptr::null()) };
    if status < 0 {
        return Err(failed(io::Error::from_raw_os_error(-status)));
    }
    Ok(link)
}

/// Instructions that the verifier looked at in a loaded program; 0 where the kernel does not
/// say.
pub(super) fn verified(program: BorrowedFd<'_>) -> u32 {
    program::info(program).map_or(0, |info| info.verified_insns)
}

fn set_up(
    open: &mut skel::OpenTcpDatapathSkel<'_>,
    options: &Options,
    hook: Hook,
    pins: Option<&Pins>,
) -> Result<(), Error> {
    let maps = &mut open.maps;
    let flows = options.flows.clamp(1, FLOWS_MAX);
    let sized = [
        (&mut maps.records, Some(halves::entries(options.records.clamp(1, RECORDS_MAX)))),
        (&mut maps.wakes, None),
        (&mut maps.slots, Some(flows)),
        (&mut maps.modes, Some(flows)),
        (&mut maps.free_slots, Some(flows)),
        (&mut maps.counts, None),
        (&mut maps.owners, Some(flows)),
        (&mut maps.holders, Some(shares::entries(flows))),
    ];
    for (name, (map, entries)) in MAPS.into_iter().zip(sized) {
        let made = match (pins.and_then(|pins| pins.kept_map(name)), entries) {
            (Some(kept), _) => map.reuse_pinned_map(kept),
            (None, Some(entries)) => map.set_max_entries(entries),
            (None, None) => Ok(()),
        };
        made.map_err(Error::map(name))?;
    }
    set_name(&mut maps.datapath, &options.name, options.ecn);
    set_name(&mut maps.datapath_2, &options.name, options.ecn);
    let unfit = if hook.is_old { &mut maps.datapath } else { &mut maps.datapath_2 };
    unfit.set_autocreate(false).map_err(Error::map("tcp_datapath"))?;
    if let Some(rodata) = maps.rodata_data.as_deref_mut() {
        rodata.has_stamp = hook.has_stamp;
        let settings = &mut rodata.settings;
        settings.left_out = hook.left_out;
        settings.init_left_out.write(hook.is_init_left_out);
        settings.fallback = match options.fallback {
            Fallback::Reno => 0,
            Fallback::Cubic => 1,
        };
        settings.first = law(&options.first_terms(), Reporting::default());
    }
    Ok(())
}

/// Puts every slot into the queue.
fn fill(free_slots: &MapHandle, flows: u32) -> Result<(), Error> {
    for slot in 0..flows {
        free_slots
            .update(&[], &slot.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::map("free_slots"))?;
    }
    Ok(())
}

/// See [`Datapath::register`].
pub(super) fn register(options: &Options) -> Result<Datapath, Error> {
    register_for(options, Hook::of_kernel())
}

/// Registers for a kernel with this hook.
pub(super) fn register_for(options: &Options, hook: Hook) -> Result<Datapath, Error> {
    check_name(&options.name)?;
    program::quiet_libbpf();
    let mut storage = MaybeUninit::uninit();
    let mut open = skel::TcpDatapathSkelBuilder::default()
        .open(&mut storage)
        .map_err(Error::load("tcp_datapath"))?;
    let pins = options.pins.as_deref().map(Pins::open).transpose()?;
    set_up(&mut open, options, hook, pins.as_ref())?;
    let mut loaded = open.load().map_err(Error::load("tcp_datapath"))?;
    let mut instructions = Vec::new();
    let progs = &loaded.progs;
    let control = if hook.is_old { &progs.cong_control_2 } else { &progs.cong_control_4 };
    for (name, program) in [
        ("cong_control", control),
        ("init", &progs.datapath_init),
        ("release", &progs.datapath_release),
        ("ssthresh", &progs.datapath_ssthresh),
        ("set_state", &progs.datapath_set_state),
        ("cwnd_event", &progs.datapath_cwnd_event),
        ("undo_cwnd", &progs.datapath_undo_cwnd),
    ] {
        instructions.push((name, verified(program.as_fd())));
    }
    let maps = &mut loaded.maps;
    let flows = maps.slots.max_entries();
    let map_error = |map| move |source| Error::Map { map, source };
    let slots = Slots::new(maps.slots.as_fd(), flows as usize).map_err(map_error("slots"))?;
    let modes = MappedWords::new(maps.modes.as_fd(), flows as usize).map_err(map_error("modes"))?;
    let words = size_of::<shared::counters>() / 8;
    let counts = MappedWords::new(maps.counts.as_fd(), words).map_err(map_error("counts"))?;
    let entries = maps.records.max_entries();
    let records = MappedWords::new(maps.records.as_fd(), halves::words_of(entries));
    let records = records.map_err(map_error("records"))?;
    let halves = Halves::new(records, halves::size_of_half(entries));
    let shares = Shares::new(maps.holders.as_fd(), maps.owners.as_fd(), flows);
    let shares = shares.map_err(map_error("holders"))?;
    let all: [&Map<'_>; MAPS.len()] = [
        &maps.records,
        &maps.wakes,
        &maps.slots,
        &maps.modes,
        &maps.free_slots,
        &maps.counts,
        &maps.owners,
        &maps.holders,
    ];
    let mut handles = Vec::with_capacity(MAPS.len());
    for (name, map) in MAPS.into_iter().zip(all) {
        handles.push(program::handle(name, map)?);
    }
    let handles: [MapHandle; MAPS.len()] = handles.try_into().expect("one handle per name");
    let [_, wakes, _, _, free_slots, ..] = &handles;
    let pinned = pins.as_ref().and_then(Pins::kept_link);
    if pinned.is_none() {
        shares.prepare(flows).map_err(map_error("holders"))?;
        fill(free_slots, flows)?;
    }
    let mut ring = RingBufferBuilder::new();
    ring.add(wakes, |_| 0).map_err(Error::map("wakes"))?;
    let wakes = ring.build().map_err(Error::map("wakes"))?;
    let ops = if hook.is_old { &mut maps.datapath_2 } else { &mut maps.datapath };
    let link = attach(ops, &options.name, pinned.as_deref())?;
    Ok(Datapath {
        name: options.name.clone(),
        pins,
        slots,
        modes,
        shares,
        flows,
        counts,
        maps: handles,
        given_back: 0,
        halves,
        wakes,
        instructions,
        link,
    })
}
