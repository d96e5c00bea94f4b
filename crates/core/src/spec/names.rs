//! Error text for an unknown name: the known names and the closest match.

use alloc::string::String;
use alloc::vec::Vec;

/// `one of fifo, sfq`, and `; nearest is fifo` where `written` looks like one of `names` mistyped.
pub fn one_of(written: &str, names: &[&str]) -> String {
    let all = names.join(", ");
    match nearest(written, names) {
        Some(name) => alloc::format!("one of {all}; nearest is {name}"),
        None => alloc::format!("one of {all}"),
    }
}

/// The name in `names` with the fewest differences from `written`: inserted, missing or replaced letters, not
/// their case. Allows one difference, and one more for every four letters. Of equally near names, takes the
/// first.
pub fn nearest<'a>(written: &str, names: &[&'a str]) -> Option<&'a str> {
    let written = written.to_ascii_lowercase();
    let most = 1 + written.len() / 4;
    let near = names.iter().filter(|name| name.len().abs_diff(written.len()) <= most);
    let near = near.map(|name| (distance(&written, name), *name));
    let near = near.min_by_key(|(distance, _)| *distance);
    near.filter(|(distance, _)| *distance <= most).map(|(_, name)| name)
}

/// Most names that an error shows of a long list: more would hide the right one.
pub const NEAREST_MAX: usize = 5;

/// `; nearest is fifo`, or with several `; nearest are a, b`: the [`nearest_few`]. Empty if no name is near.
pub fn nearest_words(written: &str, names: &[&str]) -> String {
    match &nearest_few(written, names)[..] {
        [] => String::new(),
        [one] => alloc::format!("; nearest is {one}"),
        several => alloc::format!("; nearest are {}", several.join(", ")),
    }
}

/// The names that `written` may mean, for a list too long to be shown: at most [`NEAREST_MAX`], the closest
/// first. Names may have folders, as `bundler/main`: `written` may lack them. A name that contains `written` is
/// near, too.
pub fn nearest_few<'a>(written: &str, names: &[&'a str]) -> Vec<&'a str> {
    let written = written.to_ascii_lowercase();
    // A folder in common makes no name similar.
    let most = 1 + written.rsplit('/').next().unwrap_or_default().len() / 4;
    let far = |name: &&'a str| {
        let short = name.rsplit('/').next().unwrap_or(name);
        let least = distance(&written, name).min(distance(&written, short));
        let holds = written.len() > 2 && name.to_ascii_lowercase().contains(&written);
        (least <= most || holds).then_some((least, *name))
    };
    let mut near: Vec<(usize, &str)> = names.iter().filter_map(far).collect();
    // The order of the list decides among equally near names.
    near.sort_by_key(|(distance, _)| *distance);
    near.into_iter().take(NEAREST_MAX).map(|(_, name)| name).collect()
}

/// Levenshtein's distance.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    // Distances from the letters read of `one` to each beginning of `other`.
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (read, letter) in one.chars().enumerate() {
        let mut diagonal = core::mem::replace(&mut row[0], read + 1);
        for (place, wanted) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *wanted);
            diagonal = row[place + 1];
            row[place + 1] = replaced.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_name_gets_the_nearest_and_unrelated_none() {
        let names = ["cubic", "bic", "newreno", "bbr", "copa"];
        for (written, name) in [
            ("cubci", Some("cubic")),
            ("CUBIC", Some("cubic")),
            ("bicc", Some("bic")),
            ("TcpNewReno", Some("newreno")),
            ("bbr3", Some("bbr")),
            ("nonesuch", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, &names), name, "{written}");
        }
        assert_eq!(one_of("cpa", &["copa", "lp"]), "one of copa, lp; nearest is copa");
        assert_eq!(one_of("quic", &["copa", "lp"]), "one of copa, lp");
    }

    #[test]
    fn long_list_shows_the_five_nearest() {
        let names = [
            "bundler/main",
            "bundler/draft",
            "l4s/main",
            "a/paths",
            "b/paths_1",
            "b/paths_2",
            "b/paths_3",
        ];
        for (written, near) in [
            ("bundler/mian", &["bundler/main"][..]),
            ("mian", &["bundler/main", "l4s/main"]),
            ("path", &["a/paths", "b/paths_1", "b/paths_2", "b/paths_3"]),
            ("nonesuch", &[]),
            ("", &[]),
        ] {
            assert_eq!(nearest_few(written, &names), near, "{written}");
        }
        assert!(nearest_few("b", &["b0", "b1", "b2", "b3", "b4", "b5"]).len() == NEAREST_MAX);
        assert_eq!(nearest_words("cpa", &["copa", "lp"]), "; nearest is copa");
        assert_eq!(nearest_words("quic", &["copa", "lp"]), "");
    }

    #[test]
    fn the_distance_is_the_fewest_changes() {
        for (one, other, changes) in
            [("", "abc", 3), ("abc", "", 3), ("abc", "abc", 0), ("kitten", "sitting", 3)]
        {
            assert_eq!(distance(one, other), changes);
        }
    }
}
