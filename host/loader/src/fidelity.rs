//! The fidelity of each epoch: which scan groups are read of samples that are stored in pieces.

use ddlp_dataset::Dataset;
use ddlp_pixels::Fidelity;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};

/// Returns the fidelity of an epoch, or says in words why there is none.
pub type FidelityOfEpoch = dyn Fn(u32) -> Result<Fidelity, String> + Send + Sync;

/// Fidelities, each by the epoch from which on it holds.
///
/// As a text, it is one number (`5`), or numbers by epoch (`0:2,30:10`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Fidelities {
    /// Fidelity from epoch 0 on.
    first: Fidelity,
    /// Changes, by the epoch from which on they hold.
    later: BTreeMap<u32, Fidelity>,
}

impl Fidelities {
    /// Returns the same fidelity for all epochs.
    pub fn constant(fidelity: Fidelity) -> Self {
        Self { first: fidelity, later: BTreeMap::new() }
    }

    /// Adds a fidelity that holds from this epoch on, until the next one that was added.
    pub fn from_epoch(mut self, epoch: u32, fidelity: Fidelity) -> Self {
        match epoch {
            0 => self.first = fidelity,
            _ => drop(self.later.insert(epoch, fidelity)),
        }
        self
    }

    /// Returns the fidelity of an epoch.
    pub fn at(&self, epoch: u32) -> Fidelity {
        self.later.range(..=epoch).next_back().map_or(self.first, |(_, &fidelity)| fidelity)
    }

    /// Returns whether every epoch reads whole images.
    pub fn is_default(&self) -> bool {
        self.values().all(Fidelity::is_whole)
    }

    /// Returns all fidelities, from epoch 0 on.
    fn values(&self) -> impl Iterator<Item = Fidelity> {
        std::iter::once(self.first).chain(self.later.values().copied())
    }
}

impl Default for Fidelities {
    /// Returns whole images in all epochs.
    fn default() -> Self {
        Self::constant(Fidelity::WHOLE)
    }
}

impl fmt::Display for Fidelities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.later.is_empty() {
            return self.first.fmt(f);
        }
        write!(f, "0:{}", self.first)?;
        self.later.iter().try_for_each(|(epoch, fidelity)| write!(f, ",{epoch}:{fidelity}"))
    }
}

impl FromStr for Fidelities {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("\"{text}\" is neither a number from 1 to 10 nor numbers by epoch, such as 0:2,30:10");
        let number = |text: &str| text.trim().parse().ok().and_then(Fidelity::new).ok_or_else(wrong);
        if !text.contains(':') {
            return number(text).map(Self::constant);
        }
        let mut by_epoch = BTreeMap::new();
        for entry in text.split(',') {
            let (epoch, fidelity) = entry.split_once(':').ok_or_else(wrong)?;
            let epoch: u32 = epoch.trim().parse().map_err(|_| wrong())?;
            if by_epoch.insert(epoch, number(fidelity)?).is_some() {
                return Err(format!("\"{text}\" names epoch {epoch} twice"));
            }
        }
        let first = by_epoch.remove(&0).ok_or_else(|| format!("\"{text}\" has no number for epoch 0"))?;
        Ok(Self { first, later: by_epoch })
    }
}

impl From<Fidelities> for String {
    fn from(fidelities: Fidelities) -> Self {
        fidelities.to_string()
    }
}

impl TryFrom<String> for Fidelities {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// The fidelity of each epoch of a run.
pub(crate) enum RunFidelity {
    Given(Fidelities),
    /// A function of the program, which is asked once for each epoch.
    Asked {
        function: Arc<FidelityOfEpoch>,
        groups: Groups,
        /// The answers so far.
        known: RwLock<BTreeMap<u32, Result<Fidelity, String>>>,
    },
}

/// What a dataset says about fidelities.
pub(crate) struct Groups {
    kind: &'static str,
    /// Numbers of the scan groups; empty if samples are not stored in pieces.
    numbers: Vec<u8>,
}

impl Groups {
    /// Checks that the dataset can be read with this fidelity.
    fn check(&self, fidelity: Fidelity) -> Result<(), String> {
        let Self { kind, numbers } = self;
        if fidelity.is_whole() || numbers.contains(&fidelity.number()) {
            return Ok(());
        }
        Err(if numbers.is_empty() && *kind == "mix" {
            format!(
                "it is {fidelity}, but the datasets of this mix have not all the same scan groups, so the mix has \
                 whole images alone, and fidelity 10: make packs of pieces of all of them, with the same `--groups`, \
                 or leave `fidelity` out"
            )
        } else if numbers.is_empty() {
            format!(
                "it is {fidelity}, but this dataset ({kind}) has whole images alone, and fidelity 10: make a pack of \
                 pieces (`ddlp pack SOURCE OUT --format pcr`), or leave `fidelity` out"
            )
        } else {
            let numbers: Vec<String> = numbers.iter().map(u8::to_string).collect();
            format!("it is {fidelity}, but this dataset has the scan groups {}", numbers.join(", "))
        })
    }
}

impl RunFidelity {
    /// Checks the fidelities for a dataset. `function` takes the place of those that are `given`.
    ///
    /// # Errors
    ///
    /// Names the fidelity that the dataset does not have.
    pub fn new(
        given: &Fidelities,
        function: Option<&Arc<FidelityOfEpoch>>,
        dataset: &dyn Dataset,
    ) -> Result<Self, String> {
        let numbers = dataset.scan_groups().map(|groups| groups.numbers().to_vec()).unwrap_or_default();
        let groups = Groups { kind: dataset.kind(), numbers };
        if let Some(function) = function {
            return Ok(Self::Asked { function: function.clone(), groups, known: RwLock::default() });
        }
        match given.values().try_for_each(|fidelity| groups.check(fidelity)) {
            Ok(()) => Ok(Self::Given(given.clone())),
            Err(problem) => Err(format!("`fidelity`: {problem}")),
        }
    }

