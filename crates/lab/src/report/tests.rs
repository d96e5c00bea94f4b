use std::path::Path;
use std::process::{Command, Stdio};

use forebay_skips::{Need, skip_without};
use serde_json::json;

use super::figure::{
    Axis, NamedCurve, Point, Ribbon, bars, boxes, curves, heat, intervals, parallel, plane, ribbons,
};
use super::page::{Block, Chart, Page, PageSection};
use super::*;
use crate::metrics::testing::{invented_rows, invented_run};
use crate::metrics::{Transition, evaluate};
use crate::plan::library::Source;
use crate::plan::{Override, Plan};
use crate::store::testing::put;
use crate::store::{NewRun, RunKey};

/// A browser's view of a file.
struct Seen {
    dom: String,
    log: String,
}

impl Seen {
    /// Opens `html`; `None` without a browser.
    fn in_browser(html: &str) -> Option<Self> {
        if skip_without(Need::Chromium) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("report.html");
        std::fs::write(&file, html).unwrap();
        let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
        let output = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync", "--enable-logging=stderr"])
            .args(["--virtual-time-budget=60000", "--dump-dom", &profile])
            .arg(format!("file://{}", file.display()))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Self { dom: text(&output.stdout), log: text(&output.stderr) })
    }

    fn assert_all_drawn(&self, figures: usize) {
        assert_eq!(self.dom.matches("data-drawn=\"yes\"").count(), figures, "{}", self.log);
        assert_eq!(self.dom.matches("data-drawn=\"no\"").count(), 0, "{}", self.log);
        assert_eq!(self.dom.matches("class=\"marks\"").count(), figures, "{}", self.log);
        let console: Vec<&str> = self.log.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(console.is_empty(), "{console:?}");
    }
}

#[test]
fn figures_draw_without_console_errors() {
    let order = vec!["status_quo".to_string(), "copa_sfq".to_string()];
    let line = |name: &str, slope: f64| {
        let points = (1..5000).map(|i| (f64::from(i), f64::from(i) * slope)).collect();
        NamedCurve::new(name, points)
    };
    let panels = [
        line("status_quo", 1.0).in_panel("bottleneck"),
        line("copa_sfq", 0.5).in_panel("bottleneck"),
        line("copa_sfq", 2.0).in_panel("sendbox"),
    ];
    let distribution = [NamedCurve::distribution("copa_sfq", vec![1.0, 1.5, 3.0, 40.0])];
    let bar = [("small".to_string(), "copa_sfq".to_string(), 1.1)];
    let boxed = [0.9, 0.97, 1.0, 1.01, 1.4].map(|value| ("copa_sfq".to_string(), value));
    let bands = ["copa_sfq", "status_quo"].map(|name| {
        let points = vec![(0.0, [1.0, 2.0, 3.0]), (0.1, [1.5, 2.5, 2.5])];
        Ribbon { name: name.into(), panel: name.into(), points }
    });
    let point = |name: &str, panel: &str, at| Point { name: name.into(), panel: panel.into(), at };
    // A trace has no optimum.
    let points =
        [point("copa_sfq", "rate", (55.0, 90.0)), point("status_quo", "trace", (140.0, 95.0))];
    let optima = [point("optimum", "rate", (50.0, 96.0))];
    let cells = ["status_quo", "copa_sfq"].map(|name| (name.to_string(), "cubic".to_string(), 0.7));
    let x = Axis::linear("time (s)");
    let figures = [
        curves(&panels, &order, x, Axis::linear("queue (packets)"), true),
        curves(&distribution, &order, Axis::log("slowdown"), Axis::linear("share"), true),
        bars(&bar, &order, Axis::linear("cores")),
        boxes(&boxed, &order, Axis::linear("score"), 1.0),
        ribbons(&bands, &order, x, Axis::linear("cwnd (segments)")),
        plane(&points, &optima, &order, Axis::linear("RTT (ms)"), Axis::linear("Mbit/s")),
        heat(&cells, ["under test", "beside"], ("share", 1.0)),
        parallel(&cells, &order, ["score", "place"]),
        intervals(&[("slowdown_p50".into(), [-3.0, 1.0, 2.5])], Axis::linear("change (%)")),
    ];
    let blocks = figures
        .into_iter()
        .map(|spec| Block::Figure(Chart { caption: "a figure".into(), spec }))
        .collect();
    let section = PageSection { heading: "figures".into(), blocks };
    let page = Page { title: "test".into(), lead: "test".into(), sections: vec![section] };
    if let Some(seen) = Seen::in_browser(&page.render()) {
        seen.assert_all_drawn(9);
        assert_eq!(seen.dom.matches("class=\"save\"").count(), 9);
    }
}

