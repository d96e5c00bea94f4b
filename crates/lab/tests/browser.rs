//! A report in a real browser: every figure is drawn and the console stays silent.

use std::io::Write;
use std::process::{Command, Stdio};

use forebay_lab::report::figure::{Axis, Series, bars, curves};
use forebay_lab::report::page::{Block, Figure, Page, Section};

fn page() -> Page {
    let order = vec!["status_quo".to_string(), "copa_sfq".to_string()];
    let line = |name: &str, slope: f64| {
        let points = (1..5000).map(|i| (f64::from(i), f64::from(i) * slope)).collect();
        Series::new(name, points)
    };
    let panels = [
        line("status_quo", 1.0).in_panel("bottleneck"),
        line("copa_sfq", 0.5).in_panel("bottleneck"),
        line("copa_sfq", 2.0).in_panel("sendbox"),
    ];
    let distribution = [Series::distribution("copa_sfq", vec![1.0, 1.5, 3.0, 40.0])];
    let bar = [("small".to_string(), "copa_sfq".to_string(), 1.1)];
    let x = Axis::linear("time (s)");
    let figures = [
        curves(&panels, &order, x, Axis::linear("queue (packets)"), true),
        curves(&distribution, &order, Axis::log("slowdown"), Axis::linear("share"), true),
        bars(&bar, &order, Axis::linear("cores")),
    ];
    let blocks = figures
        .into_iter()
        .map(|spec| Block::Figure(Figure { caption: "a figure".into(), spec }))
        .collect();
    Page {
        title: "test".into(),
        lead: "test".into(),
        sections: vec![Section { heading: "figures".into(), blocks }],
    }
}

#[test]
fn every_figure_is_drawn_without_a_console_error() {
    let Some(chromium) = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())
    else {
        eprintln!("skipped: no Chromium on this machine (apt-get install chromium)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    std::fs::File::create(&file).unwrap().write_all(page().render().as_bytes()).unwrap();
    let output = Command::new(chromium)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
        .args(["--no-first-run", "--disable-background-networking"])
        .args(["--disable-component-update", "--disable-sync", "--enable-logging=stderr"])
        .args(["--virtual-time-budget=20000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (dom, log) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(dom.matches("data-drawn=\"yes\"").count(), 3, "{log}");
    assert_eq!(dom.matches("data-drawn=\"no\"").count(), 0, "{log}");
    assert_eq!(dom.matches("class=\"marks\"").count(), 3, "{log}");
    let console: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(console.is_empty(), "{console:?}");
}