    /// Returns whether the fidelity of an epoch comes from a function of the program.
    pub fn calls_program(&self) -> bool {
        matches!(self, Self::Asked { .. })
    }

    /// Asks the program's function for the fidelity of an epoch, unless it has answered for this epoch.
    ///
    /// # Errors
    ///
    /// Says why the epoch has none.
    pub fn ask(&self, epoch: u32) -> Result<Fidelity, String> {
        let (function, groups, known) = match self {
            Self::Given(given) => return Ok(given.at(epoch)),
            Self::Asked { function, groups, known } => (function, groups, known),
        };
        if let Some(answer) = known.read().unwrap_or_else(PoisonError::into_inner).get(&epoch) {
            return answer.clone();
        }
        // The function may take long, and prongs read meanwhile.
        let answer = function(epoch).and_then(|fidelity| groups.check(fidelity).map(|()| fidelity));
        let answer = answer.map_err(|problem| format!("`fidelity`({epoch}): {problem}"));
        known.write().unwrap_or_else(PoisonError::into_inner).entry(epoch).or_insert(answer).clone()
    }

    /// Returns the fidelity of an epoch; `None` if the program's function was not asked for it or did not answer.
    pub fn known(&self, epoch: u32) -> Option<Fidelity> {
        match self {
            Self::Given(given) => Some(given.at(epoch)),
            Self::Asked { known, .. } => {
                let known = known.read().unwrap_or_else(PoisonError::into_inner);
                known.get(&epoch).and_then(|answer| answer.as_ref().ok().copied())
            }
        }
    }

    /// Returns what states and plans record: the given fidelities, or the answers so far.
    pub fn recorded(&self) -> Fidelities {
        match self {
            Self::Given(given) => given.clone(),
            Self::Asked { known, .. } => {
                let known = known.read().unwrap_or_else(PoisonError::into_inner);
                let mut answers = known.iter().filter_map(|(&epoch, answer)| Some((epoch, *answer.as_ref().ok()?)));
                let Some((_, first)) = answers.next() else { return Fidelities::default() };
                answers.fold(Fidelities::constant(first), |recorded, (epoch, fidelity)| {
                    if recorded.at(epoch) == fidelity { recorded } else { recorded.from_epoch(epoch, fidelity) }
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn fidelity(number: u8) -> Fidelity {
        Fidelity::new(number).unwrap()
    }

    fn groups() -> Groups {
        Groups { kind: "pack", numbers: vec![1, 2, 5, 10] }
    }

    #[test]
    fn a_fidelity_holds_until_the_next_one() {
        let given: Fidelities = "0:1, 3:5,30:10".parse().unwrap();
        assert_eq!([0, 2, 3, 29, 30, u32::MAX].map(|epoch| given.at(epoch).number()), [1, 1, 5, 5, 10, 10]);
        assert_eq!(given.to_string(), "0:1,3:5,30:10");
        assert_eq!("5".parse::<Fidelities>().unwrap(), Fidelities::constant(fidelity(5)));
        assert_eq!(Fidelities::default().to_string(), "10");
        assert!("0:10,4:10".parse::<Fidelities>().unwrap().is_default() && !given.is_default());
    }

    #[test]
    fn wrong_fidelities_are_refused() {
        for (text, part) in [
            ("0", "from 1 to 10"),
            ("11", "from 1 to 10"),
            ("50%", "from 1 to 10"),
            ("", "from 1 to 10"),
            ("0:2,5", "by epoch"),
            ("3:2", "no number for epoch 0"),
            ("0:1,2:5,2:10", "epoch 2 twice"),
            ("0:1,-1:5", "by epoch"),
        ] {
            let said = text.parse::<Fidelities>().unwrap_err();
            assert!(said.contains(part), "{text}: {said}");
        }
    }

    #[test]
    fn a_function_is_asked_once_for_each_epoch() {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = calls.clone();
        let function: Arc<FidelityOfEpoch> = Arc::new(move |epoch| {
            counted.fetch_add(1, Ordering::Relaxed);
            match epoch {
                7 => Err("no".into()),
                8 => Ok(fidelity(3)),
                _ => Ok(fidelity(if epoch < 5 { 2 } else { 10 })),
            }
        });
        let run = RunFidelity::Asked { function, groups: groups(), known: RwLock::default() };
        assert_eq!((run.known(4), run.recorded()), (None, Fidelities::default()));
        for _ in 0..2 {
            assert_eq!([4, 5, 6].map(|epoch| run.ask(epoch).unwrap().number()), [2, 10, 10]);
            assert_eq!(run.ask(7), Err("`fidelity`(7): no".into()));
            assert!(run.ask(8).unwrap_err().contains("the scan groups 1, 2, 5, 10"));
        }
        assert_eq!(calls.load(Ordering::Relaxed), 5);
        assert_eq!((run.known(4), run.known(7), run.known(9)), (Some(fidelity(2)), None, None));
        let recorded = run.recorded();
        assert_eq!([4, 5, 6].map(|epoch| recorded.at(epoch).number()), [2, 10, 10]);
    }

    #[test]
    fn whole_images_have_no_other_fidelity() {
        let none = Groups { kind: "folder", numbers: Vec::new() };
        assert_eq!(none.check(Fidelity::WHOLE), Ok(()));
        let said = none.check(fidelity(5)).unwrap_err();
        assert!(said.contains("(folder)") && said.contains("--format pcr"), "{said}");
        assert_eq!(groups().check(fidelity(5)), Ok(()));
        assert!(groups().check(fidelity(4)).is_err());
    }
}
