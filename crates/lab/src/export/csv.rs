//! Tables as text (RFC 4180), with a header of column names; a missing value is an empty cell.

use std::io::{self, Write};

use super::Sink;
use crate::store::{Cell, Column};

/// A table under way.
pub struct Csv<W> {
    out: W,
}

impl<W: Write> Csv<W> {
    /// Begins a table with the header.
    pub fn new(mut out: W, columns: &[Column]) -> io::Result<Self> {
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        writeln!(out, "{}", names.join(","))?;
        Ok(Self { out })
    }
}

impl<W: Write> Sink for Csv<W> {
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        for (index, cell) in cells.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            match cell {
                Cell::Nothing => write!(self.out, "{comma}")?,
                Cell::Integer(number) => write!(self.out, "{comma}{number}")?,
                Cell::Real(number) => write!(self.out, "{comma}{number}")?,
                Cell::Text(text) if text.contains([',', '"', '\n', '\r']) => {
                    write!(self.out, "{comma}\"{}\"", text.replace('"', "\"\""))?;
                }
                Cell::Text(text) => write!(self.out, "{comma}{text}")?,
            }
        }
        writeln!(self.out)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.out.flush()
    }
}
