//! The labels of a list: class indices, or names of classes.

use crate::label_text::{LabelTexts, WrongLabel};
use crate::{CLASSES_MAX, OpenOptions};
use std::collections::HashSet;

/// The labels as the list has them, in the order of its lines.
pub(in crate::sources) struct Labels<'o> {
    texts: Vec<String>,
    kinds: LabelTexts,
    /// The given classes.
    given: HashSet<&'o str>,
    /// The first label that is not among the given classes, and its line.
    unknown: Option<(u64, String)>,
    /// Whether any label is among the given classes.
    has_known: bool,
    are_unused: bool,
}

/// Labels as numbers.
#[derive(Debug, PartialEq)]
pub(in crate::sources) struct Numbered {
    /// The label of each line; empty if the list has no labels.
    pub labels: Vec<u32>,
    /// Names of the classes; empty if the labels are class indices.
    pub classes: Vec<String>,
}

impl<'o> Labels<'o> {
    pub fn new(options: &'o OpenOptions) -> Self {
        Self {
            texts: Vec::new(),
            kinds: LabelTexts::new(CLASSES_MAX as u64 - 1),
            given: options.classes.iter().map(String::as_str).collect(),
            unknown: None,
            has_known: false,
            are_unused: options.labels_unused,
        }
    }

    /// Adds the label in a line.
    pub fn add(&mut self, line: u64, label: String) {
        self.kinds.add(line, &label);
        if self.given.contains(&*label) {
            self.has_known = true;
        } else if self.unknown.is_none() {
            self.unknown = Some((line, label.clone()));
        }
        self.texts.push(label);
    }

    /// Returns the labels as the list alone says, which the list's identity contains, and the labels as names if they
    /// could be indices but the given classes have a name for each.
    ///
    /// # Errors
    ///
    /// The line of a label that is neither an index nor a name, and what is wrong with it.
    pub fn numbered(self, unit: &str) -> Result<(Numbered, Option<Numbered>), WrongLabel> {
        let are_given = self.has_known && self.unknown.is_none();
        match self.kinds.are_indices(unit) {
            Ok(true) => {
                let labels = self.texts.iter().filter_map(|label| self.kinds.index(label)).map(|index| index as u32);
                let own = Numbered { labels: labels.collect(), classes: Vec::new() };
                Ok((own, are_given.then(|| named(&self.texts))))
            }
            Ok(false) => Ok((named(&self.texts), None)),
            Err(_) if are_given || self.are_unused => Ok((named(&self.texts), None)),
            Err(wrong) => Err(match self.unknown {
                Some((line, label)) if self.has_known => {
                    let given = self.given.len();
                    let what =
                        format!("the label {label} is not among the {given} given classes: add it, or correct it");
                    (line, what)
                }
                _ => wrong,
            }),
        }
    }
}

/// Numbers labels that are names of classes. The classes are sorted byte by byte.
fn named(texts: &[String]) -> Numbered {
    let mut classes = texts.to_vec();
    classes.sort_unstable();
    classes.dedup();
    let numbers = texts.iter().map(|label| classes.binary_search(label).expect("it is one of them") as u32);
    Numbered { labels: numbers.collect(), classes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(texts: &[&str], options: OpenOptions) -> Result<(Numbered, Option<Numbered>), WrongLabel> {
        let mut labels = Labels::new(&options);
        (2..).zip(texts).for_each(|(line, label)| labels.add(line, label.to_string()));
        labels.numbered("line")
    }

    fn given(classes: &[&str]) -> OpenOptions {
        OpenOptions { classes: classes.iter().map(ToString::to_string).collect(), ..OpenOptions::default() }
    }

    fn names(labels: &[u32], classes: &[&str]) -> Numbered {
        Numbered { labels: labels.to_vec(), classes: classes.iter().map(ToString::to_string).collect() }
    }

    #[test]
    fn given_classes_decide_that_labels_are_names() {
        for (texts, sorted) in [
            (["cat", "7", "cat"], ["7", "cat"]),
            (["1", "-1", "1"], ["-1", "1"]),
            (["9999999", "12345678901234567890", "9999999"], ["12345678901234567890", "9999999"]),
        ] {
            assert!(numbered(&texts, OpenOptions::default()).is_err());
            let mut classes = sorted.to_vec();
            classes.insert(0, "another");
            assert_eq!(numbered(&texts, given(&classes)), Ok((names(&[1, 0, 1], &sorted), None)));
        }
    }

    #[test]
    fn numbers_that_are_names_of_the_given_classes_leave_the_own_labels_as_they_are() {
        let indices = names(&[1, 3], &[]);
        assert_eq!(numbered(&["1", "3"], OpenOptions::default()), Ok((names(&[1, 3], &[]), None)));
        assert_eq!(numbered(&["1", "3"], given(&["ant", "bee"])), Ok((names(&[1, 3], &[]), None)));
        assert_eq!(numbered(&["1", "3"], given(&["3", "2", "1"])), Ok((indices, Some(names(&[0, 1], &["1", "3"])))));
    }

    #[test]
    fn a_label_beside_the_given_classes_is_named() {
        let said = |texts: &[&str], classes: &[&str]| numbered(texts, given(classes)).unwrap_err();
        let (line, what) = said(&["cat", "7", "dgo"], &["cat", "dog", "7"]);
        assert_eq!((line, &*what), (4, "the label dgo is not among the 3 given classes: add it, or correct it"));
        let (line, what) = said(&["0", "1", "N/A"], &["cat", "dog"]);
        assert!(
            line == 4 && what.contains("N/A is a name") && what.ends_with("name all classes (`classes`)"),
            "{what}"
        );
    }

    #[test]
    fn labels_that_nobody_uses_are_never_wrong() {
        let unused = || OpenOptions { labels_unused: true, ..OpenOptions::default() };
        let own = |texts: &[&str], options| numbered(texts, options).unwrap().0;
        assert_eq!(own(&["cat", "7"], unused()), own(&["cat", "7"], given(&["cat", "7"])));
        assert_eq!(own(&["1", "3"], unused()), own(&["1", "3"], given(&["3", "1"])));
    }
}