/// A store with a plan of two arms, two seeds, one rejected attempt, run with `sets` by these back ends.
fn store(folder: &Path, backends: &[&str], sets: &[Override]) -> Store {
    let mut store = Store::create(folder).unwrap();
    let text = r#"
        name = "invented"
        title = "A title with <b>markup</b> & \"quotes\""
        description = "</script><script>alert(1)</script>"
        stop = "2s"
        bottleneck = { rate = "96Mbit/s", rtt = "50ms", qdisc = "fifo" }
        flow = [{ bundle = "a", traffic = { kind = "greedy" } }]
        bundle = [{ name = "a", cc = "copa", qdisc = "sfq" }]
        arm = [
            { name = "status_quo", summary = "without", set = { bundle.a.enabled = false } },
            { name = "copa_sfq", summary = "with" },
            { name = "never_run" },
        ]
        figure = [
            { kind = "default" },
            { kind = "bars", title = "Beside others", metric = "slowdown_p50", baseline = "status_quo",
              published = [{ arm = "copa_sfq", label = "theirs", value = 0.7, source = "A paper" }] },
            { kind = "ribbon", title = "All seeds", series = ["bundles/*/queue_packets"] },
            { kind = "cdf", title = "Of each flow", metric = "flows/*/fct_ms", facet = "flow" },
        ]
    "#;
    let source = Source { file: "p.toml".into(), folder: None, text: text.into() };
    store.put_plan(&Plan::from_source(source, sets).unwrap()).unwrap();
    let arms = [("status_quo", 2.0), ("copa_sfq", 1.2)];
    for (backend, (arm, slowdown)) in backends.iter().flat_map(|it| arms.map(|arm| (it, arm))) {
        // Back ends agree within a tenth.
        let slowdown = if *backend == "sim" { slowdown * 1.1 } else { slowdown };
        for (seed, attempt, rejected) in [(1, 1, true), (1, 2, false), (2, 1, false)] {
            let (mut experiment, _) = invented_run();
            experiment.arm = arm.into();
            experiment.seed = seed;
            if arm == "status_quo" {
                experiment.bundles.clear();
                experiment.parameters.insert("bundle.a.enabled".into(), "false".into());
            }
            let rows = invented_rows(&experiment, slowdown);
            let mut evaluation = evaluate(&experiment, &rows).unwrap();
            if !experiment.bundles.is_empty() {
                evaluation.transitions.push(Transition {
                    bundle: "a".into(),
                    at_s: 1.25,
                    state: "passing".into(),
                    reason: "shaping does not pay".into(),
                });
            }
            if rejected {
                evaluation.invalid.push("lateness of link forward: p99 2.00 ms".into());
            }
            let host = json!({
                "kernel": "6.1", "wall_s": 3.5, "load": [0.5, 0.6], "steal": 0.0,
                "cpu_cores": { "sendbox": 0.25, "link": 0.5 },
                "realtime": ["link"], "settings": ["net.ipv4.tcp_ecn = 0"], "offloads": [],
            });
            let run = NewRun {
                key: &RunKey::of(&experiment, backend, "def456"),
                experiment: &experiment,
                commit: "abc123",
                attempt,
                evaluation: &evaluation,
                host: &host,
            };
            store.put_run(&run).unwrap();
        }
    }
    store
}

#[test]
fn overridden_report_omits_published_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let set = Override::parse("bottleneck.rate=48Mbit/s").unwrap();
    let path = write(&Requests::new(&store(folder.path(), &["emu"], &[set]))).unwrap();
    let html = std::fs::read_to_string(&path).unwrap();
    assert!(html.contains("With bottleneck.rate = 48Mbit/s in place of 96Mbit/s."));
    assert!(html.contains("Beside others") && !html.contains("A paper"));
}

