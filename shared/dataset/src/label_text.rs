//! What the labels in a file are: class indices or names of classes.

/// Finds out what the labels of a file are.
///
/// A label that is written as a number is a class index: a whole number from 0, such as `3` or `3.0`. Any other text is
/// the name of a class. All labels of a file are of one kind: if a few were numbers among names, or names among
/// numbers, all classes would be numbered anew without a word.
pub(crate) struct LabelTexts {
    /// Largest class index.
    largest: u64,
    /// The first index, the first name, and the first number that is not an index: the line and the label.
    index: Option<(u64, String)>,
    name: Option<(u64, String)>,
    other: Option<(u64, String)>,
}

/// What a label is.
enum LabelText {
    Index(u64),
    Name,
    /// A number that is not an index.
    Other,
}

/// Why labels are neither indices nor names: the line and what is wrong with it.
pub(crate) type WrongLabel = (u64, String);

impl LabelTexts {
    /// Begins a file whose largest class index may be `largest`.
    pub fn new(largest: u64) -> Self {
        Self { largest, index: None, name: None, other: None }
    }

    /// Takes the label in a line.
    pub fn add(&mut self, line: u64, label: &str) {
        let first = match self.kind(label) {
            LabelText::Index(_) => &mut self.index,
            LabelText::Name => &mut self.name,
            LabelText::Other => &mut self.other,
        };
        if first.as_ref().is_none_or(|(known, _)| line < *known) {
            *first = Some((line, label.to_owned()));
        }
    }

    /// Returns whether the labels are indices; otherwise they are names. `unit` is what a line is called.
    pub fn are_indices(&self, unit: &str) -> Result<bool, WrongLabel> {
        let number = [&self.index, &self.other].into_iter().flatten().min_by_key(|(line, _)| *line);
        match (number, &self.name) {
            (Some(number), Some(name)) => {
                let (last, first, kinds) = match number.0 > name.0 {
                    true => (number, name, ["number", "name"]),
                    false => (name, number, ["name", "number"]),
                };
                let what = format!(
                    "the label {} is a {}, but that of {unit} {} is a {} ({}): labels are either class indices or \
                     names of classes, so correct the wrong one, or name all classes (`classes`)",
                    last.1, kinds[0], first.0, kinds[1], first.1
                );
                Err((last.0, what))
            }
            (Some(_), None) => match &self.other {
                None => Ok(true),
                Some((line, label)) => Err((
                    *line,
                    format!(
                        "the label {label} is a number, but not a class index (a whole number from 0 to {}): correct \
                         it, give samples without a label a class of their own, or name all classes (`classes`) if \
                         it is the name of one",
                        self.largest
                    ),
                )),
            },
            (None, _) => Ok(self.name.is_none()),
        }
    }

    /// Returns the class index that a label is, if it is one.
    pub fn index(&self, label: &str) -> Option<u64> {
        match self.kind(label) {
            LabelText::Index(index) => Some(index),
            LabelText::Name | LabelText::Other => None,
        }
    }

    /// Returns whether a label is written as a number.
    pub fn is_number(&self, label: &str) -> bool {
        !matches!(self.kind(label), LabelText::Name)
    }

    fn kind(&self, label: &str) -> LabelText {
        let label = label.trim();
        let is_zeros = |fraction: &str| fraction.bytes().all(|digit| digit == b'0');
        let whole = label.split_once('.').filter(|(_, fraction)| is_zeros(fraction)).map_or(label, |(whole, _)| whole);
        let digits = whole.strip_prefix('+').unwrap_or(whole);
        if !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit()) {
            let index = digits.parse().ok().filter(|index| *index <= self.largest);
            return index.map_or(LabelText::Other, LabelText::Index);
        }
        // Words such as nan and infinity are names.
        match label.parse::<f64>() {
            Ok(number) if number.is_finite() => LabelText::Other,
            _ => LabelText::Name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(labels: &[&str]) -> Result<bool, WrongLabel> {
        let mut texts = LabelTexts::new(999);
        (2..).zip(labels).for_each(|(line, label)| texts.add(line, label));
        texts.are_indices("line")
    }

    #[test]
    fn whole_numbers_are_indices_however_they_are_written() {
        let texts = LabelTexts::new(999);
        for (label, index) in [("3", 3), ("3.0", 3), ("10.", 10), ("+7", 7), ("007", 7), (" 8 ", 8), ("999.000", 999)] {
            assert_eq!(texts.index(label), Some(index), "{label}");
        }
        assert_eq!(kinds(&["0.0", "1", "11.0"]), Ok(true));
        assert_eq!(kinds(&["cat", "nan", "1.2.3", "n01440764"]), Ok(false));
    }

    #[test]
    fn a_number_that_is_no_index_is_an_error_that_names_its_line() {
        for label in ["-1", "0.5", "1000", "1e2", "12345678901234567890", "-0.0"] {
            let (line, what) = kinds(&["0", "1", label, "2"]).unwrap_err();
            assert_eq!(line, 4);
            assert!(what.contains(&format!("{label} is a number, but not a class index")), "{what}");
        }
    }

    #[test]
    fn a_mixture_of_numbers_and_names_is_an_error_that_names_both() {
        let (line, what) = kinds(&["0", "1", "N/A", "3"]).unwrap_err();
        assert_eq!(line, 4);
        assert!(what.contains("the label N/A is a name, but that of line 2 is a number (0)"), "{what}");
        let (line, what) = kinds(&["cat", "-1", "7"]).unwrap_err();
        assert_eq!(line, 3);
        assert!(what.contains("the label -1 is a number, but that of line 2 is a name (cat)"), "{what}");
    }
}
