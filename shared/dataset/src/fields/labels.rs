//! Labels as a file has them, texts, and the numbers that stand for them.

use crate::CLASSES_MAX;
use std::collections::HashMap;

/// The texts of labels: each text once, with its position.
#[derive(Default)]
pub(super) struct Labels {
    positions: HashMap<String, usize>,
    /// For each text, whether a sample of the dataset has it.
    used: Vec<bool>,
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
        if let Some(&position) = self.positions.get(text) {
            return Ok(position);
        }
        let position = self.positions.len();
        if position == CLASSES_MAX {
            return Err(format!("there are more than {CLASSES_MAX} labels"));
        }
        self.positions.insert(text.into(), position);
        self.used.push(false);
        Ok(position)
    }

    /// Adds the text of a sample's label. Returns its position.
    pub(super) fn add_used(&mut self, text: &str) -> Result<usize, String> {
        let position = self.add(text)?;
        self.used[position] = true;
        Ok(position)
    }

    /// Returns the number of each position, and the names of the classes if the texts name them.
    ///
    /// If the dataset has a class for the text of each sample, the texts are these `classes`. Otherwise the texts are
    /// numbers if all those of samples are. Otherwise all texts name classes, sorted byte by byte, also those that no
    /// sample has: so a file with the labels of several datasets numbers the classes of all of them alike.
    pub(super) fn numbers(&self, classes: &[String]) -> (Vec<i64>, Option<Vec<String>>) {
        let mut texts = vec![""; self.positions.len()];
        self.positions.iter().for_each(|(text, &position)| texts[position] = text);
        let own: HashMap<&str, i64> = classes.iter().map(String::as_str).zip(0..).collect();
        if let Some(numbers) = self.each(&texts, |text| own.get(text).copied()) {
            return (numbers, None);
        }
        if let Some(numbers) = self.each(&texts, |text| text.parse().ok()) {
            return (numbers, None);
        }
        let mut sorted = texts.clone();
        sorted.sort_unstable();
        let numbers = texts.iter().map(|text| sorted.binary_search(text).expect("it is one of them") as i64).collect();
        (numbers, Some(sorted.into_iter().map(str::to_owned).collect()))
    }

    /// Takes the texts as several labels each, separated by spaces, or by `|` if a text contains one. Returns the
    /// numbers of the labels at each position, how many classes there are, and their names, as
    /// [`numbers`](Self::numbers) does.
    pub(super) fn several(&self, classes: &[String]) -> Result<Several, String> {
        let has_bars = self.positions.keys().any(|text| text.contains('|'));
        let is_separator = |letter: char| if has_bars { letter == '|' } else { letter.is_ascii_whitespace() };
        let mut labels = Self::default();
        let mut positions = vec![Vec::new(); self.positions.len()];
        for (text, &at) in &self.positions {
            for label in text.split(is_separator).map(str::trim).filter(|label| !label.is_empty()) {
                positions[at].push(if self.used[at] { labels.add_used(label) } else { labels.add(label) }?);
            }
        }
        let (numbers, names) = labels.numbers(classes);
        let largest = numbers.iter().copied().max().unwrap_or(-1);
        let count = names.as_ref().map_or(classes.len().max((largest + 1) as usize), Vec::len);
        if let Some(number) = numbers.iter().find(|&&number| !(0..CLASSES_MAX as i64).contains(&number)) {
            return Err(format!("label {number} does not lie between 0 and {}", CLASSES_MAX - 1));
        }
        let positions = positions.into_iter().map(|labels| labels.into_iter().map(|at| numbers[at] as usize).collect());
        Ok(Several { numbers: positions.collect(), count, names })
    }

    /// Returns the number of each text, if each text of a sample has one.
    fn each(&self, texts: &[&str], number: impl Fn(&str) -> Option<i64>) -> Option<Vec<i64>> {
        let of = |(text, &used): (&&str, &bool)| number(text).or((!used).then_some(0));
        texts.iter().zip(&self.used).map(of).collect()
    }
}
