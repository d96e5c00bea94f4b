//! Behaviour that depends on the kernel's version.

use libbpf_rs::btf::types::MemberAttr;
use libbpf_rs::btf::{Btf, types};
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};

use super::super::Datapath;
use super::super::load::{Hook, register_for};
use super::loopback::{is_registered, maps_of, options, until};
use crate::Error;
use crate::program::tests::loaded;

#[test]
fn rejected_program_error_quotes_the_verifier() {
    let Some(datapath) = loaded(Datapath::register(&options())) else { return };
    drop(datapath);
    // The entry for other kernels reads arguments that this kernel does not pass.
    let hook = Hook::of_kernel();
    let other = Hook { is_old: !hook.is_old, ..hook };
    let options = options();
    let error = register_for(&options, other).map(drop).unwrap_err();
    assert!(matches!(error, Error::Kernel { program: "tcp_datapath", .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("Linux 6.4 or later") && text.contains("invalid"), "{text}");
    assert!(!is_registered(&options.name));
}

/// Where the kernel has tp->snd_cwnd_stamp.
fn offset_of_stamp() -> i16 {
    let btf = Btf::from_vmlinux().expect("the kernel's types");
    let sock: types::Struct<'_> = btf.type_by_name("tcp_sock").expect("its sockets");
    let is_it = |name: &std::ffi::OsStr| name == "snd_cwnd_stamp";
    let member = sock.iter().find(|member| member.name.is_some_and(is_it)).expect("the stamp");
    let (MemberAttr::Normal { offset } | MemberAttr::BitField { offset, .. }) = member.attr;
    (offset / 8) as i16
}

/// Stores at this offset in the programs of a datapath, as the verifier has left them.
fn stores_at(datapath: &Datapath, offset: i16) -> usize {
    // BPF_ST and BPF_STX, BPF_MEM (include/uapi/linux/bpf.h).
    let is_store = |code: u8| [2, 3].contains(&(code & 7)) && code & 0xe0 == 0x60;
    let maps = maps_of(datapath);
    let asked =
        ProgInfoQueryOptions::default().include_map_ids(true).include_xlated_prog_insns(true);
    ProgInfoIter::with_query_opts(asked)
        .filter(|program| program.map_ids.iter().any(|id| maps.contains(id)))
        .flat_map(|program| {
            program
                .xlated_prog_insns
                .chunks_exact(8)
                .map(|it| (it[0], [it[2], it[3]]))
                .collect::<Vec<_>>()
        })
        .filter(|(code, at)| is_store(*code) && i16::from_le_bytes(*at) == offset)
        .count()
}

#[test]
fn programs_omit_window_stamp_where_kernel_forbids_it() {
    let offset = offset_of_stamp();
    let hook = Hook::of_kernel();
    let options = options();
    let without = Hook { has_stamp: false, ..hook };
    let Some(datapath) = loaded(register_for(&options, without)) else { return };
    println!("without the stamp: {:?}", datapath.instructions());
    assert_eq!(stores_at(&datapath, offset), 0);
    drop(datapath);
    until("the name is unregistered", || !is_registered(&options.name));
    if hook.has_stamp {
        let datapath = Datapath::register(&options).expect("registered");
        assert!(stores_at(&datapath, offset) > 0, "the test sees it where it is");
    }
}
