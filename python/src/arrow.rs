//! Samples in Arrow memory, which another library has read or mapped: no byte is copied before an image is decoded. A
//! row may also name the file of its image, which is read when the sample is prepared.

#![allow(unsafe_code)]

use crate::errors;
use crate::labels;
use crate::opening;
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{ArrowPrimitiveType, ByteArrayType, Int8Type, Int16Type, Int32Type, Int64Type};
use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, GenericByteArray, OffsetSizeTrait, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, DataType, Schema};
use ddlp_host::dataset::{Dataset, Header, Identity, Location, ReadError, Unavailable};
use ddlp_host::pixels::Source;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{self, PathBuf};

/// Most samples that enter the identity with their bytes. All others enter only with lengths and labels.
const DIGESTED: u64 = 64;

/// A table with a column of image files and one of labels.
pub struct Table {
    parts: Vec<Part>,
    labels: Vec<u32>,
    classes: Vec<String>,
    /// Whether some rows have no bytes, but the path of a file.
    has_paths: bool,
    identity: Identity,
}

/// The images of one record batch.
struct Part {
    /// Index of the sample after the last one.
    end: u64,
    /// Bytes of image files.
    files: Option<ArrayRef>,
    /// Paths of image files, for rows without bytes.
    paths: Option<ArrayRef>,
    /// Names of the samples.
    names: Option<ArrayRef>,
}

/// The image of a row.
enum Image<'a> {
    Bytes(&'a [u8]),
    /// Path of its file.
    Path(&'a [u8]),
}

/// Names of columns. A column without a given name is found by its type.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Columns {
    image: Option<String>,
    label: Option<String>,
    name: Option<String>,
    /// Column of int64, without nulls, by which errors name the rows. Without it, they give the number of a row.
    id: Option<String>,
    classes: Vec<String>,
}

/// Indices of columns.
struct Places {
    image: usize,
    label: usize,
    name: Option<usize>,
    id: Option<usize>,
}

impl Table {
    /// Takes over the table that an object exports by `__arrow_c_stream__`.
    pub fn open(object: &Bound<'_, PyAny>, columns: Columns) -> PyResult<Self> {
        let exported = object.call_method0("__arrow_c_stream__").map_err(|error| Self::unexported(object, error))?;
        let capsule = exported.cast_into::<PyCapsule>()?;
        let stream = capsule.pointer_checked(Some(c"arrow_array_stream"))?.cast::<FFI_ArrowArrayStream>();
        // SAFETY: a capsule of this name holds a stream, which its exporter has made for this one importer. What the
        // stream says about its memory's size cannot be checked; its offsets are, in `add`.
        let stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
        // Threads of the exporter may need the interpreter's lock before the stream can go on.
        opening::elsewhere(object.py(), || Self::read_all(stream, columns))?
    }

    /// Returns the exception for a table that its library cannot export, as pandas cannot export mixed columns.
    fn unexported(object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
        if errors::ends_program(&error) {
            return error;
        }
        let name = object.get_type().fully_qualified_name().map_or("table".into(), |name| name.to_string());
        let why = format!("the {name} cannot be read as a table in Arrow memory: {error}");
        errors::caused_by(errors::configuration(why), Some(error))
    }

    fn read_all(stream: FFI_ArrowArrayStream, columns: Columns) -> PyResult<Self> {
        let wrong = |error: ArrowError| errors::configuration(format!("the table cannot be read: {error}"));
        let reader = RecordBatchStreamReader::try_new(stream).map_err(wrong)?;
        let schema = reader.schema();
        let places = Places {
            image: column(&schema, "image", columns.image.as_deref(), holds_files)?,
            label: column(&schema, "label", columns.label.as_deref(), DataType::is_integer)?,
            name: columns.name.as_deref().map(|name| names_column(&schema, name)).transpose()?,
            id: columns.id.as_deref().map(|id| schema.index_of(id)).transpose().map_err(wrong)?,
        };
        let mut table = Self {
            parts: Vec::new(),
            labels: Vec::new(),
            classes: columns.classes,
            has_paths: false,
            identity: Identity::from_bytes([0; 32]),
        };
        for batch in reader {
            table.add(&batch.map_err(wrong)?, &places)?;
        }
        if table.labels.is_empty() {
            return Err(errors::configuration("the table is empty".into()));
        }
        table.identity = table.digest();
        Ok(table)
    }

