//! An agent whose outputs are never read.

use std::time::{Duration, Instant};

use forebay_skips::{Need, skip_without};

use crate::outputs::{Unread, end};
use crate::{forebay, text};

#[test]
fn agent_works_without_writable_output() {
    if skip_without(Need::Root) || skip_without(Need::StructOpsLinks) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trial = ["agent", "--algorithm", "westwood", "--control", "agent.sock"];
    for unread in Unread::ALL {
        let [(stdout, _stdout), (stderr, _stderr)] = [(); 2].map(|()| unread.open());
        let mut command = forebay(folder.path(), &trial);
        let mut agent =
            command.env("FOREBAY_LOG", "trace").stdout(stdout).stderr(stderr).spawn().unwrap();
        let (began, mut lost) = (Instant::now(), 0);
        while lost == 0 {
            assert_eq!(agent.try_wait().unwrap(), None, "{unread:?}");
            assert!(began.elapsed() < Duration::from_secs(60), "{unread:?}");
            for _ in 0..100 {
                // Each is worth a line, once there is a socket.
                let _ = std::os::unix::net::UnixStream::connect(folder.path().join("agent.sock"));
            }
            let asked = ["status", "--json", "--socket", "agent.sock"];
            let output = forebay(folder.path(), &asked).output().unwrap();
            if let Ok(status) = serde_json::from_slice::<serde_json::Value>(&output.stdout) {
                lost = status["agents"][0]["log_lines_lost"].as_u64().unwrap();
            }
        }
        let table = forebay(folder.path(), &["status", "--socket", "agent.sock"]).output().unwrap();
        assert!(text(&table.stdout).contains("lines of the log could not be written"), "{table:?}");
        end(agent);
    }
}
