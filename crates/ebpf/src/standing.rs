//! What a sendbox puts at its WAN port, by the names that tell it from what others put there.

/// Handle of the HTB qdisc at the root of the WAN port, `fb:` to tc(8): what somebody else puts there is hardly ever
/// called so, and is not to be taken for it.
pub const QDISC: u32 = 0xfb << 16;
/// Name of the program at the way out of the WAN port, as the kernel tells it.
pub const CLASSIFY: &str = "classify";
