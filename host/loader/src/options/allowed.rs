//! The values that options may have, in words, and the errors for all others.

use super::LoaderOptions;
use crate::drive::LocalDrive;
use crate::error::LoaderError;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use std::fmt;

/// Most threads of the CPU prong, and of a drive that the loader starts.
const THREADS_MAX: u64 = 1024;
/// Most batch buffers.
pub const BUFFERS_MAX: u16 = 4096;
/// Most batches that one drive has in work.
const DEPTH_MAX: u64 = 32;

/// Most classes of mixed labels. Each label has a number for each class.
const CLASSES_MAX: u64 = 1 << 20;

/// Least and largest value of each option that is a whole number.
const RANGES: &[(&str, u64, u64)] = &[
    ("batch_size", 1, ddlp_csd::BATCH_SAMPLES_MAX as u64),
    ("buffers", 2, BUFFERS_MAX as u64),
    ("classes", 1, CLASSES_MAX),
    ("drive_depth", 1, DEPTH_MAX),
    ("epoch_samples", 1, u32::MAX as u64),
    ("epochs", 1, u32::MAX as u64),
    ("local_world_size", 1, u32::MAX as u64),
    ("rank", 0, u32::MAX as u64),
    ("seed", 0, u64::MAX),
    ("slots", 1, u32::MAX as u64),
    ("threads", 1, THREADS_MAX),
    ("window", 1, u32::MAX as u64),
    ("world_size", 1, u32::MAX as u64),
];

/// Checks that an option which is a whole number lies in its range.
pub(super) fn check_range(option: &str, value: u64) -> Result<(), LoaderError> {
    let fits = RANGES.iter().any(|&(name, least, most)| name == option && (least..=most).contains(&value));
    if fits { Ok(()) } else { Err(refused(option, &value)) }
}

/// Returns the values that an option may have, in words, unless the option is too large for a few words.
fn allowed(option: &str) -> Option<String> {
    if let Some((_, least, most)) = RANGES.iter().find(|(name, ..)| *name == option) {
        return Some(match *most {
            u64::MAX => format!("a whole number from {least} on"),
            most => format!("a whole number from {least} to {most}"),
        });
    }
    let words = match option {
        "strategy" => r#""ordered", "mte", "wrr", "cpu" or "csd""#,
        "policy" => r#""fail", "skip" or "replace""#,
        "last" => r#""short", "drop" or "pad""#,
        "dtype" => r#""uint8", "float16", "bfloat16" or "float32""#,
        "layout" => r#""NCHW", "NHWC" or "channels_last""#,
        "normalize" => "mean and standard deviation of the three channels, such as ddlp.IMAGENET",
        "max_corrupt" => r#"a number of samples, or a share of the epoch such as "1%""#,
        "drive_timeout_s" | "stall_after_s" => "a number of seconds above 0",
        "throttle" => "a number above 0 and at most 1",
        "mixup" | "cutmix" => "a finite number of 0 or more",
        "mix_probability" => "a number from 0 to 1",
        "shuffle" | "drive_optional" => "True or False",
        "cores" => "numbers of cores",
        "agent" => "the path of a program",
        "class_names" => "a list of the names of all classes",
        "fields" => "the path of a file of fields",
        "dataset" => "a path, or the address of a drive",
        "host_nqn" => "an NQN",
        "drives" => "a list of drives",
        "metrics" => "an address, such as \"127.0.0.1:9464\"",
        _ => return None,
    };
    Some(words.into())
}

/// Returns the error for a value that an option cannot have. The option has words in [`allowed`].
pub(super) fn refused(option: &str, value: &dyn fmt::Display) -> LoaderError {
    let words = allowed(option).expect("an option with words");
    LoaderError::Options(format!("`{option}` is {value}, but must be {words}"))
}

impl LoaderOptions {
    /// Reads options that another language has written as JSON.
    ///
    /// # Errors
    ///
    /// [`LoaderError::Options`] names the option, and its value with the values that it may have, or what is wrong in
    /// the value.
    pub fn from_json(text: &str) -> Result<Self, LoaderError> {
        serde_json::from_str(text).map_err(|error| {
            let given: Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
            wrong_in::<Self>(&given).unwrap_or_else(|| LoaderError::Options(error.to_string()))
        })
    }
}

