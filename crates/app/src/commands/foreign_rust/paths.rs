//! Where the path of a crate stands for an algorithm: `./my_cc`, `agent:../cc(gain=2)`, `aut=["./my_cc", "cubic"]`.

use std::path::Path;

/// Ends of a path within the name of an algorithm with its platform and parameters, and within a value of TOML.
const ENDS: [char; 13] = ['=', '[', ']', '{', '}', '(', ')', ',', ':', '"', '\'', ' ', '\t'];

/// Whether `word` is the path of a folder, and neither a name nor a quantity such as `24Mbit/s`.
fn is_path(word: &str) -> bool {
    let begins = ["/", "./", "../"].iter().any(|beginning| word.starts_with(beginning));
    let leads = || word.contains('/') && Path::new(word).join("Cargo.toml").is_file();
    begins || [".", ".."].contains(&word) || leads()
}

/// The words of `text`, each with the marks that end it.
fn words(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split_inclusive(ENDS).map(|part| part.split_at(part.trim_end_matches(ENDS).len()))
}

/// The paths in `text`.
pub fn in_text(text: &str) -> impl Iterator<Item = String> {
    words(text).map(|(word, _)| word).filter(|word| is_path(word)).map(String::from)
}

/// `text` with what `name` gives for each path in it.
pub fn replaced<'a>(text: &'a str, name: impl Fn(&'a str) -> &'a str) -> String {
    words(text)
        .flat_map(|(word, end)| [if is_path(word) { name(word) } else { word }, end])
        .collect()
}

/// Whether an override `KEY=VALUE` is of a key that names an algorithm: `aut`, or the `cc` of a flow or a bundle.
pub fn is_of_algorithm(set: &str) -> bool {
    let key = set.split('=').next().unwrap_or_default().trim();
    let key = key.strip_suffix(".kind").unwrap_or(key);
    ["aut", "cc"].contains(&key.rsplit('.').next().unwrap_or_default())
}

/// Reads the folder of a crate, which needs no `./` where nothing else is meant.
pub fn folder(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(ENDS) {
        let ends: String = ENDS.iter().filter(|end| !end.is_whitespace()).collect();
        return Err(format!("allowed is the path of a folder without blanks and {ends}"));
    }
    Ok(if is_path(text) { text.into() } else { format!("./{text}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_paths_in_place_of_algorithm_names() {
        for (text, paths, named) in [
            ("./my_cc", &["./my_cc"][..], "X"),
            (".", &["."], "X"),
            ("/a/b-c", &["/a/b-c"], "X"),
            ("agent:../cc(gain=2)", &["../cc"], "agent:X(gain=2)"),
            (
                "aut=[\"./a\", 'cubic', \"./b(x=1)\"]",
                &["./a", "./b"],
                "aut=[\"X\", 'cubic', \"X(x=1)\"]",
            ),
            ("mine=./a", &["./a"], "mine=X"),
            ("const(rate=24Mbit/s)", &[], "const(rate=24Mbit/s)"),
            ("cubic", &[], "cubic"),
            ("", &[], ""),
        ] {
            assert_eq!(in_text(text).collect::<Vec<_>>(), paths, "{text}");
            assert_eq!(replaced(text, |_| "X"), named);
        }
    }

    #[test]
    fn quantities_are_no_paths_and_dot_is_optional() {
        assert!(!is_path("app") && !is_path("src/own") && !is_path("24Mbit/s"));
        assert_eq!(folder("my_cc").as_deref(), Ok("./my_cc"));
        assert_eq!(folder("../my_cc").as_deref(), Ok("../my_cc"));
        assert!(folder("my cc").is_err() && folder("").is_err());
    }

    #[test]
    fn separates_overrides_of_algorithms_and_files() {
        for set in ["aut=./a", "flow.bulk.cc=./a", "bundle.a.cc.kind = ./a"] {
            assert!(is_of_algorithm(set), "{set}");
        }
        for set in ["bottleneck.trace=./a.trace", "flow.web.traffic.sizes=./a.cdf", "cc", ""] {
            assert_eq!(is_of_algorithm(set), set == "cc", "{set}");
        }
    }
}
