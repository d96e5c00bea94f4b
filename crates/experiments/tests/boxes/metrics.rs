//! Metrics of running boxes: scraped by hand, and by Prometheus (`make test-metrics`).

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_host::daemon::metrics::FAMILIES;
use forebay_skips::{Need, skip_without};
use forebay_testbed::namespace::Namespace;
use forebay_testbed::topology::{Site, Topology};
use serde_json::Value;

use crate::by_hand::{await_status, await_that, connect_the_sites, end, start};
use crate::turns::{Turn, together};
use crate::two_bundles::{await_both, flow, give_ipv6, write_configs};

/// Roles of the two boxes, in the order of their files and sockets.
const ROLES: [&str; 2] = ["receivebox", "sendbox"];
/// Places of the boxes, in the order of ROLES.
const SITES: [Site; 2] = [Site::RightBox, Site::LeftBox];
/// Ports of the metrics, in the order of ROLES.
const PORTS: [u16; 2] = [9476, 9475];
/// Destination port of flows.
const PORT: u16 = 7000;

#[test]
fn metrics_in_both_formats_despite_idle_clients() {
    let Some(scene) = Scene::set_up() else { return };
    scene.carry();
    let openmetrics = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    for (place, address) in scene.addresses.into_iter().enumerate() {
        let (head, body) = scene.get(address, "/metrics", openmetrics).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        let is_typed =
            "\r\nContent-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
        assert!(head.contains(is_typed) && body.ends_with("# EOF\n"), "{head}\n{body}");
        let (head, body) = scene.get(address, "/metrics", "*/*").unwrap();
        assert!(
            head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
            "{head}"
        );
        let told = body.lines().filter(|line| !line.starts_with('#'));
        for name in told.map(|line| line.split(['{', ' ']).next().unwrap()) {
            assert!(FAMILIES.iter().any(|family| family.name == name), "{name}");
        }
        let role = ROLES[place];
        assert!(body.contains(&format!("role=\"{role}\"}} 1")), "{body}");
        for bundle in ["four", "six"] {
            assert!(
                body.contains(&format!("forebay_bundle_peer_up{{bundle=\"{bundle}\"}} 1")),
                "{body}"
            );
        }
        assert!(scene.get(address, "/", "*/*").unwrap().0.starts_with("HTTP/1.1 404"));
    }
    // Silent clients delay no scrape, not even from their own host.
    let address = scene.addresses[1];
    let idle = || (0..64).map(|_| TcpStream::connect(address)).collect();
    let _idle: Vec<TcpStream> = scene.topology.pairs[0].left_box.within(idle).unwrap();
    for _ in 0..20 {
        let began = Instant::now();
        let (head, _) = scene.get(address, "/metrics", "*/*").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        let status = await_status(&scene.sockets()[1]);
        assert!(status.bundles.iter().all(|it| it.peer.state == "alive"));
    }
}

