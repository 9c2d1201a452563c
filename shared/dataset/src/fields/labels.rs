//! Labels as a file has them, texts, and the numbers that stand for them.

use crate::CLASSES_MAX;
use crate::label_text::{LabelTexts, WrongLabel};
use crate::table::LINE_BREAKS;
use std::collections::HashMap;

/// The texts of labels: each text once, with its position.
#[derive(Default)]
pub(super) struct Labels {
    positions: HashMap<String, usize>,
    /// For each text, the first row with it that belongs to a sample of the dataset.
    rows: Vec<Option<u64>>,
}

/// Several labels in each text.
pub(super) struct Several {
    /// Numbers of the labels at each position.
    pub(super) numbers: Vec<Vec<usize>>,
    /// Number of classes.
    pub(super) count: usize,
    /// Names of the classes, if the texts name them.
    pub(super) names: Option<Vec<String>>,
}

impl Labels {
    /// Adds a text that may belong to no sample of the dataset. Returns its position.
    pub(super) fn add(&mut self, text: &str) -> Result<usize, String> {
        if text.contains(LINE_BREAKS) {
            return Err(format!("the label {text:?} has a line break: correct it"));
        }
        if let Some(&position) = self.positions.get(text) {
            return Ok(position);
        }
        let position = self.positions.len();
        if position == CLASSES_MAX {
            return Err(format!("there are more than {CLASSES_MAX} labels"));
        }
        self.positions.insert(text.into(), position);
        self.rows.push(None);
        Ok(position)
    }

    /// Adds the text of a sample's label, which stands in this row. Returns its position.
    pub(super) fn add_used(&mut self, text: &str, row: u64) -> Result<usize, String> {
        let position = self.add(text)?;
        let first = &mut self.rows[position];
        *first = Some(first.map_or(row, |first| first.min(row)));
        Ok(position)
    }

    /// Returns the number of each position, and the names of the classes if the texts name them. `unit` is what a row
    /// is called.
    ///
    /// If the dataset has a class for the text of each sample, the texts are these `classes`. Otherwise the texts are
    /// numbers if the texts of all samples are numbers. Otherwise, if no text is a class of the dataset, the texts name
    /// the classes, sorted byte by byte. That includes texts that no sample has, unless they are numbers: so a file
    /// with the labels of several datasets numbers the classes of all of them alike.
    ///
    /// # Errors
    ///
    /// The row of a sample whose label is a number among names, a name among numbers, no class index, or no class of
    /// the dataset while labels of other samples are.
    pub(super) fn numbers(
        &self,
        classes: &[String],
        unit: &str,
    ) -> Result<(Vec<i64>, Option<Vec<String>>), WrongLabel> {
        let mut texts = vec![""; self.positions.len()];
        self.positions.iter().for_each(|(text, &position)| texts[position] = text);
        let own: HashMap<&str, i64> = classes.iter().map(String::as_str).zip(0..).collect();
        let with_rows = || texts.iter().zip(&self.rows);
        if with_rows().all(|(text, row)| row.is_none() || own.contains_key(text)) {
            return Ok((texts.iter().map(|text| own.get(text).copied().unwrap_or(0)).collect(), None));
        }
        let mut kinds = LabelTexts::new(i64::MAX as u64);
        with_rows().filter_map(|(text, row)| Some((text, (*row)?))).for_each(|(text, row)| kinds.add(row, text));
        if kinds.are_indices(unit)? {
            self.check_places(&texts, &own, &kinds)?;
            return Ok((texts.iter().map(|text| kinds.index(text).unwrap_or(0) as i64).collect(), None));
        }
        self.check_known(&texts, &own)?;
        let mut names: Vec<&str> = texts.iter().copied().filter(|text| !kinds.is_number(text)).collect();
        names.sort_unstable();
        let numbers = texts.iter().map(|text| names.binary_search(text).unwrap_or(0) as i64).collect();
        Ok((numbers, Some(names.into_iter().map(str::to_owned).collect())))
    }

    /// Checks that either all names are classes of the dataset or none is: one wrong name would number all of them
    /// anew.
    fn check_known(&self, texts: &[&str], own: &HashMap<&str, i64>) -> Result<(), WrongLabel> {
        let [known, unknown] = self.by_row(texts, own);
        match (known.into_iter().min(), unknown.into_iter().min()) {
            (Some((_, known)), Some((row, text))) => {
                let what = format!(
                    "the label {text} is not among the dataset's {} classes, but {known} is: correct it, or name all \
                     classes (`classes`)",
                    own.len()
                );
                Err((row, what))
            }
            _ => Ok(()),
        }
    }

    /// Returns the labels of samples, with their rows: those that are classes of the dataset, and the others.
    fn by_row<'t>(&self, texts: &[&'t str], own: &HashMap<&str, i64>) -> [Vec<(u64, &'t str)>; 2] {
        let with_rows = texts.iter().zip(&self.rows).filter_map(|(text, row)| Some(((*row)?, *text)));
        with_rows.partition(|(_, text)| own.contains_key(text)).into()
    }

    /// Checks that labels which are class indices are not meant as names of the dataset's classes, if these names are
    /// other numbers than their places: one label that names no class would change what all others mean.
    fn check_places(&self, texts: &[&str], own: &HashMap<&str, i64>, kinds: &LabelTexts) -> Result<(), WrongLabel> {
        let is_elsewhere = |(name, at): &(&&str, &i64)| kinds.index(name).is_some_and(|index| index != **at as u64);
        let Some((name, at)) = own.iter().filter(is_elsewhere).min_by_key(|(_, at)| **at) else { return Ok(()) };
        let [known, unknown] = self.by_row(texts, own);
        match unknown.into_iter().min() {
            Some((row, text)) if !known.is_empty() => {
                let what = format!(
                    "the label {text} is not among the dataset's classes, whose names are numbers (the name of class \
                     {at} is {name}): correct it"
                );
                Err((row, what))
            }
            _ => Ok(()),
        }
    }

    /// Takes the texts as several labels each, separated by spaces, or by `|` if a text contains one. Returns the
    /// numbers of the labels at each position, how many classes there are, and their names, as
    /// [`numbers`](Self::numbers) does.
    pub(super) fn several(&self, classes: &[String], unit: &str) -> Result<Several, WrongLabel> {
        let has_bars = self.positions.keys().any(|text| text.contains('|'));
        let is_separator = |letter: char| if has_bars { letter == '|' } else { letter.is_ascii_whitespace() };
        let mut labels = Self::default();
        let mut positions = vec![Vec::new(); self.positions.len()];
        for (text, &at) in &self.positions {
            for label in text.split(is_separator).map(str::trim).filter(|label| !label.is_empty()) {
                let position = match self.rows[at] {
                    Some(row) => labels.add_used(label, row),
                    None => labels.add(label),
                };
                positions[at].push(position.map_err(|what| (self.rows[at].unwrap_or(0), what))?);
            }
        }
        let (numbers, names) = labels.numbers(classes, unit)?;
        let largest = numbers.iter().copied().max().unwrap_or(-1);
        let count = names.as_ref().map_or(classes.len().max(largest.saturating_add(1) as usize), Vec::len);
        if let Some(at) = numbers.iter().position(|&number| number >= CLASSES_MAX as i64) {
            let what = format!("label {} does not lie between 0 and {}", numbers[at], CLASSES_MAX - 1);
            return Err((labels.rows[at].unwrap_or(0), what));
        }
        let positions = positions.into_iter().map(|labels| labels.into_iter().map(|at| numbers[at] as usize).collect());
        Ok(Several { numbers: positions.collect(), count, names })
    }
}
