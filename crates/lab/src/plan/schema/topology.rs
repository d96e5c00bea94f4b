//! Keys of many sites.

use super::{Kind, SHARE, Section, key};

/// `[topology]`.
pub static TOPOLOGY: Section = Section {
    summary: "Many sites at routers, which transit links join, drawn from the seed: routers that have \
              many links get more of them, and what sites send follows the gravity model. Each transit \
              link is like [bottleneck], with half to one and a half of its delay. Connections of a \
              flow run between sites that are drawn for each, and rows are those of NAME-deployers and \
              NAME-others. With `--backend sim` alone.",
    keys: &[
        key(
            "sites",
            Kind::Whole(2, 2000),
            "",
            "how many sites there are, at least one at each router",
        )
        .also(", at least that of the routers"),
        key(
            "routers",
            Kind::Whole(2, 200),
            "",
            "how many routers join the sites; each but two has links to two of those before it",
        ),
        key(
            "peers",
            Kind::Whole(1, 100),
            "1",
            "to how many sites at other routers each site sends",
        ),
        key(
            "utilization",
            SHARE,
            "\"85%\"",
            "answers offered to a transit link over its rate, which is at least that of the bottleneck; \
             headers and acknowledgements come on top",
        )
        .also(", above 0"),
        key(
            "deployment",
            SHARE,
            "\"100%\"",
            "share of the sites that have a sendbox, with a bundle like the plan's to each site that \
             they send to; always the first of the same random order",
        ),
    ],
};
