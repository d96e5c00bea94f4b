//! Keeps the sampler in step with the settings and addresses of a sendbox.

use std::net::IpAddr;

use forebay_core::bundle::receivebox::Receivebox;
use forebay_core::bundle::scope::AddressSet;
use forebay_core::bundle::{BlockVersion, EpochSize, Nat, SamplingKey};
use forebay_ebpf::MAX_LEFT_OUT;

use super::Watch;
use super::sampling::Sampling;
use crate::daemon::config::Peer;
use crate::daemon::observer::names::Names;

impl Watch {
    /// Sets the sampler to the sendbox's epoch size, key and addresses.
    pub(super) fn follow_sendbox(
        &mut self,
        sampler: &mut dyn Sampling,
        own: &[IpAddr],
        names: &Names,
    ) -> Result<(), forebay_ebpf::Error> {
        let apart = Apart::of(&self.receivebox);
        if apart != self.apart {
            self.apart = apart;
            self.leave_out(sampler, own, names)?;
        }
        let wanted = sampled_with(&self.receivebox);
        if wanted == self.sampled_with {
            return Ok(());
        }
        let (key, version, epoch_size) = wanted;
        if (key, version) != (self.sampled_with.0, self.sampled_with.1) {
            sampler.change(&[], vec![self.sampled()])?;
        } else {
            sampler.set_epoch_size(self.config.id, epoch_size);
        }
        self.sampled_with = wanted;
        Ok(())
    }

    /// Has the sampler leave out the sendbox's own packets, but none if NAT gives its hosts the same address.
    /// If the sendbox does not count packets to boxes, packets to this one, `own`, are left out, too.
    pub(super) fn leave_out(
        &self,
        sampler: &mut dyn Sampling,
        own: &[IpAddr],
        names: &Names,
    ) -> Result<(), forebay_ebpf::Error> {
        let Apart { counts_boxes, senders } = &self.apart;
        sampler.set_left_out(self.config.id, if *counts_boxes { &[] } else { own })?;
        if self.config.nat.is_some_and(Nat::changes_source) {
            return sampler.set_senders(self.config.id, &[]);
        }
        let mut sources: Vec<IpAddr> = match &self.config.peer {
            // The sendbox may count packets that it sends itself.
            _ if *counts_boxes && senders.is_some() => Vec::new(),
            Peer::At(address) => vec![address.ip()],
            Peer::Named { name, .. } => {
                names.get(name).map_or_else(Vec::new, |resolved| resolved.addresses.clone())
            }
        };
        for address in senders.iter().flat_map(AddressSet::addresses).take(MAX_LEFT_OUT) {
            if !sources.contains(&address) {
                sources.push(address);
            }
        }
        sources.truncate(MAX_LEFT_OUT);
        sampler.set_senders(self.config.id, &sources)
    }
}

/// Traffic left out of a bundle, as far as the sendbox has reported it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Apart {
    /// Both boxes leave out only messages among the packets to boxes.
    counts_boxes: bool,
    /// Addresses from which the sendbox sends packets that it does not count; `None`: not known.
    senders: Option<AddressSet>,
}

impl Apart {
    fn of(receivebox: &Receivebox) -> Self {
        Self {
            counts_boxes: receivebox.counts_boxes(),
            senders: receivebox.sendbox_addresses().cloned(),
        }
    }
}

/// The setting for the sampler.
pub(super) fn sampled_with(receivebox: &Receivebox) -> (SamplingKey, BlockVersion, EpochSize) {
    // Without a common version nothing is reported, so any version will do.
    let version = receivebox.block_version().unwrap_or_default();
    (receivebox.sampling_key(), version, receivebox.sampling_size())
}
