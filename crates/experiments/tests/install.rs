//! `make install`: paths of the laboratory's files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Stand-in for `forebay`: it writes two manual pages.
const STAND_IN: &str = "#!/bin/sh\nmkdir -p \"$3\"\nfor page in forebay forebay-status; do echo >\"$3/$page.1\"; done\n";

#[test]
fn the_laboratory_lies_apart_from_the_boxes() {
    let folder = tempfile::tempdir().unwrap();
    let forebay = folder.path().join("forebay");
    fs::write(&forebay, STAND_IN).unwrap();
    fs::set_permissions(&forebay, PermissionsExt::from_mode(0o755)).unwrap();
    let [boxes, laboratory] = ["boxes", "laboratory"].map(|name| folder.path().join(name));
    let mut install = Command::new("sh");
    install.arg("packaging/install.sh").arg(forebay).arg("/usr").arg(&boxes);
    install.arg(env!("CARGO_BIN_EXE_forebay-experiments")).arg(&laboratory);
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let installed = install.current_dir(repository).output().unwrap();
    assert!(installed.status.success(), "{installed:?}");
    let program = laboratory.join("usr/libexec/forebay/forebay-experiments");
    assert_eq!(fs::metadata(program).unwrap().permissions().mode() & 0o777, 0o755);
    let page = |root: &Path, name: &str| root.join("usr/share/man/man1").join(name).is_file();
    for name in ["forebay-run.1", "forebay-trace-poisson.1"] {
        assert!(page(&laboratory, name) && !page(&boxes, name), "{name}");
    }
    for name in ["forebay.1", "forebay-status.1"] {
        assert!(page(&boxes, name) && !page(&laboratory, name), "{name}");
    }
    let completions = boxes.join("usr/share/bash-completion/completions/forebay");
    let completions = fs::read_to_string(completions).unwrap();
    assert!(completions.contains("--as-published") && completions.contains("--dry-run"));
    for place in ["bin", "lib"] {
        assert!(boxes.join("usr").join(place).exists(), "{place}");
        assert!(!laboratory.join("usr").join(place).exists(), "{place} is of the boxes");
    }
}
