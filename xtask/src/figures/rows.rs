//! The rows that a picture is drawn from: a comment that says how they were made, a head, and one line each.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

/// Digits of a number in a file.
const DIGITS: usize = 4;

/// Rows of one picture.
#[derive(Debug, PartialEq)]
pub struct Rows {
    /// Plan, arms, seeds, command and commit that they come from.
    note: String,
    columns: Vec<String>,
    cells: Vec<Vec<String>>,
}

impl Rows {
    /// No rows yet.
    pub fn new(note: String, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|column| column.to_string()).collect();
        Self { note, columns, cells: Vec::new() }
    }

    /// Adds a row: a cell for each column.
    pub fn push<const N: usize>(&mut self, row: [String; N]) {
        assert_eq!(N, self.columns.len(), "{row:?}");
        self.cells.push(row.into());
    }

    /// Reads a file that [`Self::text`] wrote.
    pub fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines();
        let note = lines.next().and_then(|line| line.strip_prefix("# "));
        let note = note.context("line 1: allowed is a comment, `# ...`")?;
        let cells = |line: &str| line.split(',').map(String::from).collect::<Vec<String>>();
        let columns = cells(lines.next().context("line 2: allowed are the names of columns")?);
        let mut rows = Self { note: note.into(), columns, cells: Vec::new() };
        for (number, line) in (3..).zip(lines) {
            let row = cells(line);
            let expected = rows.columns.len();
            ensure!(row.len() == expected, "line {number}: allowed are {expected} cells");
            rows.cells.push(row);
        }
        ensure!(!rows.cells.is_empty(), "no rows");
        Ok(rows)
    }

    /// The file.
    pub fn text(&self) -> String {
        let mut text = format!("# {}\n{}\n", self.note, self.columns.join(","));
        self.cells.iter().for_each(|row| writeln!(text, "{}", row.join(",")).expect("a string"));
        text
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        self.cells.iter().map(|cells| Row { columns: &self.columns, cells })
    }

    /// Numbers of some columns, row by row.
    pub fn numbers<const N: usize>(&self, columns: [&str; N]) -> Result<Vec<[f64; N]>> {
        let row = |row: Row<'_>| {
            let mut numbers = [0.0; N];
            for (number, column) in numbers.iter_mut().zip(columns) {
                *number = row.number(column)?;
            }
            Ok(numbers)
        };
        self.iter().map(row).collect()
    }
}

/// One row.
pub struct Row<'a> {
    columns: &'a [String],
    cells: &'a [String],
}

impl<'a> Row<'a> {
    /// The cell of a column.
    pub fn text(&self, column: &str) -> Result<&'a str> {
        let place = self.columns.iter().position(|it| it == column);
        Ok(&self.cells[place.with_context(|| format!("no column {column}"))?])
    }

    /// The number of a column.
    pub fn number(&self, column: &str) -> Result<f64> {
        self.maybe(column)?.with_context(|| format!("{column}: allowed is a number"))
    }

    /// The number of a column, unless the cell is empty.
    pub fn maybe(&self, column: &str) -> Result<Option<f64>> {
        let text = self.text(column)?;
        let number = || text.parse().with_context(|| format!("{column}: {text}: no number"));
        if text.is_empty() { Ok(None) } else { number().map(Some) }
    }
}

/// A number for a file, with four significant digits.
pub fn short(value: f64) -> String {
    let rounded: f64 = format!("{value:.*e}", DIGITS - 1).parse().expect("a number");
    rounded.to_string()
}

/// The middle of some numbers: the mean of two if their count is even.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_from_their_text() {
        let mut rows = Rows::new("plan a, seed 1".into(), &["cell", "ratio"]);
        rows.push(["x".into(), short(1234.56)]);
        rows.push(["y".into(), String::new()]);
        assert_eq!(rows.text(), "# plan a, seed 1\ncell,ratio\nx,1235\ny,\n");
        let read = Rows::parse(&rows.text()).unwrap();
        assert_eq!(read, rows);
        let values: Vec<Option<f64>> = read.iter().map(|it| it.maybe("ratio").unwrap()).collect();
        assert_eq!(values, [Some(1235.0), None]);
        assert!(read.numbers(["ratio"]).is_err() && read.numbers(["x"]).is_err());
    }

    #[test]
    fn broken_files_are_refused() {
        for text in ["", "a,b\n1,2\n", "# note\na,b\n", "# note\na,b\n1\n"] {
            assert!(Rows::parse(text).is_err(), "{text:?}");
        }
    }
}
