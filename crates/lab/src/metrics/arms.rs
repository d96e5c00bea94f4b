//! What an arm is worth against the others, as [`summary`](crate::summary) works it out.

use super::entry::Pooling::Mean;
use super::entry::{Entry, entry};

/// What is known of an arm once all arms have run.
#[rustfmt::skip]
pub const METRICS: &[Entry] = &[
    entry("slowdown_p50_over_status_quo", "arm", "", Mean,
        "median slowdown over that of status_quo"),
    entry("slowdown_p99_over_status_quo", "arm", "", Mean,
        "99th percentile of the slowdown over that of status_quo"),
    entry("fct_p50_over_status_quo", "arm", "", Mean,
        "median completion time over that of status_quo"),
    entry("slowdown_p50_over_in_network_fq", "arm", "", Mean,
        "median slowdown over that of in_network_fq"),
    entry("gap_closed", "arm", "", Mean,
        "(status_quo - arm) / (status_quo - in_network_fq) of the median slowdown"),
    entry("large_paired_ratio_geomean", "arm", "", Mean,
        "geometric mean, over large requests, of slowdown over the request's slowdown in status_quo"),
    entry("bytes_over_status_quo", "arm", "", Mean, "payload bytes over those of status_quo"),
    entry("queue_total_over_status_quo", "arm", "", Mean,
        "bottleneck and sendbox queues over those of status_quo"),
];
