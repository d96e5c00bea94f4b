//! The sampler follows what a sendbox says, and where that is.

use std::net::IpAddr;

use forebay_core::bundle::receivebox::Receivebox;
use forebay_core::bundle::{BlockVersion, EpochSize, Nat, SamplingKey};
use forebay_ebpf::{MAX_SENDERS, Sampler};

use super::Watch;
use crate::daemon::config::Peer;
use crate::daemon::observer::names::Names;

impl Watch {
    /// Sets the sampler to the sendbox's epoch size, key and addresses.
    pub(super) fn follow_sendbox(
        &mut self,
        sampler: &mut Sampler,
        names: &Names,
    ) -> Result<(), forebay_ebpf::Error> {
        let told = self.receivebox.sendbox_addresses();
        if let Some(told) = told.filter(|told| **told != self.senders) {
            self.senders = told.clone();
            self.leave_out_sendbox(sampler, names)?;
        }
        let wanted = sampled_with(&self.receivebox);
        if wanted == self.sampled_with {
            return Ok(());
        }
        let (key, version, epoch_size) = wanted;
        if (key, version) != (self.sampled_with.0, self.sampled_with.1) {
            sampler.set_bundle(self.config.id, self.sampling(&self.config))?;
        } else {
            sampler.set_epoch_size(self.config.id, epoch_size);
        }
        self.sampled_with = wanted;
        Ok(())
    }

    /// Has the sampler leave out what the sendbox sends itself, and nothing where NAT gives its hosts the same
    /// address.
    pub(super) fn leave_out_sendbox(
        &self,
        sampler: &mut Sampler,
        names: &Names,
    ) -> Result<(), forebay_ebpf::Error> {
        if self.config.nat.is_some_and(Nat::changes_source) {
            return sampler.set_senders(self.config.id, &[]);
        }
        let mut senders: Vec<IpAddr> = match &self.config.peer {
            Peer::At(address) => vec![address.ip()],
            Peer::Named { name, .. } => {
                names.get(name).map_or_else(Vec::new, |resolved| resolved.addresses.clone())
            }
        };
        for address in self.senders.addresses().take(MAX_SENDERS) {
            if !senders.contains(&address) {
                senders.push(address);
            }
        }
        senders.truncate(MAX_SENDERS);
        sampler.set_senders(self.config.id, &senders)
    }
}

/// What the sampler is to be set to.
pub(super) fn sampled_with(receivebox: &Receivebox) -> (SamplingKey, BlockVersion, EpochSize) {
    // Without a common version nothing is reported, whichever it is.
    let version = receivebox.block_version().unwrap_or_default();
    (receivebox.sampling_key(), version, receivebox.sampling_size())
}
