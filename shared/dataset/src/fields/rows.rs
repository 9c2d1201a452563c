//! The rows of a table, in any order, as fields in the order of the dataset.

use super::column::{ColumnReading, Unfinished};
use super::{FieldsError, SampleFields};
use crate::Dataset;
use ddlp_pixels::LABEL;
use std::collections::HashMap;
use std::path::Path;

/// A table that is read row by row.
pub(super) struct Rows<'t> {
    path: &'t Path,
    /// What a row is called in messages.
    unit: &'static str,
    dataset: &'t dyn Dataset,
    /// The columns, each with the places of its cells in a row.
    columns: Vec<(ColumnReading, Vec<usize>)>,
    names: Names,
    /// For each sample, whether it had a row.
    has: Vec<bool>,
}

impl<'t> Rows<'t> {
    /// Begins a table. Row number `row` names the columns: first the column of the samples' names, then the fields.
    /// Columns of numbers that have the same name are one field.
    pub(super) fn new<'h>(
        path: &'t Path,
        unit: &'static str,
        dataset: &'t dyn Dataset,
        header: impl Iterator<Item = &'h str>,
        row: u64,
    ) -> Result<Self, FieldsError> {
        let has = vec![false; dataset.len() as usize];
        let mut rows = Self { path, unit, dataset, columns: Vec::new(), names: Names::new(dataset), has };
        for (place, name) in header.skip(1).enumerate() {
            if name != LABEL && name.eq_ignore_ascii_case(LABEL) {
                let what = format!(
                    "a column is called {name}: write {LABEL} if it has the labels, and otherwise give it another name"
                );
                return Err(rows.wrong(row, what));
            }
            let column = ColumnReading::new(name);
            match rows.columns.iter_mut().find(|(known, _)| known.name() == column.name()) {
                None => rows.columns.push((column, vec![place])),
                Some((known, places)) if known.has_numbers() => places.push(place),
                Some(_) => {
                    let what = format!("two columns have labels for the field {:?}: leave one out", column.name());
                    return Err(rows.wrong(row, what));
                }
            }
        }
        if rows.columns.is_empty() {
            return Err(rows.wrong(row, "at least two columns are needed: the sample's name, and a field"));
        }
        Ok(rows)
    }

    /// Takes a row: the name of a sample, and the cells of the other columns.
    pub(super) fn take(&mut self, row: u64, name: &str, cells: &[&str]) -> Result<(), FieldsError> {
        let index = self.names.find(name);
        let is_new = index.is_none_or(|index| !std::mem::replace(&mut self.has[index as usize], true));
        if let Some(index) = index.filter(|_| !is_new) {
            let what = format!("sample {} has a {} before this one", self.dataset.name(index), self.unit);
            return Err(self.wrong(row, what));
        }
        let samples = self.dataset.len();
        for (column, places) in &mut self.columns {
            let cell = places.iter().map(|&place| cells[place]).collect::<Vec<_>>().join(" ");
            let taken = match index {
                Some(index) => column.take(index, samples, row, &cell),
                None => column.take_other(&cell),
            };
            if let Err(what) = taken {
                let what = in_column(column.name(), &what);
                return Err(self.wrong(row, what));
            }
        }
        Ok(())
    }

    /// Returns the fields, if every sample had a row.
    pub(super) fn finish(self) -> Result<SampleFields, FieldsError> {
        let (samples, unit) = (self.dataset.len(), self.unit);
        if let Some(first) = self.has.iter().position(|&has| !has) {
            let count = self.has.iter().filter(|&&has| !has).count() as u64;
            let (path, first) = (self.path.into(), self.dataset.name(first as u64));
            return Err(FieldsError::MissingSamples { path, unit, count, samples, first });
        }
        let mut fields = SampleFields::default();
        for (column, _) in self.columns {
            let name = column.name().to_owned();
            column.finish(samples, self.dataset.classes(), unit, &mut fields).map_err(|error| match error {
                Unfinished::Row(row, what) => {
                    FieldsError::Row { path: self.path.into(), unit, row, what: in_column(&name, &what) }
                }
                Unfinished::Column(error) => error,
            })?;
        }
        Ok(fields)
    }

    /// Returns an error about a row.
    pub(super) fn wrong(&self, row: u64, what: impl Into<String>) -> FieldsError {
        FieldsError::Row { path: self.path.into(), unit: self.unit, row, what: what.into() }
    }
}

/// Says what is wrong in a column.
fn in_column(name: &str, what: &str) -> String {
    format!("column {name:?}: {what}")
}

/// Finds samples by their names.
struct Names {
    by_name: HashMap<String, u64>,
    /// Samples by their names without the extension; empty if two of these names are equal. Made once needed.
    by_stem: Option<HashMap<String, u64>>,
    /// Whether names in the table lack the extension. Decided by the first line that names a sample.
    are_stems: Option<bool>,
}

impl Names {
    fn new(dataset: &dyn Dataset) -> Self {
        let by_name = (0..dataset.len()).map(|index| (dataset.name(index), index)).collect();
        Self { by_name, by_stem: None, are_stems: None }
    }

    fn find(&mut self, name: &str) -> Option<u64> {
        let by_name = self.by_name.get(name).filter(|_| self.are_stems != Some(true));
        if by_name.is_some() || self.are_stems == Some(false) {
            self.are_stems = Some(false);
            return by_name.copied();
        }
        let found = self.by_stem.get_or_insert_with(|| stems(&self.by_name)).get(name).copied();
        if found.is_some() {
            self.are_stems = Some(true);
        }
        found
    }
}

fn stems(by_name: &HashMap<String, u64>) -> HashMap<String, u64> {
    let stem = |name: &str| name.rsplit_once('.').map_or(name, |(stem, _)| stem).to_owned();
    let by_stem: HashMap<_, _> = by_name.iter().map(|(name, &index)| (stem(name), index)).collect();
    if by_stem.len() == by_name.len() { by_stem } else { HashMap::new() }
}
