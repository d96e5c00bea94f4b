//! Points of capture, with one interface each.

use super::CaptureError;

/// The end that sends data or pings: its own packets and those that arrive there.
pub const SENDER: usize = 0;
/// The other end.
pub const RECEIVER: usize = 1;
/// The first point of a link; each link has two.
const LINKS: usize = 2;

/// Name for all points.
const ALL: &str = "all";

/// The points of a run, and the selected ones.
#[derive(Clone, Debug)]
pub struct Points {
    names: Vec<String>,
    /// Number of each point's interface; `None`: not captured.
    interfaces: Vec<Option<u32>>,
}

impl Points {
    /// The points `wanted` of a run with these links. Refuses an unknown name.
    pub fn new(links: &[String], wanted: &[String]) -> Result<Self, CaptureError> {
        let of_links = links.iter().flat_map(|link| [format!("{link}-in"), format!("{link}-out")]);
        let ends = ["sender", "receiver"].map(String::from);
        let names: Vec<String> = ends.into_iter().chain(of_links).collect();
        if let Some(unknown) = wanted.iter().find(|name| *name != ALL && !names.contains(name)) {
            let allowed = format!("{}, or {ALL}", names.join(", "));
            return Err(CaptureError::Point { name: unknown.clone(), allowed });
        }
        let is_wanted = |name: &String| wanted.contains(name) || wanted.iter().any(|it| it == ALL);
        let mut next = 0..;
        let interfaces = names.iter().map(|name| if is_wanted(name) { next.next() } else { None });
        Ok(Self { interfaces: interfaces.collect(), names })
    }

    /// Names of the interfaces, in the order of their numbers.
    pub fn interfaces(&self) -> Vec<String> {
        let named = self.names.iter().zip(&self.interfaces);
        named.filter(|(_, number)| number.is_some()).map(|(name, _)| name.clone()).collect()
    }

    /// Number of the interface of `point`, if it is captured.
    pub fn interface(&self, point: usize) -> Option<u32> {
        self.interfaces[point]
    }
}

/// The point where packets arrive at a link, and the one where they leave its server.
pub const fn of_link(link: usize) -> [usize; 2] {
    [LINKS + 2 * link, LINKS + 2 * link + 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn points_are_chosen_by_name() {
        let links = texts(&["forward", "reverse"]);
        let points = Points::new(&links, &texts(&["forward-out", "sender"])).unwrap();
        assert_eq!(points.interfaces(), ["sender", "forward-out"]);
        assert_eq!([SENDER, RECEIVER].map(|it| points.interface(it)), [Some(0), None]);
        assert_eq!(of_link(0).map(|it| points.interface(it)), [None, Some(1)]);
        assert_eq!(of_link(1).map(|it| points.interface(it)), [None, None]);
        let all = Points::new(&links, &texts(&["all"])).unwrap();
        assert_eq!((all.interfaces().len(), all.interface(of_link(1)[1])), (6, Some(5)));
        let error = Points::new(&links, &texts(&["bottleneck"])).unwrap_err().to_string();
        let allowed = "sender, receiver, forward-in, forward-out, reverse-in, reverse-out, or all";
        assert_eq!(error, format!("--at bottleneck: allowed is {allowed}"));
    }
}