#[test]
fn a_report_shows_everything_a_reader_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(&Requests::new(&store(folder.path(), &["emu"], &[]))).unwrap();
    let html = std::fs::read_to_string(&path).unwrap();
    assert!(html.len() <= BYTES_MAX);
    for expected in [
        "4 valid runs of 4",
        "Set-up: bottleneck: rate ",
        "bundle.a: cc ",
        "small requests, up to 10KB",
        "large requests, all above",
        "at the bottleneck",
        "at the sendbox of bundle a",
        "The round trip as the sendbox estimates it",
        "delivery rate, truth",
        "99th percentile of the completion time divided by",
        "the least and the greatest seed alone",
        "All parameters that differ between the arms",
        "bundle.a.enabled",
        "CPU time of each process",
        "shaping does not pay",
        "Beside others",
        "slowdown p50 relative to status_quo",
        "theirs",
        "A paper",
        "All seeds",
        "Of each flow",
        "completion time (ms)",
        "6 attempts, 2 rejected",
        "rejected: lateness of link forward: p99 2.00 ms",
        "abc123",
        "net.ipv4.tcp_ecn = 0",
    ] {
        assert!(html.contains(expected), "{expected}");
    }
    assert!(!html.contains("<b>markup") && !html.contains("<script>alert"));
    assert!(!html.contains("never_run") && !html.contains("(emu)"));
    let body = html.rsplit("<body>").next().unwrap();
    for reference in ["src=", "url("] {
        assert!(!body.contains(reference), "{reference} would be loaded");
    }
    assert_eq!(body.matches("href=").count(), body.matches("href=\"#").count());
    if let Some(seen) = Seen::in_browser(&html) {
        seen.assert_all_drawn(html.matches("data-figure=").count());
    }
}

/// The part of a page that a browser without scripts shows.
fn without_scripts(html: &str) -> String {
    let parts =
        html.split("<script").map(|part| part.split_once("</script>").map_or(part, |it| it.1));
    parts.collect()
}

#[test]
fn result_comes_first_without_scripts() {
    let folder = tempfile::tempdir().unwrap();
    let html = render(&Requests::new(&store(folder.path(), &["emu"], &[]))).unwrap();
    let shown = without_scripts(&html);
    let in_order = [
        "<h1>",
        "With boxes (copa_sfq), the median request time falls by ",
        "; payload ",
        "<div class=\"tile",
        "<small>before</small>",
        "<summary>Repeat these runs</summary><pre>forebay run p.toml --backend emu --seeds 1..2</pre>",
        "<noscript><p class=\"note\">The figures need JavaScript.",
        "<nav>",
        "<h2 id=\"at-a-glance\">",
    ];
    let places: Vec<Option<usize>> = in_order.iter().map(|text| shown.find(text)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?}");
    assert_eq!(shown.matches("class=\"lead\"").count(), 1);
}

#[test]
fn every_figure_and_row_has_an_anchor() {
    let folder = tempfile::tempdir().unwrap();
    let html = render(&Requests::new(&store(folder.path(), &["emu"], &[]))).unwrap();
    let html = without_scripts(&html);
    let count = |text: &str| html.matches(text).count();
    assert_eq!(count("<figure"), count("<figure id=\"figure-"));
    assert_eq!(count("<tr>"), count("<thead><tr>"), "only heads lack an anchor");
    let ids: Vec<&str> =
        html.split(" id=\"").skip(1).map(|it| it.split('"').next().unwrap()).collect();
    let links = html.split("href=\"#").skip(1).map(|it| it.split('"').next().unwrap());
    assert!(links.into_iter().all(|link| ids.contains(&link)));
    let unique: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(unique.len(), ids.len());
}

#[test]
fn metrics_have_titles_directions_and_best() {
    let folder = tempfile::tempdir().unwrap();
    let html = render(&Requests::new(&store(folder.path(), &["emu"], &[]))).unwrap();
    let name = html
        .find("class=\"text metric\" title=\"fct_p50_ms: percentile of the completion time")
        .unwrap();
    let row = html[name..].split("</tr>").next().unwrap();
    for expected in ["Median of the completion time", "(ms) <small>", "lower is better", "<b>"] {
        assert!(row.contains(expected), "{row}");
    }
    assert!(html.contains("Requests that arrived after the warm-up, per run (mean over seeds)"));
}