#[test]
#[ignore = "needs the package prometheus: make test-metrics"]
fn prometheus_evaluates_rules_and_dashboard() {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let rules = packaging.join("prometheus/forebay.rules.yml").canonicalize().unwrap();
    for (verb, file) in [("check", "forebay.rules.yml"), ("test", "forebay.rules.test.yml")] {
        let file = rules.with_file_name(file);
        let checked = Command::new("promtool").args([verb, "rules"]).arg(&file).output().unwrap();
        assert!(checked.status.success() && checked.stderr.is_empty(), "{checked:?}");
        let told = String::from_utf8_lossy(&checked.stdout);
        println!(
            "promtool {verb} rules: {}",
            told.trim().lines().last().unwrap_or_default().trim()
        );
    }

    let Some(mut scene) = Scene::set_up() else { return };
    let own = SocketAddr::new(IpAddr::V4(Site::LeftBox.address(0)), 9090);
    let prometheus = Prometheus::start(&scene, &rules, own);
    await_that("Prometheus is ready", || {
        scene.get(own, "/-/ready", "*/*").is_ok_and(|(head, _)| head.contains(" 200 "))
    });
    for _ in 0..4 {
        scene.carry();
    }

    for address in scene.addresses {
        let (_, body) = scene.get(address, "/metrics", "*/*").unwrap();
        let mut promtool = Command::new("promtool");
        promtool.args(["check", "metrics"]).stdin(Stdio::piped());
        let mut promtool = promtool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        promtool.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        let linted = promtool.wait_with_output().unwrap();
        let is_silent = linted.stdout.is_empty() && linted.stderr.is_empty();
        assert!(linted.status.success() && is_silent, "{linted:?}\n{body}");
    }
    println!("promtool check metrics: silent about both boxes");

    let targets = scene.query(own, "/api/v1/targets");
    let targets = targets["activeTargets"].as_array().unwrap();
    assert_eq!(targets.len(), 2);
    for target in targets {
        assert_eq!(
            (&target["health"], &target["lastError"]),
            (&"up".into(), &"".into()),
            "{target}"
        );
    }
    let groups = scene.query(own, "/api/v1/rules");
    let evaluated = groups["groups"][0]["rules"].as_array().unwrap();
    for rule in evaluated {
        assert_eq!(rule["health"], "ok", "{rule}");
    }
    let written = fs::read_to_string(&rules).unwrap().matches("- alert:").count();
    assert_eq!(evaluated.len(), written);
    println!("{written} alert rules evaluated");

    let dashboard = fs::read_to_string(packaging.join("grafana/forebay.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut queries = 0;
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap()) {
        let expression = target["expr"].as_str().unwrap().replace("$__rate_interval", "10s");
        let expression = expression.replace("$instance", ".*").replace("$bundle", ".*");
        let (query, start_s) = (encoded(&expression), now_s - 60);
        let path = format!("/api/v1/query_range?query={query}&start={start_s}&end={now_s}&step=1");
        let series = scene.query(own, &path);
        assert!(!series["result"].as_array().unwrap().is_empty(), "{expression} has no series");
        queries += 1;
    }
    println!("{queries} queries of the dashboard, each with series");

    // The alert rules must notice a missing box.
    scene.boxes[0].kill().unwrap();
    await_that("the rule reports the missing box", || {
        let alerts = scene.query(own, "/api/v1/alerts");
        let named =
            alerts["alerts"].as_array().unwrap().iter().map(|it| it["labels"]["alertname"].clone());
        let named: Vec<Value> = named.collect();
        ["ForebayBoxDown", "ForebayPeerSilent"].iter().all(|name| named.contains(&(*name).into()))
    });
    println!("a receivebox that was killed: ForebayBoxDown and ForebayPeerSilent are pending");
    drop(prometheus);
}

/// Two boxes with metrics, an uplink, and hosts at both sites.
struct Scene {
    topology: Topology,
    folder: tempfile::TempDir,
    boxes: [Child; 2],
    addresses: [SocketAddr; 2],
    _turn: Turn,
}

impl Scene {
    fn set_up() -> Option<Self> {
        if skip_without(Need::Root) {
            return None;
        }
        let turn = together();
        let topology = Topology::build(1, None).unwrap();
        connect_the_sites(&topology.emulator);
        narrow(&topology.emulator);
        let sites = &topology.pairs[0];
        give_ipv6(sites);
        let folder = tempfile::tempdir().unwrap();
        let configs = write_configs(folder.path());
        let addresses = [0, 1].map(|place| {
            let address = SITES[place].address(0);
            let more = ["", "[uplink]\nrate = \"20Mbit/s\"\n"][place];
            let mut file = OpenOptions::new().append(true).open(&configs[place]).unwrap();
            write!(file, "{more}[metrics]\nlisten = \"{address}\"\n").unwrap();
            SocketAddr::new(IpAddr::V4(address), PORTS[place])
        });
        let namespaces = [&sites.right_box, &sites.left_box];
        let boxes = [0, 1].map(|place| start(namespaces[place], ROLES[place], &configs[place]));
        let scene = Self { topology, folder, boxes, addresses, _turn: turn };
        await_both(&scene.sockets(), |both| {
            both.iter().flat_map(|one| &one.bundles).all(|bundle| bundle.peer.state == "alive")
        });
        Some(scene)
    }

    fn sockets(&self) -> [PathBuf; 2] {
        ROLES.map(|role| self.folder.path().join(format!("{role}.sock")))
    }

    /// Sends traffic for some seconds, and a datagram that is no message.
    fn carry(&self) {
        let sites = &self.topology.pairs[0];
        let target = SocketAddr::new(IpAddr::V4(Site::RightHosts.address(0)), PORT);
        let (sender, receiver) = flow(sites, target);
        let stray = || UdpSocket::bind((Site::RightBox.address(0), 0));
        let stray = sites.right_box.within(stray).unwrap();
        stray.send_to(&[0; 100], (Site::LeftBox.address(0), 61475)).unwrap();
        assert_eq!(sender.join().unwrap(), receiver.join().unwrap());
    }

    /// Head and body of a server's answer to a client at the sendbox.
    fn get(&self, server: SocketAddr, path: &str, accept: &str) -> io::Result<(String, String)> {
        let namespace: &Namespace = &self.topology.pairs[0].left_box;
        let answer = namespace.within(|| {
            let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(10))?;
            stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            write!(stream, "GET {path} HTTP/1.0\r\nHost: {server}\r\nAccept: {accept}\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
        Ok((format!("{head}\r\n"), body.into()))
    }

    /// The data of an answer of Prometheus.
    fn query(&self, prometheus: SocketAddr, path: &str) -> Value {
        let (head, body) = self.get(prometheus, path, "application/json").unwrap();
        assert!(head.contains(" 200 "), "{path}: {head}{body}");
        let mut answer: Value = serde_json::from_str(&body).unwrap();
        answer["data"].take()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        end(&mut self.boxes);
    }
}

/// Makes the path to the right site slower than the sendbox's limit, so that a queue builds there, which
/// the bundles have to find.
fn narrow(emulator: &Namespace) {
    let tbf = "qdisc add dev right0 root tbf rate 6mbit burst 5kb latency 300ms";
    let work = || Command::new("tc").args(tbf.split(' ')).status();
    assert!(emulator.within(work).unwrap().success());
}

/// A Prometheus server next to the sendbox, which ends with this value.
struct Prometheus(Child);

impl Prometheus {
    fn start(scene: &Scene, rules: &Path, own: SocketAddr) -> Self {
        let (folder, [right, left]) = (scene.folder.path(), scene.addresses);
        let config = folder.join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [{}]\nscrape_configs:\n\
             - job_name: forebay\n  static_configs:\n  - targets: [\"{right}\", \"{left}\"]\n",
            rules.display()
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new("prometheus");
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("data").display()));
        command.arg(format!("--web.listen-address={own}")).stderr(Stdio::null());
        scene.topology.pairs[0].left_box.host(&mut command).unwrap();
        Self(command.spawn().unwrap())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A text, encoded as a part of a URL (RFC 3986 section 2.1).
fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
