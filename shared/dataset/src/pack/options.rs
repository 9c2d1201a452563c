//! Options of `pack`.

use crate::forms::{PackOption, StoredForm};
use ddlp_pixels::{Limits, ScanGroups};
use std::ops::{Range, RangeInclusive};

/// Value of the option `format` for files.
pub const ENCODED: &str = "encoded";

/// Limits of the longer side that images can be shrunk to.
const SIDES: RangeInclusive<u32> = 1..=65_535;

/// How samples are to be stored. Planes stay planes, and raw samples of the source stay raw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackFormat {
    /// Form in which to store samples that the source has as files. A file that this form cannot hold is stored as
    /// `kept`.
    pub form: StoredForm,
    /// In a form of pixels: limit of the longer side in pixels; larger images are shrunk to it.
    pub max_side: Option<u32>,
}

impl PackFormat {
    /// Returns the format for files in this form, with images of any size.
    pub const fn of(form: StoredForm) -> Self {
        Self { form, max_side: None }
    }

    /// Returns the format that the options `format`, `jpeg` and `max_side` of packing ask for.
    ///
    /// # Errors
    ///
    /// If an option is wrong, or contradicts another one. The message names options in backticks, and writes values as
    /// Python does.
    pub fn of_options(
        format: Option<&str>,
        jpeg: Option<&str>,
        max_side: Option<u32>,
    ) -> Result<Self, PackOptionError> {
        let wrong = |message: String| Err(PackOptionError(message));
        let pixels = match format.filter(|&format| format != ENCODED) {
            Some(format) => Some(form_of("format", format)?),
            None => None,
        };
        let jpeg = jpeg.map(|jpeg| form_of("jpeg", jpeg)).transpose()?;
        match (pixels, jpeg, max_side) {
            (Some(form), Some(_), _) if form.is_in_pieces() => {
                wrong(format!("`jpeg` and `format=\"{}\"` both say how JPEGs are stored: choose one", form.name()))
            }
            (Some(form), Some(_), _) => {
                wrong(format!("`jpeg` says how files are stored, but `format=\"{}\"` stores no files", form.name()))
            }
            (_, _, Some(side)) if !SIDES.contains(&side) => {
                wrong(format!("`max_side` is {side}, but must be {} to {}", SIDES.start(), SIDES.end()))
            }
            (Some(form), None, max_side) if max_side.is_none() || form.is_decoded() => Ok(Self { form, max_side }),
            (_, _, Some(_)) => {
                let formats = StoredForm::ALL.iter().filter(|form| form.is_decoded()).map(|form| form.name());
                let formats = formats.map(|name| format!("`format=\"{name}\"`")).collect::<Vec<_>>();
                wrong(format!("`max_side` shrinks pixels: it needs {}", formats.join(" or ")))
            }
            (_, jpeg, None) => Ok(jpeg.map_or_else(Self::default, Self::of)),
        }
    }
}

impl Default for PackFormat {
    /// Returns files with checkpoints.
    fn default() -> Self {
        Self::of(StoredForm::Indexed)
    }
}

/// Reason why options of [`PackFormat::of_options`] are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PackOptionError(String);

/// Returns the form with this name, if the option asks for it.
fn form_of(option: &str, name: &str) -> Result<StoredForm, PackOptionError> {
    if names_of(option).any(|known| known == name)
        && let Some(&form) = StoredForm::ALL.iter().find(|form| form.name() == name)
    {
        return Ok(form);
    }
    let files = (option == "format").then_some(ENCODED);
    let names = files.into_iter().chain(names_of(option)).map(|name| format!("\"{name}\"")).collect::<Vec<_>>();
    Err(PackOptionError(format!("`{option}` is \"{name}\", but must be one of {}", names.join(", "))))
}

/// Returns the names of the forms that an option asks for.
fn names_of(option: &str) -> impl Iterator<Item = &'static str> {
    let is_jpeg = option == "jpeg";
    let of_option = move |form: &&StoredForm| match form.option() {
        Some(PackOption::Jpeg(_)) => is_jpeg,
        Some(PackOption::Format(_)) => !is_jpeg,
        None => false,
    };
    StoredForm::ALL.iter().filter(of_option).map(|form| form.name())
}

/// Samples of a bundle, if nothing else is asked for.
pub const BUNDLE_SAMPLES: u32 = 1024;

