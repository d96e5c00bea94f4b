//! The laboratory refuses a `forebay` of another build, because the two programs exchange rows, recordings and
//! specifications.

use std::process::{Command, Output};

fn called_by(commit: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-experiments"));
    command.env("FOREBAY_CALLER", commit).args(["list", "paths"]).output().unwrap()
}

#[test]
fn a_caller_of_another_build_is_refused() {
    let refused = called_by("0123456789ab");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stdout.is_empty());
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.starts_with(
            "error: forebay was built from commit 0123456789ab, and forebay-experiments"
        )
    );
    assert!(said.ends_with("allowed are two programs of one build\n"), "{said}");
    assert!(called_by(forebay::COMMIT).status.success());
}