#[test]
fn rejected_runs_and_arms_are_marked() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path(), &["emu"], &[]);
    let (mut experiment, mut evaluation) = invented_run();
    (experiment.plan, experiment.arm) = ("invented".into(), "late".into());
    evaluation.invalid.push("late".into());
    put(&mut store, &experiment, "emu", &evaluation);
    let html = render(&Requests::new(&store)).unwrap();
    assert_eq!(html.matches("class=\"rejected\"").count(), 4, "three attempts and an arm");
}

#[test]
fn pages_fit_narrow_and_wide_windows() {
    let folder = tempfile::tempdir().unwrap();
    let html = render(&Requests::new(&store(folder.path(), &["emu"], &[]))).unwrap();
    let escaped = html.replace('&', "&amp;").replace('"', "&quot;");
    for width in [400, 1280] {
        let page = format!(
            "<body><iframe style=\"width:{width}px;height:900px\" srcdoc=\"{escaped}\"></iframe><script>\
             const page = () => document.querySelector('iframe').contentDocument;\
             setTimeout(() => {{\
               const figures = [...page().querySelectorAll('figure')];\
               const wide = figures.filter((it) => it.scrollWidth > it.clientWidth + 1);\
               const widest = Math.max(...figures.map((it) => it.querySelector('svg').clientWidth));\
               document.body.dataset.seen = [page().documentElement.scrollWidth, wide.length, widest];\
             }}, 20000);</script></body>"
        );
        let Some(seen) = Seen::in_browser(&page) else { return };
        let seen = seen.dom.split("data-seen=\"").nth(1).unwrap().split('"').next().unwrap();
        let [page, cut, widest] =
            seen.split(',').map(|it| it.parse().unwrap()).collect::<Vec<i32>>()[..]
        else {
            panic!("{seen}")
        };
        assert!(page <= width && cut == 0, "{width}: the page has {page}, cut figures: {cut}");
        assert!(widest > width * 4 / 5, "{width}: the widest figure has {widest}");
    }
}

#[test]
fn cells_keep_run_order_names_get_colours() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = store(folder.path(), &["emu"], &[]);
    for cell in ["limit=2p", "limit=10p"] {
        let (mut experiment, evaluation) = invented_run();
        experiment.cell = cell.into();
        put(&mut store, &experiment, "emu", &evaluation);
    }
    let runs = newest_runs(&store).unwrap();
    let plan = PlanResults::all(&Requests::new(&store), &runs).unwrap().remove(0);
    let mut cells: Vec<&str> = plan.summaries.iter().map(|arm| arm.cell.as_str()).collect();
    cells.dedup();
    assert_eq!(cells, ["", "limit=2p", "limit=10p"]);
    assert_eq!(plan.order(), ["status_quo", "copa_sfq", "default"]);
    let coloured = plan.coloured_as(&["bbr".to_string(), "copa_sfq".into()]);
    assert_eq!(coloured.order(), ["bbr", "copa_sfq", "status_quo", "default"]);
}

#[test]
fn report_shows_two_back_ends_together() {
    let folder = tempfile::tempdir().unwrap();
    let html = render(&Requests::new(&store(folder.path(), &["emu", "sim"], &[]))).unwrap();
    for expected in ["status_quo (emu)", "copa_sfq (sim)", "+10.0 %", "sim - emu"] {
        assert!(html.contains(expected), "{expected}");
    }
    if let Some(seen) = Seen::in_browser(&html) {
        seen.assert_all_drawn(html.matches("data-figure=").count());
    }
}

#[test]
fn the_newest_valid_run_counts() {
    let folder = tempfile::tempdir().unwrap();
    let runs = newest_runs(&store(folder.path(), &["emu"], &[])).unwrap();
    let ids: Vec<i64> = runs.iter().map(|run| run.id).collect();
    assert_eq!(ids, [2, 3, 5, 6]);
}