/// Options for packing.
#[derive(Clone, Debug)]
pub struct PackOptions {
    /// Threads that read and decode; 0 means one per core.
    pub threads: usize,
    /// How samples are to be stored.
    pub format: PackFormat,
    /// In the form of pieces: samples of a bundle, 1 to 65 536. One bundle is held in memory while it is packed.
    pub bundle_samples: u32,
    /// In the form of pieces: the scan groups.
    pub groups: ScanGroups,
    /// Whether to replace an existing file.
    pub overwrite: bool,
    /// Whether to verify the whole file before it gets its name.
    pub verify: bool,
    /// Whether to store unreadable samples as rejected and empty, instead of making no pack.
    pub allow_unreadable: bool,
    /// Whether to make no pack if a sample does not decode.
    pub strict: bool,
    /// Limits for the decoding of each sample.
    pub limits: Limits,
    /// The samples of the source to be packed, as a part of a pack that [`join`](super::join()) describes; `None` for
    /// all samples. A part need have no sample that decodes.
    pub part: Option<Range<u64>>,
}

impl Default for PackOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            format: PackFormat::default(),
            bundle_samples: BUNDLE_SAMPLES,
            groups: ScanGroups::default(),
            overwrite: false,
            verify: false,
            allow_unreadable: false,
            strict: false,
            limits: Limits::default(),
            part: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages list the formats as `"raw"`, and the formats of pixels as options with that value.
    fn formats() -> [String; 2] {
        let values = names_of("format").map(|name| format!("\"{name}\"")).collect::<Vec<_>>();
        let of_pixels = StoredForm::ALL.iter().filter(|form| form.is_decoded());
        let options = of_pixels.map(|form| format!("`format=\"{}\"`", form.name())).collect::<Vec<_>>();
        [values.join(", "), options.join(" or ")]
    }

    #[test]
    fn options_ask_for_one_format_or_say_what_is_wrong() {
        use StoredForm::{Indexed, Kept, Raw, Rows};
        let [values, options] = formats();
        assert!(values.starts_with("\"raw\"") && options.starts_with("`format=\"raw\"`"));
        let no_format = |name: &str| format!("`format` is \"{name}\", but must be one of \"encoded\", {values}");
        let no_jpeg = |name: &str| format!("`jpeg` is \"{name}\", but must be one of \"kept\", \"rows\", \"indexed\"");
        let no_files = "`jpeg` says how files are stored, but `format=\"raw\"` stores no files".to_owned();
        let no_two = "`jpeg` and `format=\"pcr\"` both say how JPEGs are stored: choose one".to_owned();
        let no_pixels = format!("`max_side` shrinks pixels: it needs {options}");
        let no_side = |side: u32| format!("`max_side` is {side}, but must be 1 to 65535");
        for (format, jpeg, max_side, expected) in [
            (None, None, None, Ok(PackFormat::of(Indexed))),
            (Some("encoded"), None, None, Ok(PackFormat::default())),
            (Some("encoded"), Some("rows"), None, Ok(PackFormat::of(Rows))),
            (None, Some("kept"), None, Ok(PackFormat::of(Kept))),
            (Some("raw"), None, None, Ok(PackFormat::of(Raw))),
            (Some("raw"), None, Some(65_535), Ok(PackFormat { form: Raw, max_side: Some(65_535) })),
            (Some("png"), None, None, Err(no_format("png"))),
            (Some("kept"), None, None, Err(no_format("kept"))),
            (None, Some("raw"), None, Err(no_jpeg("raw"))),
            (Some("raw"), Some("png"), None, Err(no_jpeg("png"))),
            (Some("raw"), Some("kept"), None, Err(no_files)),
            (Some("pcr"), None, None, Ok(PackFormat::of(StoredForm::Pcr))),
            (Some("pcr"), Some("kept"), None, Err(no_two)),
            (Some("pcr"), None, Some(9), Err(no_pixels.clone())),
            (None, None, Some(9), Err(no_pixels.clone())),
            (None, Some("kept"), Some(9), Err(no_pixels)),
            (Some("raw"), None, Some(0), Err(no_side(0))),
            (Some("raw"), None, Some(65_536), Err(no_side(65_536))),
        ] {
            let chosen = PackFormat::of_options(format, jpeg, max_side).map_err(|error| error.to_string());
            assert_eq!(chosen, expected, "{format:?} {jpeg:?} {max_side:?}");
        }
    }
}
