//! Pictures of `docs/pictures`, drawn from rows in `docs/pictures/data`. The simulator makes the rows.

mod boxes;
mod measure;
mod research;
mod rows;
mod svg;
mod world;

use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use forebay_package::Misuse;

use rows::Rows;
use svg::Picture;

/// Folder of the pictures.
const PICTURES: &str = "docs/pictures";

/// A picture: how its rows are made, and how it is drawn.
struct Figure {
    /// Name of both files without their endings.
    name: &'static str,
    measure: fn() -> Result<Rows>,
    draw: fn(&Rows) -> Result<Picture>,
}

/// All pictures.
const FIGURES: [Figure; 7] = [
    Figure { name: "queue", measure: measure::queue, draw: boxes::queue },
    Figure { name: "ping", measure: measure::ping, draw: boxes::ping },
    Figure { name: "requests", measure: measure::requests, draw: boxes::requests },
    Figure { name: "share", measure: measure::share, draw: boxes::share },
    Figure { name: "world", measure: measure::world, draw: world::world },
    Figure { name: "bench", measure: measure::bench, draw: research::bench },
    Figure { name: "ns3", measure: measure::ns3, draw: research::ns3 },
];

impl Figure {
    /// The file of the rows.
    fn data(&self) -> PathBuf {
        crate::repository().join(PICTURES).join("data").join(self.name).with_extension("csv")
    }

    /// The file of the picture.
    fn file(&self) -> PathBuf {
        crate::repository().join(PICTURES).join(self.name).with_extension("svg")
    }

    /// The picture of the rows in the file.
    fn picture(&self) -> Result<Picture> {
        let path = self.data();
        let named = || path.display().to_string();
        let text = std::fs::read_to_string(&path).with_context(named)?;
        Rows::parse(&text).and_then(|rows| (self.draw)(&rows)).with_context(named)
    }

    /// Draws the picture into its file, and returns the result that it shows.
    fn write(&self) -> Result<String> {
        let picture = self.picture()?;
        std::fs::write(self.file(), picture.finish())?;
        Ok(picture.result)
    }
}

/// Draws all pictures from the rows in their files.
pub fn draw() -> Result<()> {
    FIGURES.iter().try_for_each(|figure| figure.write().map(drop))
}

/// Draws the pictures with the names in `arguments`, or all; `--measure` makes their rows first.
pub fn figures(arguments: &[String]) -> Result<()> {
    let (flags, names): (Vec<&String>, Vec<&String>) =
        arguments.iter().partition(|argument| argument.starts_with('-'));
    let known = || FIGURES.map(|figure| figure.name).join(", ");
    for name in &names {
        if !FIGURES.iter().any(|figure| figure.name == *name) {
            return Err(Misuse::of(anyhow!("{name}: allowed is one of {}", known())));
        }
    }
    if let Some(flag) = flags.iter().find(|flag| **flag != "--measure") {
        return Err(Misuse::of(anyhow!("{flag}: allowed is --measure")));
    }
    std::env::set_current_dir(crate::repository())?;
    for figure in &FIGURES {
        if !names.is_empty() && !names.iter().any(|name| *name == figure.name) {
            continue;
        }
        if !flags.is_empty() {
            eprintln!("== {}", figure.name);
            std::fs::write(figure.data(), (figure.measure)()?.text())?;
        }
        println!("{PICTURES}/{}.svg: {}", figure.name, figure.write()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Pages, and the pictures that they show.
    const PAGES: [(&str, &[&str]); 4] = [
        ("README.md", &["queue"]),
        ("docs/operate/will-it-help.md", &["world", "ping", "share"]),
        ("docs/evidence/evaluation.md", &["requests", "ns3"]),
        ("docs/research/bench-and-compare.md", &["bench"]),
    ];

    #[test]
    fn pictures_are_drawn_from_their_rows() {
        for figure in &FIGURES {
            let drawn = figure.picture().unwrap().finish();
            let stored = std::fs::read_to_string(figure.file()).unwrap();
            assert!(drawn == stored, "cargo xtask figures {}", figure.name);
        }
    }

    #[test]
    fn pages_say_what_each_picture_shows() {
        for figure in &FIGURES {
            let is_there = |(_, names): &&(&str, &[&str])| names.contains(&figure.name);
            let (page, _) = PAGES.iter().find(is_there).expect("a page shows it");
            let text = std::fs::read_to_string(crate::repository().join(page)).unwrap();
            let words: Vec<&str> = text.split_whitespace().collect();
            let folder = Path::new(page).parent().unwrap();
            let up = if folder == Path::new("") { "docs/" } else { "../" };
            let result = figure.picture().unwrap().result;
            let image = format!("![{result}]({up}pictures/{}.svg)", figure.name);
            assert!(words.join(" ").contains(&image), "{page} needs {image}");
        }
    }

    #[test]
    fn unknown_pictures_and_flags_are_refused() {
        for wrong in ["queues", "--draw"] {
            let refusal = figures(&[wrong.to_string()]).unwrap_err();
            assert!(refusal.to_string().contains("allowed is"), "{refusal}");
        }
    }
}
