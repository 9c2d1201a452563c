//! The classes that `--classes` names, for commands that open a dataset themselves.

use anyhow::Context;
use ddlp_dataset::{Classed, Dataset};
use std::path::Path;
use std::sync::Arc;

/// Returns a dataset with the classes that a file names; as it is without a file.
pub fn given(dataset: Arc<dyn Dataset>, file: Option<&Path>) -> anyhow::Result<Arc<dyn Dataset>> {
    let Some(file) = file else { return Ok(dataset) };
    let classed = Classed::new(dataset, &ddlp_dataset::read_class_list(file)?);
    Ok(Arc::new(classed.with_context(|| format!("the dataset does not fit --classes {}", file.display()))?))
}
