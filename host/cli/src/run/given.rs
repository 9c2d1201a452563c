//! The loader's options on the command line: their flags, as the loader's table of options defines them.

use super::args::DriveChoice;
use crate::cores::{self, CoreList};
use crate::text;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use ddlp_host::options::{Flag, OptionDef, Values};
use ddlp_host::{LoaderOptions, LocalDrive};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

/// The options that a command line gives.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// The loader's options, by name, as they are written.
    pub loader: Map<String, Value>,
    /// The options for which the flag's value is not yet the option's value.
    texts: Map<String, Value>,
    /// The local drive.
    pub drive: LocalDrive,
    /// The flags of the local drive.
    pub drive_flags: Vec<String>,
}

impl Given {
    /// Returns whether the command line gives an option of the loader.
    pub fn has(&self, option: &str) -> bool {
        self.loader.contains_key(option)
    }

    /// Returns the values of a flag that is no option of the loader yet.
    pub fn texts(&self, option: &str) -> impl Iterator<Item = &str> {
        self.texts.get(option).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
    }

    /// Returns the drives.
    pub fn drives(&self) -> Vec<DriveChoice> {
        self.texts("drives").filter_map(|drive| drive.parse().ok()).collect()
    }

    /// Returns the text of an option.
    pub fn text(&self, option: &str) -> Option<&str> {
        self.loader.get(option).and_then(Value::as_str)
    }

    /// Returns the file that an option names.
    pub fn file(&self, option: &str) -> Option<&Path> {
        self.text(option).map(Path::new)
    }

    /// Returns the cores of the CPU prong.
    pub fn cores(&self) -> Option<CoreList> {
        self.loader.get("cores").and_then(|cores| serde_json::from_value(cores.clone()).ok()).map(CoreList)
    }
}

/// Returns the name of an option's flag: the flag's own name, or else the option's name with dashes.
pub fn flag_name(definition: &OptionDef, flag: &Flag) -> &'static str {
    static DASHED: LazyLock<BTreeMap<&str, String>> = LazyLock::new(|| {
        let definitions = LoaderOptions::DEFINITIONS.iter().chain(LocalDrive::DEFINITIONS);
        definitions.map(|definition| (definition.name, definition.name.replace('_', "-"))).collect()
    });
    flag.name.unwrap_or_else(|| &DASHED[definition.name])
}

/// Returns the definitions of options that have flags.
fn with_flags(definitions: &'static [OptionDef]) -> impl Iterator<Item = (&'static OptionDef, Flag, &'static str)> {
    definitions
        .iter()
        .filter_map(|definition| definition.flag.map(|flag| (definition, flag, flag_name(definition, &flag))))
}

