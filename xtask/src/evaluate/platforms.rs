//! A part of `forebay platforms`, which judges its own claims.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use forebay_lab::judge::{Judged, Verdict};
use serde_json::Value;

use super::part::Left;
use super::{OUT, printed, sources};

/// The parts, how `forebay platforms` is called for each, and how long it takes (min): up to 22 blocks, two more than
/// are judged at least, of eight platforms at five settings, and three rounds each.
const PARTS: [(&str, &[&str], f64); 3] = [
    ("platforms/cpu", &["--what", "cpu", "--max-trials", "22", "--duration", "2s"], 46.0),
    ("platforms/latency", &["--what", "latency", "--duration", "2s"], 1.0),
    ("platforms/scale", &["--what", "scale", "--duration", "3s"], 3.0),
];

/// A part of `forebay platforms`.
pub struct PlatformsPart {
    /// `platforms/cpu`.
    pub name: &'static str,
    arguments: &'static [&'static str],
    minutes: f64,
    /// File with the output of the program, built from these sources.
    document: PathBuf,
    /// Empty before the first run.
    pub claims: Vec<Judged>,
    /// Remaining work.
    pub left: Left,
}

impl PlatformsPart {
    /// All parts of `forebay platforms`.
    pub fn all() -> Result<impl Iterator<Item = Self>> {
        let sources = sources("emu")?;
        let part = move |(name, arguments, minutes): (&'static str, _, _)| {
            let document = Path::new(OUT).join(format!("{name}-{sources}.json"));
            Self { name, arguments, minutes, document, claims: Vec::new(), left: Left::default() }
        };
        Ok(PARTS.into_iter().map(part))
    }

    /// Makes missing measurements if `may_begin` allows it. Interrupted measurements continue where they stopped, and
    /// so do those with a claim that is not shown.
    pub fn advance(&mut self, may_begin: &mut dyn FnMut(f64) -> bool) -> Result<()> {
        let text = std::fs::read_to_string(&self.document).unwrap_or_default();
        let mut document = serde_json::from_str(&text).unwrap_or_default();
        self.left = Left::default();
        if !is_done(&document) && !may_begin(self.minutes) {
            self.left = Left { runs: 1, minutes: self.minutes };
        } else if !is_done(&document) {
            let folder = self.document.parent().unwrap_or(Path::new(OUT));
            let arguments = [&["platforms"], self.arguments].concat();
            document = printed(self.name, &arguments, folder)?;
            let (of, built) = (sources("emu")?, document["sources"].as_str());
            let is_built = built.is_none_or(|built| built == of);
            ensure!(
                is_built,
                "{}: forebay was built from other sources than {of}: make build",
                self.name
            );
            std::fs::create_dir_all(folder)?;
            std::fs::write(&self.document, document.to_string())?;
        }
        self.claims = claims(&document);
        Ok(())
    }
}

/// The claims in a document of `forebay platforms`.
fn claims(document: &Value) -> Vec<Judged> {
    serde_json::from_value(document["claims"].clone()).unwrap_or_default()
}

fn is_done(document: &Value) -> bool {
    let claims = claims(document);
    !claims.is_empty() && claims.iter().all(|it| !matches!(it.verdict, Verdict::NotShown(_)))
}

#[cfg(test)]
mod tests {
    use forebay_lab::judge::Why;
    use serde_json::json;

    use super::*;

    #[test]
    fn runs_part_unless_document_exists() {
        let folder = tempfile::tempdir().unwrap();
        let mut part = PlatformsPart::all().unwrap().next().unwrap();
        part.document = folder.path().join("cpu.json");
        for nothing in ["", "null", "{\"claims\": []}"] {
            std::fs::write(&part.document, nothing).unwrap();
            part.advance(&mut |_| false).unwrap();
            assert!(part.left.runs == 1 && part.claims.is_empty());
        }
        let of_verdict =
            |verdict| vec![Judged { of: "platforms/cpu".into(), verdict, ..Judged::default() }];
        let claims = of_verdict(Verdict::NotShown(Why::NotRun));
        std::fs::write(&part.document, json!({ "claims": claims }).to_string()).unwrap();
        part.advance(&mut |_| false).unwrap();
        assert!(part.left.runs == 1 && part.claims == claims);
        let claims = of_verdict(Verdict::Open);
        std::fs::write(&part.document, json!({ "claims": claims }).to_string()).unwrap();
        part.advance(&mut |_| panic!("it is there")).unwrap();
        assert_eq!((part.left, part.claims), (Left::default(), claims));
    }
}
