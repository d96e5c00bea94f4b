//! The pages under `docs/` are the site's, their links have targets, and their lists are complete.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use forebay_core::bundle::wire::Reject;
use forebay_host::daemon::config::MAX_BUNDLES;
use forebay_host::log::events::EVENTS;

/// Pages of the site before its folders were named for readers, without `.html`.
const OLD_PAGES: &str = "
    agent architecture comparison decisions/README decisions/a-repair-has-records-too
    decisions/a-report-covers-a-while decisions/a-scenario-describes-a-run
    decisions/a-simulated-packet-is-four-words decisions/arms-differ-in-their-daemons-only
    decisions/back-ends-run-one-plan decisions/boxes-stay-outside-their-triangle decisions/cost-is-a-ratio-of-turns
    decisions/drains-end-with-the-measurements decisions/fair-queueing-with-a-limit-in-time
    decisions/late-processors-reject-runs decisions/laws-become-bpf-by-llvm decisions/libraries-that-are-not-used
    decisions/nimbus-stays-a-baseline decisions/ns3-is-compared-event-by-event decisions/ns3-speed-keeps-its-driver
    decisions/packages-come-from-debhelper decisions/rtnetlink-messages-come-from-a-library
    decisions/several-paths-show-in-the-order decisions/shape-only-while-it-pays decisions/silence-is-no-usual-gap
    decisions/simulated-linux-departs-from-its-rfcs decisions/tests-of-a-program-share-a-process
    decisions/the-agent-looks-from-time-to-time decisions/the-datapath-shares-plain-memory
    decisions/the-kernel-queues-in-htb decisions/the-log-keeps-its-own-queue decisions/the-queue-to-aim-for
    decisions/unseen-shares-are-tested-early evaluation failures howto/add-a-datapath
    howto/add-a-metric-with-a-figure howto/add-a-plan-key howto/add-a-qdisc howto/add-a-tuning-number
    howto/add-an-algorithm howto/bring-your-own-algorithm howto/carry-high-rates howto/catch-a-regression
    howto/change-a-running-box howto/cluster howto/compare-with-ns3 howto/connect-two-sites
    howto/evaluate-by-rfc-9743 howto/find-a-worst-case howto/install-the-package howto/its-own-sendbox
    howto/many-sites howto/misbehaving-and-slow-receivers howto/networks howto/one-site-and-a-vps howto/probe-a-path
    howto/python howto/small-routers howto/time-varying-paths howto/train-a-policy howto/two-cloud-regions
    howto/watch howto/wireguard-gateway quickstart reference security sizing troubleshooting upgrading
";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().into()
}

/// The pages below `folder` of the repository, by their paths below the repository.
fn pages(folder: &str) -> BTreeMap<PathBuf, String> {
    let mut pages = BTreeMap::new();
    for entry in std::fs::read_dir(repository().join(folder)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.strip_prefix(repository()).unwrap().to_owned();
        if path.is_dir() {
            pages.append(&mut self::pages(name.to_str().unwrap()));
        } else if path.extension().is_some_and(|it| it == "md") {
            pages.insert(name, std::fs::read_to_string(path).unwrap());
        }
    }
    pages
}

/// The text of a page without its code, which may look like links and headings.
fn prose(page: &str) -> String {
    let mut is_code = false;
    let mut prose = String::new();
    for line in page.lines() {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        if !is_code && !is_fence {
            prose += line;
            prose.push('\n');
        }
    }
    prose
}

/// Targets of the links of a page, as written. A link's text may continue on the next line.
fn links(page: &str) -> Vec<String> {
    let prose = prose(page);
    let paragraphs = prose.split("\n\n").map(|paragraph| {
        let between = paragraph.split('`').step_by(2);
        between.collect::<Vec<&str>>().join("`")
    });
    let links = |text: String| -> Vec<String> {
        let ends = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        ends.map(|(link, _)| link.to_string()).collect()
    };
    paragraphs.flat_map(links).collect()
}

/// The names by which links find the headings of a page, as GitHub and mdBook make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let prose = prose(page);
    for heading in prose.lines().filter(|line| line.starts_with('#')) {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || " _-".contains(*c));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let again = (1..).map(|count| format!("{name}-{count}"));
        let names = std::iter::once(name.clone()).chain(again);
        anchors.extend(names.into_iter().find(|name| !anchors.contains(name)));
    }
    anchors
}