/// Lists the flags of some of the loader's options.
pub fn flags_of(is_meant: fn(&OptionDef) -> bool) -> String {
    let flags = with_flags(LoaderOptions::DEFINITIONS).filter(|(definition, ..)| is_meant(definition));
    let flags: Vec<String> = flags.map(|(.., name)| format!("--{name}")).collect();
    match flags.split_last() {
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        let loader = serde_json::to_value(LoaderOptions::default()).unwrap_or_default();
        let drive = serde_json::to_value(LocalDrive::default()).unwrap_or_default();
        let of_loader = with_flags(LoaderOptions::DEFINITIONS).map(|defined| (defined, &loader));
        let of_drive = with_flags(LocalDrive::DEFINITIONS).map(|defined| (defined, &drive));
        let args = of_loader
            .chain(of_drive)
            .map(|((definition, flag, name), defaults)| argument(definition, &flag, name, &defaults[definition.name]));
        command.args(args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut given = Self::default();
        for (definition, _, name) in with_flags(LoaderOptions::DEFINITIONS) {
            if matches!(definition.values, Values::Structure | Values::Other(_)) {
                let texts = matches.get_many::<Value>(name).into_iter().flatten();
                given.texts.insert(definition.name.into(), texts.cloned().collect());
            } else if let Some(value) = value(definition, name, matches) {
                given.loader.insert(definition.name.into(), value);
            }
        }
        let mut drive = Map::new();
        for (definition, _, name) in with_flags(LocalDrive::DEFINITIONS) {
            if let Some(value) = value(definition, name, matches) {
                drive.insert(definition.name.into(), value);
                given.drive_flags.push(format!("--{name}"));
            }
        }
        let drive = serde_json::from_value(Value::Object(drive));
        given.drive = drive.map_err(|error| Error::raw(ErrorKind::ValueValidation, error))?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Returns the value of an option that the command line gives. A switch gives the opposite of its default.
fn value(definition: &OptionDef, name: &str, matches: &ArgMatches) -> Option<Value> {
    match definition.values {
        Values::Switch => matches.get_flag(name).then(|| Value::Bool(!name.starts_with("no-"))),
        _ => matches.get_one::<Value>(name).cloned(),
    }
}

/// Returns the flag of an option.
fn argument(definition: &OptionDef, flag: &Flag, name: &'static str, default: &Value) -> Arg {
    let argument = Arg::new(name).help(help(definition, flag, default)).help_heading(definition.group.title());
    let argument = match flag.alias {
        Some(alias) => argument.visible_alias(alias),
        None => argument,
    };
    if let Values::Switch = definition.values {
        return argument.long(name).action(ArgAction::SetTrue);
    }
    let action = if flag.repeats { ArgAction::Append } else { ArgAction::Set };
    argument.long(name).value_name(flag.value).value_parser(parser(definition)).action(action)
}

/// Returns what the help says about a flag.
fn help(definition: &OptionDef, flag: &Flag, default: &Value) -> String {
    let words: Vec<&str> = flag.doc.unwrap_or(definition.doc).split_whitespace().collect();
    let help = text::flags(words.join(" ").trim_end_matches('.'));
    let default = match flag.default.or(definition.default) {
        Some(words) => text::flags(words),
        None if matches!(definition.values, Values::Switch) => return help,
        None => default.to_string(),
    };
    format!("{help} [default: {default}]")
}

/// Returns the parser of an option's values, which makes the value as it is written.
fn parser(definition: &OptionDef) -> ValueParser {
    match definition.values {
        Values::Whole(least, most) => match (i64::try_from(least), i64::try_from(most)) {
            // Tells that a number below zero is out of range.
            (Ok(least), Ok(most)) => clap::value_parser!(i64).range(least..=most).map(Value::from).into(),
            _ => clap::value_parser!(u64).range(least..=most).map(Value::from).into(),
        },
        Values::Number(words, fits) => ValueParser::new(move |text: &str| match text.parse::<f64>() {
            Ok(number) if fits(number) => Ok(Value::from(number)),
            _ => Err(format!("expected {words}")),
        }),
        Values::Names(names) => {
            let possible = names.iter().map(|(name, meaning)| match *meaning {
                "" => PossibleValue::new(name),
                meaning => PossibleValue::new(name).help(meaning),
            });
            PossibleValuesParser::new(possible).map(Value::from).into()
        }
        Values::Cores => ValueParser::new(|text: &str| cores::parse(text).map(|list| Value::from(list.0))),
        Values::Text(_, fits) => ValueParser::new(move |text: &str| fits(text).map(|()| Value::from(text))),
        Values::Structure if definition.name == "results" => ValueParser::new(results),
        Values::Other(_) if definition.name == "drives" => {
            ValueParser::new(|text: &str| text.parse::<DriveChoice>().map(|_| Value::from(text)))
        }
        Values::Switch | Values::Path(_) | Values::Structure | Values::Other(_) => {
            ValueParser::new(|text: &str| Ok::<_, String>(Value::from(text)))
        }
    }
}

/// Returns the place of the local drive's results, as [`LocalDrive`] is written.
fn results(text: &str) -> Result<Value, String> {
    match text {
        "shared" | "read" => Ok(text.into()),
        file if file.contains('/') => Ok(json!({ "file": file })),
        _ => Err(format!("results are shared, read, or a file with a path such as ./{text}")),
    }
}
