//! Files with one JSON object per line. A program may be killed while it appends.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads the objects of the file at `path` in their order; none if there is no such file. Makes the folder around it,
/// and skips lines that are no such object. If a killed program left an incomplete last line, ends it.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let objects = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let mut file = File::options().append(true).create(true).open(path)?;
    if !text.is_empty() && !text.ends_with('\n') {
        file.write_all(b"\n")?;
    }
    Ok(objects)
}

/// Appends `objects` to the file at `path`, all in one write.
pub fn append<T: Serialize>(path: &Path, objects: &[T]) -> io::Result<()> {
    let mut lines = String::new();
    for object in objects {
        lines += &serde_json::to_string(object)?;
        lines.push('\n');
    }
    File::options().append(true).create(true).open(path)?.write_all(lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_survive_a_line_cut_short() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper").join("rows.jsonl");
        assert_eq!(read::<u64>(&path).unwrap(), [0; 0]);
        append(&path, &[1, 2]).unwrap();
        let cut = fs::read_to_string(&path).unwrap() + "[3,";
        fs::write(&path, cut).unwrap();
        assert_eq!(read::<u64>(&path).unwrap(), [1, 2]);
        append(&path, &[4]).unwrap();
        assert_eq!(read::<u64>(&path).unwrap(), [1, 2, 4]);
    }
}