/// Target of `link` on the page `from`, below the repository.
fn target(from: &Path, link: &str) -> PathBuf {
    let mut target = from.parent().unwrap().to_owned();
    for component in Path::new(link).components() {
        match component {
            Component::ParentDir => assert!(target.pop(), "{}: {link}", from.display()),
            component => target.push(component),
        }
    }
    target
}

#[test]
fn links_resolve_and_site_links_stay_inside() {
    let mut pages = pages("docs");
    for name in ["README.md", "CONTRIBUTING.md"] {
        pages.insert(name.into(), std::fs::read_to_string(repository().join(name)).unwrap());
    }
    let mut count = 0;
    for (page, text) in &pages {
        for link in links(text) {
            if link.starts_with("https://") {
                continue;
            }
            count += 1;
            let shown = format!("{}: {link}", page.display());
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.clone() } else { target(page, path) };
            let is_in_site = |path: &Path| path.starts_with("docs");
            assert!(is_in_site(&target) || !is_in_site(page), "{shown}: leads out of the site");
            assert!(repository().join(&target).is_file(), "{shown}: there is no such file");
            let has = |anchors: BTreeSet<String>| anchors.contains(anchor);
            let is_place =
                anchor.is_empty() || pages.get(&target).is_some_and(|it| has(anchors(it)));
            assert!(is_place, "{shown}: there is no such heading");
        }
    }
    assert!(count > 150, "{count} links: where are the others?");
}

#[test]
fn site_summary_lists_every_page_once() {
    let mut pages = pages("docs");
    let summary = pages.remove(Path::new("docs/SUMMARY.md")).unwrap();
    let listed = links(&summary);
    let once: BTreeSet<PathBuf> = listed.iter().map(|link| Path::new("docs").join(link)).collect();
    assert_eq!(once.len(), listed.len(), "a page is listed twice");
    let there: BTreeSet<PathBuf> = pages.into_keys().collect();
    let lacks: Vec<&PathBuf> = there.symmetric_difference(&once).collect();
    assert!(lacks.is_empty(), "docs/SUMMARY.md and the pages differ by {lacks:?}");
}

#[test]
fn old_pages_redirect_to_pages_that_exist() {
    let book = std::fs::read_to_string(repository().join("docs/book.toml")).unwrap();
    let book: toml::Table = book.parse().unwrap();
    let redirects = book["output"]["html"]["redirect"].as_table().unwrap();
    for page in OLD_PAGES.split_whitespace() {
        assert!(redirects.contains_key(&format!("/{page}.html")), "docs/book.toml lacks {page}");
    }
    for (old, new) in redirects {
        let new = new.as_str().unwrap();
        assert!(!new.starts_with('/'), "{old}: {new} is wrong where the site lies below a path");
        let old = Path::new("docs").join(old.trim_start_matches('/'));
        let page = |address: &Path| repository().join(address).with_extension("md").is_file();
        assert!(page(&target(&old, new)), "{}: {new} does not exist", old.display());
        assert!(!page(&old), "{} exists, so mdBook refuses to redirect it", old.display());
    }
}

#[test]
fn troubleshooting_covers_log_events_and_rejected_messages() {
    let page =
        std::fs::read_to_string(repository().join("docs/operate/troubleshooting.md")).unwrap();
    // Events of boxes: agents have a page of their own.
    let events = EVENTS.iter().map(|event| event.id).filter(|id| !id.starts_with("FB06"));
    for name in events.chain(Reject::ALL.map(Reject::name)) {
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/operate/troubleshooting.md lacks {name}"
        );
    }
}

#[test]
fn rates_page_matches_limits_in_code() {
    let page = repository().join("docs/operate/rates-and-datapaths.md");
    let page = std::fs::read_to_string(page).unwrap();
    for limit in [
        format!("| bundles of a file | {MAX_BUNDLES} |"),
        format!("| groups of an uplink | {MAX_BUNDLES} |"),
    ] {
        assert!(page.contains(&limit), "docs/operate/rates-and-datapaths.md lacks {limit}");
    }
}

#[test]
fn reads_links_and_headings_outside_code() {
    let page = "# One `two`: three-four\n\nSee [a\nb](x.md#y) and `[no](no.md)`.\n\n```sh\n# no\n[no](no.md)\n```\n\n\
                ## Again\n## Again\n";
    assert_eq!(links(page), ["x.md#y"]);
    let anchors: Vec<String> = anchors(page).into_iter().collect();
    assert_eq!(anchors, ["again", "again-1", "one-two-three-four"]);
}
