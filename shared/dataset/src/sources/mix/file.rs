//! A mix as a TOML file: a table `[[dataset]]` for each dataset, with its `path` and maybe its `weight` and `kind`.
//! Paths are relative to the folder of the file. All datasets have a weight, or none has one.

use super::{Mix, MixError};
use crate::{Kind, OpenOptions, sources, text_file};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Extension of the file.
const EXTENSION: &str = "toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    dataset: Vec<Described>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    path: PathBuf,
    weight: Option<f64>,
    kind: Option<Kind>,
}

impl Mix {
    /// Opens the mix that a file describes.
    ///
    /// # Errors
    ///
    /// [`MixError`] says what in the file is wrong, or which dataset does not open.
    pub fn open(path: &Path) -> Result<Self, MixError> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// Opens a mix as [`open`](Self::open) does. Its datasets are opened with these options, except for the kind.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(path: &Path, options: &OpenOptions) -> Result<Self, MixError> {
        let described = read(path)?;
        let weights: Vec<f64> = described.iter().filter_map(|dataset| dataset.weight).collect();
        let datasets = described.iter().map(|Described { path: part, kind, .. }| {
            let name = part.display().to_string();
            // A file that names itself would be opened for ever.
            if part.extension().is_some_and(|extension| extension == EXTENSION) || *kind == Some(Kind::Mix) {
                return Err(MixError::Nested(name));
            }
            let opened = sources::open_with(&beside(path, part), &OpenOptions { kind: *kind, ..options.clone() });
            let failed = |source| MixError::Dataset { path: path.to_owned(), source: Box::new(source) };
            Ok((name, Arc::from(opened.map_err(failed)?)))
        });
        Self::new(datasets.collect::<Result<_, _>>()?, (!weights.is_empty()).then_some(&weights[..]))
    }
}

/// Returns the paths of the datasets that a mix names. Opens none of them.
pub(crate) fn paths_in(path: &Path) -> Result<Vec<PathBuf>, MixError> {
    Ok(read(path)?.iter().map(|dataset| beside(path, &dataset.path)).collect())
}

fn read(path: &Path) -> Result<Vec<Described>, MixError> {
    let text = text_file::read(path).map_err(|source| MixError::Unreadable { path: path.to_owned(), source })?;
    let parsed: Result<Description, _> = toml::from_str(&text);
    let malformed = |error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        MixError::Malformed { path: path.to_owned(), message: format!("line {line}: {}", error.message()) }
    };
    Ok(parsed.map_err(malformed)?.dataset)
}

/// Returns the path of a dataset that the mix at `mix` names.
fn beside(mix: &Path, part: &Path) -> PathBuf {
    mix.parent().unwrap_or(Path::new("")).join(part)
}