    fn add(&mut self, batch: &RecordBatch, places: &Places) -> PyResult<()> {
        let start = self.labels.len();
        let (files, paths) = match batch.column(places.image) {
            column if column.data_type().is_nested() => {
                let fields = column.as_struct();
                (fields.column_by_name("bytes").cloned(), fields.column_by_name("path").filter(is_text).cloned())
            }
            column if is_text(&column) => (None, Some(column.clone())),
            column => (Some(column.clone()), None),
        };
        let names = places.name.map(|at| batch.column(at).clone());
        for part in files.iter().chain(&paths).chain(&names) {
            part.to_data().validate_full().map_err(|error| {
                let rows = part.len();
                errors::configuration(format!("the table is damaged in the {rows} rows from row {start} on: {error}"))
            })?;
        }
        let ids = places.id.map(|at| batch.column(at));
        let named = |row: usize, what: &str| {
            errors::configuration(match ids.and_then(|ids| integer(ids, row)) {
                Some(id) => format!("the sample with the id {id} has {what}"),
                None => format!("row {} of the table has {what}", start + row),
            })
        };
        let part = Part { end: (start + batch.num_rows()) as u64, files, paths, names };
        for row in 0..batch.num_rows() {
            match part.image(row) {
                Some(Image::Bytes(_)) => {}
                Some(Image::Path(path)) if path.windows(3).any(|part| part == b"://") => {
                    let path = String::from_utf8_lossy(path);
                    return Err(named(row, &format!("the address {path}: download the files, or give their bytes")));
                }
                Some(Image::Path(_)) => self.has_paths = true,
                None => return Err(named(row, "neither bytes of an image nor the path of its file")),
            }
        }
        if let Some(names) = &part.names
            && let Some(row) = (0..names.len()).find(|&row| names.is_null(row))
        {
            return Err(named(row, "no name"));
        }
        let integers = batch.column(places.label);
        if let Some(row) = (0..integers.len()).find(|&row| integers.is_null(row)) {
            return Err(named(row, "no label"));
        }
        for row in 0..integers.len() {
            let label = integer(integers, row).ok_or_else(|| named(row, "no label"))?;
            let label = labels::checked(label, self.classes.len());
            self.labels.push(label.map_err(|wrong| named(row, &format!("the label {wrong}")))?);
        }
        self.parts.push(part);
        Ok(())
    }

    fn image(&self, index: u64) -> Image<'_> {
        let (part, row) = self.row(index);
        part.image(row).unwrap_or(Image::Bytes(&[]))
    }

    /// Returns the record batch of a sample, and the row there.
    fn row(&self, index: u64) -> (&Part, usize) {
        let at = self.parts.partition_point(|part| part.end <= index);
        let start = if at == 0 { 0 } else { self.parts[at - 1].end };
        (&self.parts[at], (index - start) as usize)
    }

    /// Returns the error for a file that the system refuses to read.
    fn unread(&self, index: u64, error: io::Error) -> ReadError {
        let location = self.location(index);
        if error.kind() == io::ErrorKind::UnexpectedEof {
            let change = "has become shorter".to_owned();
            return Unavailable::Changed { kind: "image", file: location.file, change }.into();
        }
        ReadError::of_sample(self.name(index), location, error)
    }

    fn digest(&self) -> Identity {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"ddlp arrow 1").update(&self.len().to_le_bytes());
        for (index, label) in (0..).zip(&self.labels) {
            match self.image(index) {
                Image::Bytes(bytes) => hasher.update(&(bytes.len() as u64).to_le_bytes()),
                // No file is this large.
                Image::Path(path) => {
                    hasher.update(&u64::MAX.to_le_bytes()).update(&(path.len() as u64).to_le_bytes()).update(path)
                }
            };
            hasher.update(&label.to_le_bytes());
        }
        for index in (0..self.len()).step_by(self.len().div_ceil(DIGESTED) as usize) {
            if let Image::Bytes(bytes) = self.image(index) {
                hasher.update(bytes);
            }
        }
        Identity::from_bytes(*hasher.finalize().as_bytes())
    }
}

