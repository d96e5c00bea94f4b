//! The structures of `include/forebay_cc.h`, field by field. A test compares them with the layout
//! of a C compiler.

use std::ffi::{c_char, c_void};

/// `FOREBAY_CC_ABI`.
pub(crate) const ABI: u32 = 1;
/// `FOREBAY_CC_NONE`.
pub(crate) const NONE: u64 = u64::MAX;

/// `struct forebay_cc_start`.
#[repr(C)]
pub(crate) struct Start {
    pub now_ns: u64,
    pub mss_bytes: u64,
    pub initial_cwnd_bytes: u64,
    pub seed: u64,
}

/// `struct forebay_cc_measurement`.
#[repr(C)]
pub(crate) struct Measured {
    pub interval_ns: u64,
    pub acked_bytes: u64,
    pub lost_bytes: u64,
    pub ecn_ce_bytes: u64,
    pub ect1_bytes: u64,
    pub rtt_latest_ns: u64,
    pub rtt_min_ns: u64,
    pub feedback_delay_ns: u64,
    pub one_way_ns: u64,
    pub send_rate_bits_per_s: u64,
    pub delivery_rate_bits_per_s: u64,
    pub train_rate_bits_per_s: u64,
    pub in_flight_bytes: u64,
    pub delivered_bytes: u64,
    pub prior_delivered_bytes: u64,
    pub lost_prior_delivered_bytes: u64,
    pub backlog_bytes: u64,
    pub idle_ppm: u64,
    pub app_limited: i32,
    pub cwnd_limited: i32,
}

/// `struct forebay_cc_limits`.
#[repr(C)]
pub(crate) struct Limits {
    pub cwnd_bytes: u64,
    pub ssthresh_bytes: u64,
    pub pacing_rate_bits_per_s: u64,
}

pub(crate) type Create = unsafe extern "C" fn(*const Start) -> *mut c_void;
pub(crate) type Destroy = unsafe extern "C" fn(*mut c_void);
pub(crate) type OnMeasurement = unsafe extern "C" fn(*mut c_void, u64, *const Measured);
pub(crate) type OnEvent = unsafe extern "C" fn(*mut c_void, u64, u32, i64);
pub(crate) type SetLimits = unsafe extern "C" fn(*const c_void, *mut Limits);
pub(crate) type NextTimer = unsafe extern "C" fn(*const c_void) -> u64;
pub(crate) type OnTimer = unsafe extern "C" fn(*mut c_void, u64);
pub(crate) type Phase = unsafe extern "C" fn(*const c_void) -> *const c_char;

/// `struct forebay_cc_algorithm`: the static that a crate declares and the C of its algorithm
/// exports.
#[repr(C)]
pub struct Callbacks {
    pub(crate) abi: u32,
    pub(crate) create: Option<Create>,
    pub(crate) destroy: Option<Destroy>,
    pub(crate) on_measurement: Option<OnMeasurement>,
    pub(crate) on_event: Option<OnEvent>,
    pub(crate) limits: Option<SetLimits>,
    pub(crate) next_timer_ns: Option<NextTimer>,
    pub(crate) on_timer: Option<OnTimer>,
    pub(crate) phase: Option<Phase>,
}