/// Returns the error for the first option that is wrong. Reads each option alone.
fn wrong_in<T: Default + Serialize + DeserializeOwned>(given: &Map<String, Value>) -> Option<LoaderError> {
    let options = serde_json::to_value(T::default()).expect("options without keys that JSON lacks");
    given.iter().find_map(|(name, value)| {
        let error = serde_json::from_value::<T>(json!({ name: value })).err()?;
        let described = || LoaderError::Options(format!("`{name}`: {error}"));
        Some(match value {
            _ if options.get(name).is_none() => LoaderError::Options(error.to_string()),
            Value::Array(drives) if name == "drives" => {
                drives.iter().find_map(wrong_in_drive).unwrap_or_else(described)
            }
            _ if allowed(name).is_some() => refused(name, &in_python(value)),
            _ => described(),
        })
    })
}

/// Writes a value as Python does, except in lists: only Python gives options as JSON.
fn in_python(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        value => value.to_string(),
    }
}

/// Returns the error for the option of a local drive that is wrong.
fn wrong_in_drive(drive: &Value) -> Option<LoaderError> {
    wrong_in::<LocalDrive>(drive.get("local")?.as_object()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        LoaderOptions::from_json(text).unwrap_err().to_string()
    }

    #[test]
    fn a_wrong_value_is_refused_with_its_option_and_what_is_allowed() {
        for (text, message) in [
            (r#"{"strategy": "fast"}"#, r#"`strategy` is "fast", but must be "ordered", "mte", "wrr", "cpu" or "csd""#),
            (r#"{"seed": 1, "batch_size": "many"}"#, r#"`batch_size` is "many", but must be a whole number from 1 to"#),
            (r#"{"batch_size": 0.5}"#, "`batch_size` is 0.5"),
            (r#"{"shuffle": null}"#, "`shuffle` is None, but must be True or False"),
            (r#"{"window": true}"#, "`window` is True, but must be a whole number"),
            (r#"{"seed": -1}"#, "`seed` is -1, but must be a whole number from 0 on"),
            (r#"{"epochs": 5000000000}"#, "`epochs` is 5000000000, but must be a whole number from 1 to 4294967295"),
            (r#"{"max_corrupt": "2x"}"#, r#"such as "1%""#),
            (r#"{"stall_after_s": -1}"#, "`stall_after_s` is -1, but must be a number of seconds above 0"),
            (r#"{"drives": ["auto", {"local": {"threads": "two"}}]}"#, r#"`threads` is "two", but must be a whole"#),
            (r#"{"drives": "local"}"#, r#"`drives` is "local", but must be a list of drives"#),
        ] {
            assert!(said(text).contains(message), "{text}: {}", said(text));
        }
    }

    #[test]
    fn what_no_words_describe_is_said_by_the_reader_of_the_value() {
        for (text, message) in [
            (r#"{"batchsize": 1}"#, "unknown field `batchsize`, expected one of `dataset`"),
            (r#"{"pipeline": {"operations": [{"resize": {}}]}}"#, "`pipeline`: missing field `size`"),
            (r#"{"resume": 1}"#, "`resume`: invalid type: integer `1`"),
            (r#"{"drives": ["usual"]}"#, "`drives`: unknown variant `usual`, expected one of `local`"),
            (r#"{"drives": [{"local": {"results": "disk"}}]}"#, "`results`: unknown variant `disk`, expected"),
            (r#"{"drives": [{"local": {"batch_size": 1}}]}"#, "unknown field `batch_size`, expected one of `agent`"),
        ] {
            assert!(said(text).starts_with(message), "{text}: {}", said(text));
        }
    }

    /// Every name in the words is one that the option has.
    #[test]
    fn names_that_are_offered_are_accepted() {
        for option in ["strategy", "policy", "last", "dtype", "layout"] {
            let words = allowed(option).unwrap();
            for name in words.split('"').skip(1).step_by(2) {
                LoaderOptions::from_json(&json!({ option: name }).to_string()).unwrap();
            }
        }
    }

    #[test]
    fn every_option_of_a_few_words_has_them() {
        let options = serde_json::to_value(LoaderOptions::default()).unwrap();
        let of_drive = serde_json::to_value(LocalDrive::default()).unwrap();
        let names = options.as_object().unwrap().keys().chain(of_drive.as_object().unwrap().keys());
        let own = ["pipeline", "buckets", "limits", "resume", "replay", "results"];
        for name in names {
            assert_eq!(allowed(name).is_none(), own.contains(&name.as_str()), "{name}");
        }
    }
}
