//! `forebay man`: pages that refer to each other, where no laboratory is.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Output};

fn man(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("forebay");
    // By another process: a file that this one holds open for writing cannot be run.
    let copy = Command::new("cp")
        .args([env!("CARGO_BIN_EXE_forebay").as_ref(), program.as_os_str()])
        .status();
    assert!(copy.unwrap().success());
    Command::new(program).arg("man").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Names of the pages to which a page in roff refers, as `forebay-status(1)`.
fn references(page: &str) -> Vec<String> {
    let page = page.replace("\\-", "-");
    let words = page.split_whitespace().filter(|word| word.starts_with("forebay-"));
    words.filter_map(|word| word.split_once("(1)")).map(|(name, _)| name.to_string()).collect()
}

#[test]
fn every_page_that_is_referred_to_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    let written = man(&["--out", pages.to_str().unwrap()]);
    assert!(written.status.success() && written.stdout.is_empty(), "{written:?}");
    let names: BTreeSet<String> = fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut count = 0;
    for name in &names {
        let page = fs::read_to_string(pages.join(name)).unwrap();
        for referred in references(&page) {
            assert!(names.contains(&format!("{referred}.1")), "{name} refers to {referred}(1)");
            count += 1;
        }
    }
    assert!(count > 20 && names.len() == count + 1, "{count} references, {names:?}");
    assert!(names.contains("forebay-init-sendbox.1") && !names.contains("forebay-observe.1"));
}

#[test]
fn prints_pages_of_known_commands_only() {
    let whole = man(&[]);
    assert!(references(text(&whole.stdout)).contains(&"forebay-status".into()), "{whole:?}");
    let status = man(&["status"]);
    assert!(text(&status.stdout).replace("\\-", "-").contains("forebay-status"), "{status:?}");
    assert!(man(&["init", "sendbox"]).status.success());
    for (arguments, named) in [
        (&["stat"][..], "stat: allowed is one of list, plan,"),
        (&["statsu"], "; nearest is status"),
        (&["observe"], "observe"),
    ] {
        let refused = man(arguments);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(text(&refused.stderr).contains(named), "{refused:?}");
    }
}
