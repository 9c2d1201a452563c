//! Opening the dataset that the agent serves: from files or, with the feature `stores`, from a store or server.

use super::Settings;
use crate::slots::Backing;
use anyhow::{Context, Result, bail, ensure};
use ddlp_dataset::Dataset;
use std::path::Path;

/// Opens the dataset. The error says what to do.
pub fn open(settings: &Settings) -> Result<Box<dyn Dataset>> {
    let place = &settings.dataset;
    if let Some(url) = place.to_str().filter(|place| place.contains("://") && !Path::new(place).exists()) {
        return open_url(url, settings);
    }
    let path = place.display();
    let dataset = ddlp_dataset::open_with(place, &settings.opening());
    let dataset = dataset.with_context(|| format!("cannot serve {path}"))?;
    ensure!(!dataset.is_empty(), "the dataset {path} has no samples");
    if let Backing::File(results) = &settings.results
        && let Ok(results_place) = ddlp_dataset::destination(results)
    {
        let is_input = ddlp_dataset::is_input(&*dataset, place, &results_place);
        let is_input = is_input.with_context(|| format!("cannot examine the dataset {path}"))?;
        let results = results.display();
        ensure!(!is_input, "--results {results} belongs to the dataset {path}: name another file");
    }
    Ok(dataset)
}

#[cfg(feature = "stores")]
fn open_url(url: &str, settings: &Settings) -> Result<Box<dyn Dataset>> {
    use ddlp_dataset::{Kind, pack::Pack};
    if !ddlp_stores::is_url(url) {
        // What a URL of an unknown scheme contains may be a secret.
        let scheme = url.split("://").next().unwrap_or_default();
        bail!(
            "--dataset {scheme}://…: a dataset is a path, or the URL of a pack (s3://, gs://, az://, https://, \
             http://, redis://, rediss://, redis+sentinel://, rediss+sentinel://, cql://, cqls://)"
        );
    }
    if let Some(kind) = settings.kind.filter(|kind| *kind != Kind::Pack) {
        bail!("--kind {kind}: a URL has a pack; leave --kind out");
    }
    let blocks = ddlp_stores::open(url, None)?;
    // It was opened, so it has no secret.
    Ok(Box::new(Pack::from_blocks(blocks, &settings.dataset).with_context(|| format!("cannot serve {url}"))?))
}

#[cfg(not(feature = "stores"))]
fn open_url(url: &str, _settings: &Settings) -> Result<Box<dyn Dataset>> {
    let scheme = url.split("://").next().unwrap_or_default();
    bail!(
        "--dataset {scheme}://…: this ddlp-device was built without stores; serve a local copy (`ddlp pack URL \
         train.ddlp`), or build it with them (`scripts/board --stores`)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ServeArgs;

    fn said(place: &str) -> String {
        let args = ServeArgs { dataset: Some(place.into()), ephemeral: true, ..ServeArgs::default() };
        format!("{:#}", open(&Settings::from_args(args).unwrap()).err().expect("it is refused"))
    }

    #[test]
    fn urls_that_cannot_be_served_are_refused_without_their_secrets() {
        for url in ["ftp://me:word@host/x.ddlp", "redis://me:word@host/0/x", "https://me:word@host/x.ddlp"] {
            let said = said(url);
            let scheme = url.split("://").next().unwrap();
            assert!(said.contains(scheme) && !said.contains("word@"), "{said}");
        }
        #[cfg(not(feature = "stores"))]
        assert!(said("s3://bucket/x.ddlp").contains("`scripts/board --stores`"));
        #[cfg(feature = "stores")]
        assert!(said("ftp://host/x.ddlp").contains("cqls://"));
    }
}
