//! Keys of many sites.

use super::{Kind, SHARE, Section, key};

/// `[topology]`.
pub static TOPOLOGY: Section = Section {
    summary: "Many sites at routers that transit links join, drawn from the seed. Routers with \
              many links attract more links; site traffic follows the gravity model. Each transit \
              link is like [bottleneck], with 0.5 to 1.5 times its delay. Each connection of a \
              flow runs between two randomly drawn sites. Rows are NAME-deployers and NAME-others. \
              Only with `--backend sim`.",
    keys: &[
        key("sites", Kind::Whole(2, 2000), "", "number of sites, at least one at each router")
            .also(", at least the number of routers"),
        key(
            "routers",
            Kind::Whole(2, 200),
            "",
            "number of routers that join the sites; each, except the first two, has links to two \
             earlier routers",
        ),
        key(
            "peers",
            Kind::Whole(1, 100),
            "1",
            "number of sites at other routers that each site sends to",
        ),
        key(
            "utilization",
            SHARE,
            "\"85%\"",
            "load offered to a transit link divided by its rate, counting responses without \
             headers and acknowledgements; its rate is at least the bottleneck's",
        )
        .also(", above 0"),
        key(
            "deployment",
            SHARE,
            "\"100%\"",
            "share of the sites that have a sendbox, with a bundle like the plan's to each \
             destination site; sites deploy in one fixed random order",
        ),
    ],
};
