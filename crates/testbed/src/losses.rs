//! Losses of a run's boxes, from their own counters.

use forebay_host::daemon::status::Status;

/// Losses of a box that no fault explains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    /// Rows that the trace lacks.
    pub rows: u64,
    /// Packets lost in the rings of the box's ports.
    pub packets: u64,
    /// Boundaries lost between the receivebox's BPF program and its process.
    pub boundaries: u64,
    /// Times that the box handed its traffic back to the kernel because it could not keep up.
    pub hand_backs: u64,
}

impl Losses {
    /// Losses that the box has reported since its start.
    pub fn said_by(status: &Status) -> Self {
        let counters = || status.ports.iter().flat_map(|port| &port.counters);
        let sum = |wanted: &str| -> u64 {
            counters().filter(|(name, _)| name == wanted).map(|(_, count)| count).sum()
        };
        Self {
            rows: status.trace_rows_lost,
            packets: sum("ring_drops") + sum("oversized") + sum("unclaimed_lost"),
            boundaries: sum("boundaries_lost"),
            hand_backs: sum("handed_back"),
        }
    }

    /// Losses of a box that continues after a freeze, without hand-backs. The packets in its rings may
    /// make it hand back once more, at an unpredictable time.
    pub fn explained_by_a_freeze(self) -> Self {
        Self { hand_backs: 0, ..self }
    }

    /// Adds the losses that a box counted between two status answers.
    pub fn add_since(&mut self, before: Self, after: Self) {
        self.rows += after.rows.saturating_sub(before.rows);
        self.packets += after.packets.saturating_sub(before.packets);
        self.boundaries += after.boundaries.saturating_sub(before.boundaries);
        self.hand_backs += after.hand_backs.saturating_sub(before.hand_backs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_host::daemon::config::Role;
    use forebay_host::daemon::status::PortStatus;

    fn status(rows: u64, ports: &[&[(&str, u64)]]) -> Status {
        let port = |counters: &&[(&str, u64)]| PortStatus {
            counters: counters.iter().map(|(name, count)| ((*name).into(), *count)).collect(),
            ..PortStatus::default()
        };
        Status {
            trace_rows_lost: rows,
            ports: ports.iter().map(port).collect(),
            ..Status::new(Role::Sendbox, false)
        }
    }

    #[test]
    fn losses_count_per_port_without_kernel_packets() {
        let lan = [
            ("captured", 90),
            ("passed_stale", 80),
            ("ring_drops", 3),
            ("oversized", 4),
            ("unclaimed_lost", 5),
            ("handed_back", 1),
        ];
        let sendbox = Losses::said_by(&status(2, &[&lan, &[("ring_drops", 10)]]));
        assert_eq!(sendbox, Losses { rows: 2, packets: 22, boundaries: 0, hand_backs: 1 });
        let receivebox = Losses::said_by(&status(0, &[&[("boundaries_lost", 6)]]));
        assert_eq!(receivebox, Losses { boundaries: 6, ..Losses::default() });
    }

    #[test]
    fn losses_of_frozen_box_can_be_excluded() {
        let said = |packets| Losses { packets, ..Losses::default() };
        let mut losses = Losses::default();
        losses.add_since(said(0), said(2));
        // Frozen at 2; 900 when it continues.
        losses.add_since(said(900), said(901));
        assert_eq!(losses, said(3));
    }

    #[test]
    fn kernel_handover_counts_unless_freeze_explains_it() {
        let said = |packets, hand_backs| Losses { packets, hand_backs, ..Losses::default() };
        let mut losses = Losses::default();
        losses.add_since(said(0, 0), said(0, 1));
        losses.add_since(said(0, 1), said(5, 3).explained_by_a_freeze());
        assert_eq!(losses, said(5, 1));
    }
}