impl Part {
    /// Returns the image of a row, if it has one.
    fn image(&self, row: usize) -> Option<Image<'_>> {
        let in_row = |column: &&ArrayRef| column.is_valid(row);
        let file = self.files.as_ref().filter(in_row).map(|files| Image::Bytes(value(files, row)));
        file.or_else(|| self.paths.as_ref().filter(in_row).map(|paths| Image::Path(value(paths, row))))
    }
}

/// Returns the bytes in a row of a column of bytes or text.
fn value(column: &ArrayRef, row: usize) -> &[u8] {
    match column.data_type() {
        DataType::Binary => at(column.as_binary::<i32>(), row),
        DataType::LargeBinary => at(column.as_binary::<i64>(), row),
        DataType::BinaryView => column.as_binary_view().value(row),
        DataType::LargeUtf8 => at(column.as_string::<i64>(), row),
        DataType::Utf8View => column.as_string_view().value(row).as_bytes(),
        _ => at(column.as_string::<i32>(), row),
    }
}

/// Returns the bytes in a row; none if the offsets have changed since they were checked, in a file that is mapped.
fn at<T: ByteArrayType<Offset = O>, O: OffsetSizeTrait>(column: &GenericByteArray<T>, row: usize) -> &[u8] {
    let offsets = column.value_offsets();
    column.value_data().get(offsets[row].as_usize()..offsets[row + 1].as_usize()).unwrap_or_default()
}

