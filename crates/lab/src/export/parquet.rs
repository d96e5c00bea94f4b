//! Tables as Apache Parquet: each column has a type, and its values are packed with LZ4.

use std::fs::File;
use std::io;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

use super::Sink;
use crate::store::{Cell, Column, ColumnKind};

/// Rows to hold in memory and pack together.
const GROUP_ROWS: usize = 1 << 17;

/// A table under way.
pub struct Parquet {
    writer: SerializedFileWriter<File>,
    columns: Vec<Values>,
    rows: usize,
}

/// The values of a column that are not written yet.
struct Values {
    of: Kind,
    /// Whether each row has a value, 1 or 0; `None` if all rows have one.
    present: Option<Vec<i16>>,
}

enum Kind {
    Integer(Vec<i64>),
    Real(Vec<f64>),
    Text(Vec<ByteArray>),
}

impl Parquet {
    /// Begins the file of `table`.
    pub fn new(file: File, table: &str, columns: &[Column]) -> io::Result<Self> {
        let fields: Vec<String> = columns.iter().map(field).collect();
        let schema = format!("message {table} {{ {} }}", fields.join(" "));
        let schema = parse_message_type(&schema).map_err(io::Error::other)?;
        let properties = WriterProperties::builder().set_compression(Compression::LZ4_RAW).build();
        let writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties));
        let columns = columns.iter().map(Values::of).collect();
        Ok(Self { writer: writer.map_err(io::Error::other)?, columns, rows: 0 })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            if let Some(writer) = group.next_column()? {
                column.write(writer)?;
            }
        }
        group.close()?;
        self.rows = 0;
        Ok(())
    }
}

impl Sink for Parquet {
    fn row(&mut self, cells: &[Cell<'_>]) -> io::Result<()> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(cell);
        }
        self.rows += 1;
        if self.rows < GROUP_ROWS {
            return Ok(());
        }
        self.write_group().map_err(io::Error::other)
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if self.rows > 0 {
            self.write_group().map_err(io::Error::other)?;
        }
        self.writer.close().map(drop).map_err(io::Error::other)
    }
}

/// A field of the schema in Parquet's own notation.
fn field(column: &Column) -> String {
    let repetition = if column.is_optional { "OPTIONAL" } else { "REQUIRED" };
    let (kind, annotation) = match column.kind {
        ColumnKind::Integer => ("INT64", ""),
        ColumnKind::Real => ("DOUBLE", ""),
        ColumnKind::Text => ("BYTE_ARRAY", " (UTF8)"),
    };
    format!("{repetition} {kind} {}{annotation};", column.name)
}

impl Values {
    fn of(column: &Column) -> Self {
        let of = match column.kind {
            ColumnKind::Integer => Kind::Integer(Vec::new()),
            ColumnKind::Real => Kind::Real(Vec::new()),
            ColumnKind::Text => Kind::Text(Vec::new()),
        };
        Self { of, present: column.is_optional.then(Vec::new) }
    }

    fn push(&mut self, cell: &Cell<'_>) {
        match (&mut self.of, cell) {
            (Kind::Integer(values), Cell::Integer(number)) => values.push(*number),
            (Kind::Real(values), Cell::Real(number)) => values.push(*number),
            (Kind::Text(values), Cell::Text(text)) => values.push(ByteArray::from(&**text)),
            _ => debug_assert_eq!(
                *cell,
                Cell::Nothing,
                "a cell's type differs from its column's type"
            ),
        }
        if let Some(present) = &mut self.present {
            present.push(i16::from(*cell != Cell::Nothing));
        }
    }

    fn write(&mut self, writer: SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        let present = self.present.as_deref();
        match &mut self.of {
            Kind::Integer(values) => write_values::<Int64Type>(writer, values, present)?,
            Kind::Real(values) => write_values::<DoubleType>(writer, values, present)?,
            Kind::Text(values) => write_values::<ByteArrayType>(writer, values, present)?,
        }
        self.present.iter_mut().for_each(Vec::clear);
        Ok(())
    }
}

/// Writes all of `values` and empties them.
fn write_values<T: DataType>(
    mut writer: SerializedColumnWriter<'_>,
    values: &mut Vec<T::T>,
    present: Option<&[i16]>,
) -> Result<(), ParquetError> {
    writer.typed::<T>().write_batch(values, present, None)?;
    values.clear();
    writer.close()
}
