//! Options as other languages write them, and the errors for wrong ones.

use super::{LoaderOptions, OptionDef, Values};
use crate::drive::LocalDrive;
use crate::error::LoaderError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

impl LoaderOptions {
    /// Reads options that another language has written as JSON.
    ///
    /// # Errors
    ///
    /// [`LoaderError::Options`] names the option, and its value with the values that it may have, or what is wrong in
    /// the value.
    pub fn from_json(text: &str) -> Result<Self, LoaderError> {
        let given = serde_json::from_str(text).map_err(|error| LoaderError::Options(error.to_string()))?;
        Self::from_map(given)
    }

    /// Reads options that another language has written, by their names.
    ///
    /// # Errors
    ///
    /// As [`Self::from_json`].
    pub fn from_map(given: Map<String, Value>) -> Result<Self, LoaderError> {
        serde_json::from_value(Value::Object(given.clone())).map_err(|error| {
            let wrong = wrong_in::<Self>(Self::DEFINITIONS, &given);
            wrong.unwrap_or_else(|| LoaderError::Options(error.to_string()))
        })
    }
}

/// Returns the error for the first option that is wrong. Reads each option alone.
fn wrong_in<T: DeserializeOwned>(definitions: &[OptionDef], given: &Map<String, Value>) -> Option<LoaderError> {
    given.iter().find_map(|(name, value)| {
        let error = serde_json::from_value::<T>(json!({ name: value })).err()?;
        let described = || LoaderError::Options(format!("`{name}`: {error}"));
        let Some(definition) = definitions.iter().find(|definition| definition.name == name) else {
            return Some(LoaderError::Options(error.to_string()));
        };
        Some(match (definition.values, value) {
            (Values::Structure, _) => described(),
            (_, Value::Array(drives)) if name == "drives" => {
                drives.iter().find_map(wrong_in_drive).unwrap_or_else(described)
            }
            _ => definition.refused(&in_python(value)),
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
    wrong_in::<LocalDrive>(LocalDrive::DEFINITIONS, drive.get("local")?.as_object()?)
}

/// Serde of names that are written in lower case.
pub(super) mod lower_case {
    use serde::de::value::{Error, StrDeserializer};
    use serde::de::{DeserializeOwned, Error as _, IntoDeserializer};
    use serde::{Deserialize, Deserializer, Serializer};
    use std::fmt::Debug;

    pub fn serialize<T: Debug, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{value:?}").to_lowercase())
    }

    pub fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
        let mut name = String::deserialize(deserializer)?;
        if let Some(first) = name.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let variant: StrDeserializer<'_, Error> = name.as_str().into_deserializer();
        T::deserialize(variant).map_err(|error| D::Error::custom(error.to_string().to_lowercase()))
    }
}

/// Serde of times in seconds.
pub(super) mod seconds {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
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
            (r#"{"drives": [{"local": {"batch_size": 1}}]}"#, "unknown field `batch_size`, expected one of `threads`"),
        ] {
            assert!(said(text).starts_with(message), "{text}: {}", said(text));
        }
    }

    #[test]
    fn definitions_fit_the_fields() {
        let definitions = [LoaderOptions::DEFINITIONS, LocalDrive::DEFINITIONS].concat();
        let [options, of_drive] =
            [serde_json::to_value(LoaderOptions::default()), serde_json::to_value(LocalDrive::default())];
        let fields = [options.unwrap(), of_drive.unwrap()].map(|options| options.as_object().unwrap().clone());
        assert!(fields.iter().map(Map::len).eq([LoaderOptions::DEFINITIONS, LocalDrive::DEFINITIONS].map(<[_]>::len)));
        for definition in definitions {
            assert!(fields.iter().any(|fields| fields.contains_key(definition.name)), "{}", definition.name);
        }
        for definition in LoaderOptions::DEFINITIONS {
            if let Values::Names(names) = definition.values {
                for (name, _) in names {
                    LoaderOptions::from_json(&json!({ definition.name: name }).to_string()).unwrap();
                }
            }
        }
    }
}
