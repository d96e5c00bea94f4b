//! Names of the objects that a sendbox puts at its WAN port. Other programs' objects hardly ever have
//! them.

/// Handle of the HTB qdisc at the root of the WAN port, `fb:` to tc(8). A qdisc of another program hardly
/// ever has it, and must not be taken for the sendbox's.
pub const QDISC: u32 = 0xfb << 16;
/// Name of the program at the way out of the WAN port, as the kernel reports it.
pub const CLASSIFY: &str = "classify";
