//! How commands that make packs store samples: their options.

use anyhow::ensure;
use clap::Args;
use clap::builder::PossibleValuesParser;
use ddlp_dataset::pack::{BUNDLE_SAMPLES, ENCODED, PackFormat, PackOption, PackOptions, StoredForm};
use ddlp_pixels::ScanGroups;

/// Options of commands that make packs.
#[derive(Args, Clone, Debug)]
pub struct StoringArgs {
    // The help of these two options has a few words of each form's own.
    #[arg(long, value_parser = format_parser(), default_value = ENCODED, help = format_help())]
    pub format: String,
    #[arg(long, value_name = "FORM", value_parser = PossibleValuesParser::new(names(jpeg_words)), help = jpeg_help())]
    pub jpeg: Option<String>,
    /// With a --format of pixels: shrink larger images until their longer side has N pixels
    #[arg(long, value_name = "N")]
    max_side: Option<u32>,
    /// With --format pcr: samples whose pieces lie side by side, at most 65536; one bundle is held in memory [default:
    /// 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    bundle: Option<u32>,
    /// With --format pcr: the scan groups, each named by its last scan, with 10 as the last [default: 1,2,5,10]
    #[arg(long, value_name = "N,...")]
    groups: Option<ScanGroups>,
    /// Pack even if some files cannot be read; their samples are stored empty and marked as rejected
    #[arg(long)]
    allow_unreadable: bool,
    /// Make no pack if an image cannot be read or decoded (a repaired image is fine)
    #[arg(long, conflicts_with = "allow_unreadable")]
    pub strict: bool,
    /// Threads that read and decode [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

impl StoringArgs {
    /// Returns the options of packing. Fails if they contradict each other.
    pub fn options(&self) -> anyhow::Result<PackOptions> {
        let format = PackFormat::of_options(Some(&self.format), self.jpeg.as_deref(), self.max_side)?;
        for (option, is_given) in [("--bundle", self.bundle.is_some()), ("--groups", self.groups.is_some())] {
            let pieces = StoredForm::Pcr.name();
            ensure!(!is_given || format.form.is_in_pieces(), "{option} needs --format {pieces}");
        }
        Ok(PackOptions {
            threads: self.threads.map_or(0, usize::from),
            allow_unreadable: self.allow_unreadable,
            strict: self.strict,
            format,
            bundle_samples: self.bundle.unwrap_or(BUNDLE_SAMPLES),
            groups: self.groups.clone().unwrap_or_default(),
            ..PackOptions::default()
        })
    }

    /// Returns whether the options ask for a certain form.
    pub fn asks_for_a_form(&self) -> bool {
        self.format != ENCODED || self.jpeg.is_some()
    }
}

/// Returns the words for a form that `--format` asks for.
fn format_words(form: StoredForm) -> Option<&'static str> {
    match form.option() {
        Some(PackOption::Format(words)) => Some(words),
        _ => None,
    }
}

/// Returns the words for a form that `--jpeg` asks for.
fn jpeg_words(form: StoredForm) -> Option<&'static str> {
    match form.option() {
        Some(PackOption::Jpeg(words)) => Some(words),
        _ => None,
    }
}

/// Returns the names of the forms that have words.
fn names(words: fn(StoredForm) -> Option<&'static str>) -> impl Iterator<Item = &'static str> {
    StoredForm::ALL.iter().filter(move |&&form| words(form).is_some()).map(|form| form.name())
}

fn format_parser() -> PossibleValuesParser {
    PossibleValuesParser::new([ENCODED].into_iter().chain(names(format_words)))
}

fn format_help() -> String {
    let forms = StoredForm::ALL.iter().filter_map(|&form| format_words(form));
    let forms = forms.map(|words| format!(", or {words}")).collect::<String>();
    format!("Store encoded images (JPEGs as --jpeg says, others as they are){forms}")
}

fn jpeg_help() -> String {
    let forms = StoredForm::ALL.iter().rev().filter_map(|&form| jpeg_words(form)).collect::<Vec<_>>();
    format!("Store JPEGs {} [default: {}]", forms.join(", or "), PackFormat::default().form.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_describes_each_form_that_an_option_asks_for() {
        let jpeg = "Store JPEGs with checkpoints (progressive ones rewritten for this), or with an index of their \
                    rows, so that a crop reads only its rows, or as they are in the source [default: indexed]";
        assert_eq!(jpeg_help(), jpeg);
        let format = "Store encoded images (JPEGs as --jpeg says, others as they are), or their pixels (8-bit RGB)";
        assert!(format_help().starts_with(format), "{}", format_help());
        assert_eq!(names(jpeg_words).collect::<Vec<_>>(), ["kept", "rows", "indexed"]);
        assert_eq!(names(format_words).collect::<Vec<_>>(), ["raw", "l3", "pcr"]);
    }
}
