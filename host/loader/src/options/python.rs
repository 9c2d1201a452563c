//! Checks that `python/ddlp/_arguments.py`, the arguments of Python's `ddlp.Loader`, is the file that the table of
//! options makes. `own`: arguments that Rust does not have.

mod own;

use super::definition::{OptionDef, Python, Taken, Values};
use super::table::LoaderOptions;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

const MADE: &str = include_str!("../../../../python/ddlp/_arguments.py");
/// Columns of a line.
const WIDTH: usize = 120;

const BEGINNING: &str = r#""""The arguments of a loader, as the Rust library's table of options has them.

The table makes this file: `DDLP_UPDATE=1 cargo test -p ddlp-host python` writes it.
"""

from __future__ import annotations
"#;

const CLASS: &str = r#"

class Arguments:
    """What a loader is made of. `ddlp.Loader` takes the arguments."""

    @refuses_other_loaders
    def __init__(
        self,
"#;

const DOCUMENTATION: &str = r#"        """Opens the dataset and the drives, and begins to prepare batches.

        Args:
"#;

const RAISES: &str = r#"
        Raises:
            ConfigurationError: The options do not fit each other or the dataset.
            UnavailableError: The dataset cannot be opened.
            DriveError: A drive cannot be used.
            DeviceError: The GPU cannot be used.
        """
        self._begin({name: value for name, value in locals().items() if name != "self"})
"#;

const END: &str = r#"
    def _begin(self, arguments: dict[str, Any]) -> None:
        raise NotImplementedError
"#;

#[test]
fn the_arguments_of_python_are_those_of_the_table() {
    let made = module();
    if std::env::var_os("DDLP_UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/ddlp/_arguments.py");
        std::fs::write(path, &made).unwrap();
        return;
    }
    assert!(made == MADE, "`DDLP_UPDATE=1 cargo test -p ddlp-host python` makes the file that fits:\n{made}");
}

/// An argument: its definition, its annotation and its default.
struct Argument {
    definition: OptionDef,
    python: Python,
    annotation: String,
    default: String,
}

/// Returns the module.
fn module() -> String {
    let mut imports = Imports::default();
    imports.add("_instead.refuses_other_loaders");
    let arguments = arguments(&mut imports);
    let taken: Vec<(&str, String)> = arguments
        .iter()
        .filter_map(|argument| match argument.python.taken {
            Taken::AsGiven => Some((argument.definition.name, "None".into())),
            Taken::By(function) => Some((argument.definition.name, imports.add(function))),
            Taken::ByLoader => None,
        })
        .collect();
    let mut module = format!("{BEGINNING}\n{}", imports.written());
    module.push_str(CLASS);
    for (number, argument) in arguments.iter().enumerate() {
        let name = argument.definition.name;
        match number {
            0 => writeln!(module, "        {name}: {},\n        *,", argument.annotation).unwrap(),
            _ => writeln!(module, "        {name}: {} = {},", argument.annotation, argument.default).unwrap(),
        }
    }
    module.push_str("    ) -> None:\n");
    module.push_str(DOCUMENTATION);
    arguments.iter().for_each(|argument| module.push_str(&argument.documented()));
    module.push_str(RAISES);
    module.push_str(END);
    module.push_str("\n\nOPTIONS: dict[str, Callable[[Any], Any] | None] = {\n");
    taken.iter().for_each(|(name, function)| writeln!(module, "    \"{name}\": {function},").unwrap());
    module.push_str(
        "}\n\"\"\"Options of the native part, each with the function that makes its value of the argument.\"\"\"\n",
    );
    module
}

/// Returns the arguments in the order of their groups, the dataset first. Adds to the imports what annotations need.
fn arguments(imports: &mut Imports) -> Vec<Argument> {
    let defaults = serde_json::to_value(LoaderOptions::default()).unwrap();
    let mut definitions = [LoaderOptions::DEFINITIONS, own::ARGUMENTS].concat();
    definitions.sort_by_key(|definition| definition.group);
    definitions
        .into_iter()
        .filter_map(|definition| {
            let python = definition.python?;
            let default = defaults.get(definition.name);
            let annotation = match python.annotation {
                Some(annotation) => annotation.into(),
                None => annotation(&definition, default == Some(&Value::Null)),
            };
            let annotation = imports.resolved(&annotation);
            let default = match (python.value, default) {
                (Some(written), _) => imports.resolved(written),
                (None, Some(value)) => literal(value),
                (None, None) => panic!("{} has no default in Python", definition.name),
            };
            Some(Argument { definition, python, annotation, default })
        })
        .collect()
}

/// Returns the annotation that follows from the values of an option.
fn annotation(definition: &OptionDef, may_be_none: bool) -> String {
    let one = match definition.values {
        Values::Whole(..) => "int".into(),
        Values::Number(..) => "float".into(),
        Values::Switch => "bool".into(),
        Values::Text(..) => "str".into(),
        Values::Path(_) => "str | os.PathLike[str]".into(),
        Values::Names(names) => {
            let quoted: Vec<String> = names.iter().map(|(name, _)| format!("\"{name}\"")).collect();
            format!("Literal[{}]", quoted.join(", "))
        }
        Values::Cores | Values::Other(_) | Values::Structure => {
            panic!("{} needs an annotation: `.python(…)`", definition.name)
        }
    };
    if may_be_none { format!("{one} | None") } else { one }
}

impl Argument {
    /// Returns the argument's entry in the documentation.
    fn documented(&self) -> String {
        let (OptionDef { name, values, .. }, python) = (&self.definition, &self.python);
        let mut text = words(python.doc.unwrap_or(self.definition.doc));
        if let Values::Names(names) = values {
            if names.iter().all(|(_, meaning)| !meaning.is_empty()) {
                let meanings: Vec<String> = names.iter().map(|(name, meaning)| meant(name, meaning)).collect();
                write!(text, " {}.", meanings.join("; ")).unwrap();
            } else if python.annotation.is_some() {
                // An annotation that follows from the values lists them.
                write!(text, " One of {}.", self.definition.allowed().unwrap_or_default()).unwrap();
            }
        }
        let is_in_signature = !["None", "()"].contains(&self.default.as_str());
        match python.default.or(self.definition.default.filter(|_| !is_in_signature)) {
            Some("") | None => {}
            Some(default) => write!(text, " Default: {}.", words(default)).unwrap(),
        }
        let mut out = String::new();
        let mut line = format!("            {name}:");
        for word in unbroken(&text).split(' ') {
            if line.chars().count() + 1 + word.chars().count() > WIDTH {
                writeln!(out, "{line}").unwrap();
                line = "               ".into();
            }
            line.push(' ');
            line.push_str(word);
        }
        writeln!(out, "{line}").unwrap();
        out.replace(NO_BREAK, " ")
    }
}

/// Returns a name with its meaning, which begins in lower case.
fn meant(name: &str, meaning: &str) -> String {
    let mut letters = meaning.chars();
    let first = letters.next().map(char::to_lowercase).into_iter().flatten();
    format!("\"{name}\": {}{}", first.collect::<String>(), letters.as_str())
}

/// Stands for a space at which no line ends.
const NO_BREAK: &str = "\u{a0}";

/// Keeps code between double backticks in one line.
fn unbroken(text: &str) -> String {
    let parts = text.split("``").enumerate();
    let parts: Vec<String> =
        parts.map(|(at, part)| if at % 2 == 1 { part.replace(' ', NO_BREAK) } else { part.into() }).collect();
    parts.join("``")
}

/// Returns a text with one space between two words.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Array(values) if values.is_empty() => "()".into(),
        number_or_string => number_or_string.to_string(),
    }
}

/// Names of the package that the module imports, by module.
#[derive(Default)]
struct Imports {
    names: BTreeMap<String, BTreeSet<String>>,
    texts: String,
}

impl Imports {
    /// Adds a name with its module, such as `_drives.Drive`. Returns the name alone.
    fn add(&mut self, qualified: &str) -> String {
        let (module, name) = qualified.split_once('.').expect("a module and a name");
        self.names.entry(module.into()).or_default().insert(name.into());
        name.into()
    }

    /// Adds all names with modules in a text. Returns the text with the names alone.
    fn resolved(&mut self, text: &str) -> String {
        let is_in_name = |character: char| character.is_alphanumeric() || "._".contains(character);
        let mut resolved = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|character| !is_in_name(character)).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end.max(first.len_utf8()));
            if name.starts_with('_') && name.contains('.') {
                resolved.push_str(&self.add(name));
            } else {
                resolved.push_str(name);
            }
            rest = after;
        }
        self.texts.push_str(&resolved);
        resolved
    }

    /// Returns the lines that import.
    fn written(&self) -> String {
        let used = |names: &[&str]| -> Vec<String> {
            names.iter().filter(|name| self.texts.contains(**name)).map(ToString::to_string).collect()
        };
        let mut lines = String::new();
        if self.texts.contains("os.") {
            lines.push_str("import os\n");
        }
        let mut of_abc = used(&["Mapping", "Sequence"]);
        of_abc.insert(0, "Callable".into());
        let mut of_typing = used(&["Literal"]);
        of_typing.insert(0, "Any".into());
        writeln!(lines, "from collections.abc import {}", of_abc.join(", ")).unwrap();
        writeln!(lines, "from typing import {}\n", of_typing.join(", ")).unwrap();
        for (module, names) in &self.names {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            writeln!(lines, "from .{module} import {}", names.join(", ")).unwrap();
        }
        lines
    }
}
