//! Rows as the columns of a Parquet file.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::file::metadata::{KeyValue, SortingColumn};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

use crate::error::{Error, Result, failed};
use crate::whole::{Readers, Unfinished};

/// Bytes of the dictionary of a column in a row group. All stacks of a run, some KiB each, fit into
/// it.
const DICTIONARY: usize = 32 << 20;

/// Storage type of a value of a row. `None` is null.
pub enum Value<R> {
    /// A signed number of 64 bits.
    Long(fn(&R) -> Option<i64>),
    /// A signed number of 32 bits.
    Int(fn(&R) -> Option<i32>),
    Double(fn(&R) -> Option<f64>),
    Bool(fn(&R) -> Option<bool>),
    Text(fn(&R) -> Option<ByteArray>),
    /// Microseconds since 1970, UTC.
    Time(fn(&R) -> Option<i64>),
}

/// A column: its name, and its value of a row.
pub struct Column<R: 'static>(pub &'static str, pub Value<R>);

impl<R> Column<R> {
    /// The type, as SQL names it.
    #[cfg(test)]
    pub fn kind(&self) -> &'static str {
        match self.1 {
            Value::Long(_) => "bigint",
            Value::Int(_) => "int",
            Value::Double(_) => "double",
            Value::Bool(_) => "boolean",
            Value::Text(_) => "string",
            Value::Time(_) => "timestamp",
        }
    }

    fn field(&self) -> Result<TypePtr> {
        let (physical, logical) = match self.1 {
            Value::Long(_) => (Physical::INT64, None),
            Value::Int(_) => (Physical::INT32, None),
            Value::Double(_) => (Physical::DOUBLE, None),
            Value::Bool(_) => (Physical::BOOLEAN, None),
            Value::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Value::Time(_) => {
                let unit = TimeUnit::MICROS;
                let of = LogicalType::timestamp(true, unit);
                (Physical::INT64, Some(of))
            }
        };
        let of = Type::primitive_type_builder(self.0, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical);
        Ok(Arc::new(of.build().map_err(Error::of)?))
    }

    fn write(&self, group: &mut SerializedRowGroupWriter<'_, File>, rows: &[R]) -> Result<()> {
        match self.1 {
            Value::Long(of) | Value::Time(of) => put::<Int64Type, R>(group, rows, of),
            Value::Int(of) => put::<Int32Type, R>(group, rows, of),
            Value::Double(of) => put::<DoubleType, R>(group, rows, of),
            Value::Bool(of) => put::<BoolType, R>(group, rows, of),
            Value::Text(of) => put::<ByteArrayType, R>(group, rows, of),
        }
    }
}

fn put<T: DataType, R>(
    group: &mut SerializedRowGroupWriter<'_, File>,
    rows: &[R],
    of: fn(&R) -> Option<T::T>,
) -> Result<()> {
    let mut values = Vec::with_capacity(rows.len());
    let mut levels = Vec::with_capacity(rows.len());
    for row in rows {
        let value = of(row);
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    let column = group.next_column().map_err(Error::of)?;
    let mut column = column.ok_or_else(|| failed!("there are more columns than the schema has"))?;
    column
        .typed::<T>()
        .write_batch(&values, Some(&levels), None)
        .map_err(Error::of)?;
    column.close().map_err(Error::of)?;
    Ok(())
}

/// A number as a signed one: engines know no other. Of more than 2⁶³ − 1 that much.
pub fn long(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A text; none of an empty one.
pub fn text(text: &str) -> Option<ByteArray> {
    (!text.is_empty()).then(|| ByteArray::from(text.as_bytes().to_vec()))
}

/// A file that is being written, and has its name when it is finished.
pub struct TableFile<R: 'static> {
    columns: &'static [Column<R>],
    file: Unfinished,
    writer: SerializedFileWriter<File>,
}

impl<R> TableFile<R> {
    /// Begins a file of these columns. In each group of rows the values of the column `sorted_by`
    /// rise.
    pub fn create(
        path: &Path,
        columns: &'static [Column<R>],
        sorted_by: Option<&str>,
        facts: Vec<KeyValue>,
    ) -> Result<TableFile<R>> {
        let sorted = sorted_by.and_then(|name| columns.iter().position(|one| one.0 == name));
        let sorted = sorted.map(|at| {
            vec![SortingColumn {
                column_idx: at as i32,
                descending: false,
                nulls_first: false,
            }]
        });
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(format!("gpushim version {}", env!("CARGO_PKG_VERSION")))
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_dictionary_page_size_limit(DICTIONARY)
            .set_sorting_columns(sorted)
            .set_key_value_metadata(Some(facts))
            .build();
        let fields = columns.iter().map(Column::field).collect::<Result<_>>()?;
        let schema = Type::group_type_builder("gpushim").with_fields(fields);
        let file = Unfinished::beside(path)?;
        let (schema, properties) = (
            Arc::new(schema.build().map_err(Error::of)?),
            Arc::new(properties),
        );
        let writer = SerializedFileWriter::new(file.file().try_clone()?, schema, properties)
            .map_err(Error::of)?;
        Ok(TableFile {
            columns,
            file,
            writer,
        })
    }

    /// Writes one group of rows.
    pub fn put(&mut self, rows: &[R]) -> Result<()> {
        let mut group = self.writer.next_row_group().map_err(Error::of)?;
        for column in self.columns {
            column.write(&mut group, rows)?;
        }
        group.close().map_err(Error::of)?;
        Ok(())
    }

    /// Closes the file and gives it its name.
    pub fn finish(self, path: &Path) -> Result<()> {
        self.writer.close().map_err(Error::of)?;
        Ok(self.file.persist(path, Readers::Owner)?)
    }
}
