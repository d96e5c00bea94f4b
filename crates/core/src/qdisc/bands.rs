//! Bands: disciplines of any kind side by side; the class of a packet names one.
//!
//! ```text
//! band of a packet = min(Packet::class(), bands - 1)
//! ```
//! The discipline that owns the bands decides which band sends next.

use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;

use crate::packet::Packet;
use crate::qdisc::classify::{CLASSES_MAX, Classifier, has_classes};
use crate::qdisc::{Backlog, DropReason, DropSink, Qdisc, build_nested, given};
use crate::spec::{DescribedParam, Spec, SpecError};
use crate::units::{Rate, Timestamp};

/// The parameter of every discipline with bands.
pub(super) const BANDS: DescribedParam = DescribedParam {
    name: "bands",
    summary: "one discipline for each class, in order",
    default: None,
    allowed: "a list of 1 to 16 qdiscs such as [{ kind = \"sfq\" }, { kind = \"fifo\" }]",
};

/// Allowed disciplines of a band, for error texts.
const BAND_ALLOWED: &str =
    "a qdisc without classes: the class of a packet already selects its band";

/// One discipline of [`Bands`].
pub(super) type Band<P> = Box<dyn Qdisc<P> + Send>;

/// The bands of a discipline, in the order of their classes.
pub(super) struct Bands<P: Packet>(pub Vec<Band<P>>);

impl<P: Packet> Bands<P> {
    /// The bands that `spec` lists, which may be nested `levels` deep; its classes are checked, too.
    pub fn from_spec(spec: &Spec, levels: usize) -> Result<Self, SpecError>
    where
        P: Send + 'static,
    {
        let bands = given(spec, BANDS.name, spec.nested_list(BANDS.name))?;
        if !(1..=CLASSES_MAX).contains(&bands.len()) {
            let value = format!("{} bands", bands.len());
            return Err(SpecError::new(BANDS.name, &value, "1 to 16 bands"));
        }
        Classifier::from_spec(spec)?;
        let build_band = |(index, band): (usize, &Spec)| {
            let band = if has_classes(band) {
                Err(SpecError::new("kind", &band.kind, BAND_ALLOWED))
            } else {
                build_nested(band, levels - 1)
            };
            band.map_err(|error| error.within(&format!("bands[{index}]")))
        };
        bands.iter().enumerate().map(build_band).collect::<Result<_, _>>().map(Self)
    }

    /// Gives `packet` to the band of its class. Without any band it is dropped.
    pub fn enqueue(&mut self, now: Timestamp, packet: P, drops: &mut dyn DropSink<P>) {
        let last = self.0.len().saturating_sub(1);
        match self.0.get_mut(usize::from(packet.class()).min(last)) {
            Some(band) => band.enqueue(now, packet, drops),
            None => drops.dropped(packet, DropReason::Overlimit),
        }
    }

    /// The earliest timer of a band.
    pub fn next_timer(&self) -> Option<Timestamp> {
        self.0.iter().filter_map(|band| band.next_timer()).min()
    }

    /// The backlog of all bands.
    pub fn backlog(&self) -> Backlog {
        self.0.iter().map(|band| band.backlog()).fold(Backlog::default(), |sum, band| Backlog {
            packets: sum.packets + band.packets,
            bytes: sum.bytes + band.bytes,
        })
    }

    /// Passes `rate` to every band: any band may have all of it.
    pub fn set_service_rate(&mut self, rate: Option<Rate>) {
        self.0.iter_mut().for_each(|band| band.set_service_rate(rate));
    }
}

#[cfg(test)]
mod tests {
    use crate::qdisc::check;
    use crate::spec::{Spec, Value};
    use alloc::string::ToString;

    fn with_bands(kind: &str, bands: &[&Spec]) -> Spec {
        let bands = bands.iter().map(|band| Value::Spec((*band).clone())).collect();
        Spec::named(kind).with("bands", Value::List(bands))
    }

    #[test]
    fn any_classless_discipline_is_allowed_in_a_band() {
        let fifo = Spec::named("fifo");
        let weighted = Spec::named("sfq")
            .with("weights", Value::List([4, 1].map(Value::Integer).to_vec()))
            .with("classes", Value::List([].into()));
        assert_eq!(check(&weighted), Ok(()));
        let shaper = |inner: &Spec| {
            let rate = Value::Text("1Mbit/s".into());
            Spec::named("shaper").with("rate", rate).with("inner", Value::Spec(inner.clone()))
        };
        for kind in ["prio", "ets"] {
            for name in ["fifo", "sfq", "drr", "codel", "fq_codel", "pie", "red", "las"] {
                let band = Spec::named(name);
                let spec = shaper(&with_bands(kind, &[&band, &shaper(&band)]));
                assert_eq!(check(&spec), Ok(()), "{spec}");
            }
            let prio = with_bands("prio", &[&fifo]);
            for inner in [&prio, &with_bands("ets", &[&fifo]), &weighted] {
                for band in [inner.clone(), shaper(inner)] {
                    let error = check(&with_bands(kind, &[&fifo, &band])).unwrap_err();
                    assert_eq!(error.key, "bands[1].kind", "{error}");
                    assert!(error.to_string().contains("a qdisc without classes"), "{error}");
                }
            }
        }
    }

    #[test]
    fn one_to_sixteen_bands_are_allowed() {
        let fifo = Spec::named("fifo");
        for (count, is_allowed) in [(0, false), (1, true), (16, true), (17, false)] {
            for kind in ["prio", "ets"] {
                let spec = with_bands(kind, &alloc::vec![&fifo; count]);
                assert_eq!(check(&spec).is_ok(), is_allowed, "{count} bands in {kind}");
            }
        }
    }
}