/// Returns the size of a regular file.
fn file_bytes(path: &[u8]) -> io::Result<u64> {
    let found = fs::metadata(OsStr::from_bytes(path))?;
    if found.is_file() {
        Ok(found.len())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Finds a column: by the given name, else as the only one of its kind, else by the usual name. A column of paths must
/// be named.
fn column(schema: &Schema, usual: &str, given: Option<&str>, is_kind: fn(&DataType) -> bool) -> PyResult<usize> {
    let fits = |at: &usize| is_kind(schema.field(*at).data_type());
    let of_kind: Vec<usize> = (0..schema.fields().len()).filter(fits).collect();
    let named = |name: &str| of_kind.iter().copied().find(|&at| schema.field(at).name() == name);
    let found = match (given, &of_kind[..]) {
        (Some(name), _) => named(name).or_else(|| paths_of(schema, name).filter(|_| usual == "image")),
        (None, [only]) => Some(*only),
        (None, _) => named(usual),
    };
    found.ok_or_else(|| {
        let names =
            |all: &mut dyn Iterator<Item = usize>| all.map(|at| schema.field(at).name().clone()).collect::<Vec<_>>();
        let fitting = names(&mut of_kind.iter().copied()).join(", ");
        let all = names(&mut (0..schema.fields().len())).join(", ");
        let what = if usual == "image" { "image files" } else { "whole numbers" };
        errors::configuration(match given {
            Some(name) => match schema.field_with_name(name) {
                Ok(column) if usual == "label" => format!(
                    "the column {name} of the table holds {}, but must hold whole numbers: encode the labels as \
                     numbers from 0, and name the classes by ddlp.ArrowTable(table, classes=…)",
                    column.data_type()
                ),
                _ => format!("the table has no column {name} of {what}; its columns are {all}"),
            },
            None if of_kind.is_empty() && usual == "label" => format!(
                "the table has no column of whole numbers for the labels; its columns are {all}: encode the labels as \
                 numbers from 0, and name the classes by ddlp.ArrowTable(table, classes=…)"
            ),
            None if of_kind.is_empty() => format!(
                "the table has no column of {what} (binary, or structs with `bytes`); its columns are {all}: name a \
                 column of paths by ddlp.ArrowTable(table, image=…)"
            ),
            None => format!(
                "name the column of the table that has the {usual}s: ddlp.ArrowTable(table, {usual}=…); columns of \
                 {what}: {fitting}"
            ),
        })
    })
}

/// Finds the column of names.
fn names_column(schema: &Schema, name: &str) -> PyResult<usize> {
    paths_of(schema, name).ok_or_else(|| {
        let all = schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>().join(", ");
        errors::configuration(format!("the table has no column {name} of texts; its columns are {all}"))
    })
}

/// Returns the column of this name, if it holds text.
fn paths_of(schema: &Schema, name: &str) -> Option<usize> {
    schema.index_of(name).ok().filter(|&at| is_text_kind(schema.field(at).data_type()))
}

/// Returns whether a column holds files: binary data, or structs with a field `bytes` of them.
fn holds_files(kind: &DataType) -> bool {
    match kind {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => true,
        DataType::Struct(fields) => fields
            .iter()
            .any(|field| field.name() == "bytes" && !field.data_type().is_nested() && holds_files(field.data_type())),
        _ => false,
    }
}

fn is_text(column: &&ArrayRef) -> bool {
    is_text_kind(column.data_type())
}

fn is_text_kind(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Returns the integer in a row; `None` if the column has no integers.
fn integer(column: &dyn Array, row: usize) -> Option<i128> {
    fn of<T: ArrowPrimitiveType>(column: &dyn Array, row: usize) -> Option<i128>
    where
        T::Native: Into<i128>,
    {
        Some(column.as_primitive::<T>().value(row).into())
    }
    match column.data_type() {
        DataType::Int8 => of::<Int8Type>(column, row),
        DataType::Int16 => of::<Int16Type>(column, row),
        DataType::Int32 => of::<Int32Type>(column, row),
        DataType::Int64 => of::<Int64Type>(column, row),
        DataType::UInt8 => of::<UInt8Type>(column, row),
        DataType::UInt16 => of::<UInt16Type>(column, row),
        DataType::UInt32 => of::<UInt32Type>(column, row),
        DataType::UInt64 => of::<UInt64Type>(column, row),
        _ => None,
    }
}

impl Dataset for Table {
    fn len(&self) -> u64 {
        self.labels.len() as u64
    }

    fn classes(&self) -> &[String] {
        &self.classes
    }

    fn label(&self, index: u64) -> u32 {
        self.labels[index as usize]
    }

    fn name(&self, index: u64) -> String {
        let (part, row) = self.row(index);
        match &part.names {
            Some(names) => String::from_utf8_lossy(value(names, row)).into_owned(),
            None => format!("row {index}"),
        }
    }

    fn location(&self, index: u64) -> Location {
        match self.image(index) {
            Image::Bytes(bytes) => Location { file: "the table".into(), offset: 0, length: bytes.len() as u64 },
            Image::Path(path) => {
                let file = PathBuf::from(OsStr::from_bytes(path));
                let length = file_bytes(path).unwrap_or(0);
                Location { file: path::absolute(&file).unwrap_or(file), offset: 0, length }
            }
        }
    }

    fn header(&self, index: u64) -> Result<Header, ReadError> {
        let samples = self.len();
        if index >= samples {
            return Err(Unavailable::OutOfRange { index, samples }.into());
        }
        let length = match self.image(index) {
            Image::Bytes(bytes) => bytes.len() as u64,
            Image::Path(path) => file_bytes(path).map_err(|error| self.unread(index, error))?,
        };
        Ok(Header::file(0..length))
    }

    fn read(&self, index: u64, _: &Header, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        match self.image(index) {
            Image::Bytes(bytes) => {
                let start = offset as usize;
                out.copy_from_slice(&bytes[start..start + out.len()]);
                Ok(())
            }
            Image::Path(path) => {
                let read = File::open(OsStr::from_bytes(path)).and_then(|file| file.read_exact_at(out, offset));
                read.map_err(|error| self.unread(index, error))
            }
        }
    }

    fn in_memory(&self, index: u64) -> Option<Source<'_>> {
        match self.image(index) {
            Image::Bytes(bytes) => Some(Source::Encoded(bytes)),
            Image::Path(_) => None,
        }
    }

    fn is_resident(&self) -> bool {
        !self.has_paths
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn kind(&self) -> &'static str {
        "arrow"
    }
}
