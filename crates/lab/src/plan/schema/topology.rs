//! Keys of many sites.

use super::{SHARE, Section, key};

/// `[topology]`.
pub static TOPOLOGY: Section = Section {
    heading: "[topology]",
    summary: "Many sites at routers, which transit links join, drawn from the seed: routers that have \
              many links get more of them, and what sites send follows the gravity model. Each transit \
              link is like [bottleneck], with half to one and a half of its delay. Connections of a \
              flow run between sites that are drawn for each, and rows are those of NAME-deployers and \
              NAME-others. With `--backend sim` alone.",
    keys: &[
        key(
            "sites",
            "a whole number, 2 to 2000, at least that of the routers",
            "",
            "how many sites there are, at least one at each router",
        ),
        key(
            "routers",
            "a whole number, 2 to 200",
            "",
            "how many routers join the sites; each but two has links to two of those before it",
        ),
        key(
            "peers",
            "a whole number, 1 to 100",
            "1",
            "to how many sites at other routers each site sends",
        ),
        key(
            "utilization",
            "a share above 0, at most 1, such as \"85%\"",
            "\"85%\"",
            "answers offered to a transit link over its rate, which is at least that of the bottleneck; \
             headers and acknowledgements come on top",
        ),
        key(
            "deployment",
            SHARE,
            "\"100%\"",
            "share of the sites that have a sendbox, with a bundle like the plan's to each site that \
             they send to; always the first of the same random order",
        ),
    ],
};
