//! A column of a table, as it is read: the cells of all samples, from text to a field's values.

use super::labels::{Labels, Several};
use super::{FieldsError, LABELS, SampleFields, VALUE_BYTES_MAX, vector};
use crate::label_text::WrongLabel;
use ddlp_pixels::{DType, Field, LABEL};
use std::sync::Arc;

/// Column of Kaggle's tables about ImageNet: a class and its box, maybe more of both.
const PREDICTION_STRING: &str = "PredictionString";

/// Largest whole number that a column of float32 may have: all whole numbers up to this one are different as f64.
const FLOAT_WHOLE_MAX: u64 = 1 << 53;

/// A column that is read.
pub(super) struct ColumnReading {
    name: String,
    kind: Kind,
    /// Numbers in a cell; `None` before the first cell.
    width: Option<usize>,
    /// The numbers of all cells, as i64 while all are whole, and otherwise the bits of f64; of cells with labels, their
    /// positions in `labels`.
    numbers: Vec<i64>,
    is_whole: bool,
    labels: Labels,
}

/// Why a column is no field.
pub(super) enum Unfinished {
    /// A row is wrong: its number, and what is wrong.
    Row(u64, String),
    /// The column as a whole does not fit.
    Column(FieldsError),
}

impl From<FieldsError> for Unfinished {
    fn from(error: FieldsError) -> Self {
        Self::Column(error)
    }
}

impl From<WrongLabel> for Unfinished {
    fn from((row, what): WrongLabel) -> Self {
        Self::Row(row, what)
    }
}

/// What the cells of a column hold.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// Numbers, as many in each cell.
    Numbers,
    /// A label.
    Label,
    /// A label, and after a space something that is left out.
    FirstWord,
    /// Any number of labels.
    Labels,
}

impl ColumnReading {
    pub(super) fn new(name: &str) -> Self {
        let (name, kind) = match name {
            LABEL => (LABEL, Kind::Label),
            PREDICTION_STRING => (LABEL, Kind::FirstWord),
            LABELS => (LABELS, Kind::Labels),
            name => (name, Kind::Numbers),
        };
        let (name, labels) = (name.into(), Labels::default());
        Self { name, kind, width: None, numbers: Vec::new(), is_whole: true, labels }
    }

    /// Returns the name of the field.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the cells have numbers that are no labels.
    pub(super) fn has_numbers(&self) -> bool {
        self.kind == Kind::Numbers
    }

    /// Takes the cell that a row has for a sample. The error says what is wrong with the cell.
    pub(super) fn take(&mut self, index: u64, samples: u64, row: u64, cell: &str) -> Result<(), String> {
        if cell.is_empty() && self.kind != Kind::Labels {
            return Err("the cell is empty: write nan for a number that is missing".into());
        }
        let width = if self.kind == Kind::Numbers { cell.split_ascii_whitespace().count() } else { 1 };
        let expected = *self.width.get_or_insert(width);
        if width != expected {
            return Err(format!("the cell has {width} numbers, the first one {expected}"));
        }
        if self.numbers.is_empty() {
            let numbers = (samples as usize).checked_mul(width).filter(|_| width * 8 <= VALUE_BYTES_MAX);
            let numbers = numbers.ok_or("the cell has too many numbers")?;
            self.numbers.try_reserve_exact(numbers).map_err(|_| "the system refuses memory for the column")?;
            self.numbers.resize(numbers, 0);
        }
        let first = index as usize * width;
        if let Some(label) = self.kind.label_in(cell) {
            self.numbers[first] = self.labels.add_used(label, row)? as i64;
            return Ok(());
        }
        for (place, text) in (first..).zip(cell.split_ascii_whitespace()) {
            self.numbers[place] = self.number(text)?;
        }
        Ok(())
    }

    /// Returns a number as [`numbers`](Self::numbers) has it.
    fn number(&mut self, text: &str) -> Result<i64, String> {
        let number: f64 = text.parse().map_err(|_| format!("{text:?} is not a number; only labels may be words"))?;
        let whole: Option<i64> = match is_whole(text) {
            true => Some(text.parse().map_err(|_| format!("{text} has more digits than int64 has room for"))?),
            false => None,
        };
        if let (true, Some(whole)) = (self.is_whole, whole) {
            return Ok(whole);
        }
        if number.is_finite() && (number as f32).is_infinite() {
            return Err(format!("{text} is beyond float32, whose largest number is {:e}", f32::MAX));
        }
        let is_large = |whole: &i64| whole.unsigned_abs() > FLOAT_WHOLE_MAX;
        let rounded = |whole: i64| {
            Err(format!(
                "the column has {whole} beside numbers that are not whole, so it is float32, which would round {whole}"
            ))
        };
        if self.is_whole {
            if let Some(large) = self.numbers.iter().copied().find(is_large) {
                return rounded(large);
            }
            self.is_whole = false;
            self.numbers.iter_mut().for_each(|number| *number = (*number as f64).to_bits() as i64);
        } else if let Some(large) = whole.filter(is_large) {
            return rounded(large);
        }
        Ok(number.to_bits() as i64)
    }

    /// Takes a cell that belongs to no sample of the dataset. Only a label matters, which names a class.
    pub(super) fn take_other(&mut self, cell: &str) -> Result<(), String> {
        self.kind.label_in(cell).map_or(Ok(()), |label| self.labels.add(label).map(drop))
    }

    /// Adds the field of this column to the fields of a dataset with `samples` samples and these classes.
    /// `unit` is what a row is called.
    pub(super) fn finish(
        self,
        samples: u64,
        classes: &[String],
        unit: &str,
        fields: &mut SampleFields,
    ) -> Result<(), Unfinished> {
        match self.kind {
            Kind::Numbers => Ok(self.finish_numbers(samples, fields)?),
            Kind::Label | Kind::FirstWord => {
                let (numbers, names) = self.labels.numbers(classes, unit)?;
                let values = self.numbers.iter().flat_map(|&at| numbers[at as usize].to_ne_bytes()).collect();
                fields.add(samples, Field::label(), Arc::new(values))?;
                fields.classes = names;
                Ok(())
            }
            Kind::Labels => self.finish_labels(samples, classes, unit, fields),
        }
    }

    fn finish_labels(
        self,
        samples: u64,
        classes: &[String],
        unit: &str,
        fields: &mut SampleFields,
    ) -> Result<(), Unfinished> {
        let refused = |what: String| FieldsError::Field { name: self.name.clone(), what };
        let Several { numbers, count, names } = self.labels.several(classes, unit)?;
        if count == 0 {
            return Err(refused("no sample has a label: leave the column out".into()).into());
        }
        let bytes = count * size_of::<f32>();
        let all = bytes.checked_mul(self.numbers.len()).filter(|_| bytes <= VALUE_BYTES_MAX);
        let all = all.ok_or_else(|| refused(format!("there are too many classes for a vector: {count}")))?;
        let mut values = Vec::new();
        values.try_reserve_exact(all).map_err(|_| refused(format!("the system refuses {all} bytes of memory")))?;
        values.resize(all, 0);
        for (row, &at) in values.chunks_exact_mut(bytes).zip(&self.numbers) {
            for number in &numbers[at as usize] {
                row[number * size_of::<f32>()..][..size_of::<f32>()].copy_from_slice(&1f32.to_ne_bytes());
            }
        }
        fields.add(samples, vector(&self.name, DType::F32, vec![count as u32]), Arc::new(values))?;
        // The names are those of the labels' classes, unless a label has classes of its own.
        if classes.is_empty() && fields.position(LABEL).is_none() {
            fields.classes = names;
        }
        Ok(())
    }

    fn finish_numbers(self, samples: u64, fields: &mut SampleFields) -> Result<(), FieldsError> {
        let width = self.width.unwrap_or(1);
        let shape = if width == 1 { Vec::new() } else { vec![width as u32] };
        let (dtype, values) = if self.is_whole {
            (DType::I64, self.numbers.iter().flat_map(|number| number.to_ne_bytes()).collect())
        } else {
            let float = |&bits: &i64| (f64::from_bits(bits as u64) as f32).to_ne_bytes();
            (DType::F32, self.numbers.iter().flat_map(float).collect())
        };
        fields.add(samples, vector(&self.name, dtype, shape), Arc::new(values))
    }
}

impl Kind {
    /// Returns the label in a cell, if this kind of column has labels.
    fn label_in(self, cell: &str) -> Option<&str> {
        match self {
            Self::Numbers => None,
            Self::Label | Self::Labels => Some(cell),
            Self::FirstWord => Some(cell.split_ascii_whitespace().next().unwrap_or_default()),
        }
    }
}

/// Returns whether a number is written as a whole one.
fn is_whole(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
