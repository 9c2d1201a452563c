//! Checks that `python/ddlp/_operations.py` is the module that the list of operations generates.

use super::Operation;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt::Write;

const MADE: &str = include_str!("../../../../python/ddlp/_operations.py");

const BEGINNING: &str = r#""""The operations of a pipeline. Names, parameters and defaults are torchvision's.

The Rust library's operations make this file: `DDLP_UPDATE=1 cargo test -p ddlp-pixels python` writes it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ._function import Function
"#;

#[test]
fn the_classes_of_python_are_made_of_the_operations() {
    let made = module();
    if std::env::var_os("DDLP_UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/ddlp/_operations.py");
        std::fs::write(path, &made).unwrap();
        return;
    }
    assert!(made == MADE, "`DDLP_UPDATE=1 cargo test -p ddlp-pixels python` makes the file that fits:\n{made}");
}

/// Returns the text of the module.
fn module() -> String {
    let mut module = BEGINNING.to_owned();
    let mut keys = Vec::new();
    for ((name, documentation), examples) in
        Operation::NAMES.iter().zip(Operation::DOCUMENTATION).zip(Operation::examples())
    {
        // `Function` has a module of its own.
        if examples.is_empty() {
            continue;
        }
        let (key, parameters) = described(&examples);
        let documentation = documentation.trim();
        write!(module, "\n\n@dataclass(frozen=True)\nclass {name}:\n    \"\"\"{documentation}\"\"\"\n\n").unwrap();
        parameters.iter().for_each(|parameter| writeln!(module, "    {parameter}").unwrap());
        keys.push((name, key));
    }
    writeln!(module, "\n\nOperation = (\n    {}\n)", Operation::NAMES.join("\n    | ")).unwrap();
    module.push_str("\n# Names in TOML and JSON.\nNAMES = {\n");
    keys.iter().for_each(|(name, key)| writeln!(module, "    {name}: \"{key}\",").unwrap());
    module.push_str("    Function: \"function\",\n}\n\n__all__ = [\n    \"Operation\",\n");
    Operation::NAMES.iter().for_each(|name| writeln!(module, "    \"{name}\",").unwrap());
    module.push_str("]\n");
    module
}

/// Returns the name of an operation in TOML, and its parameters as fields of a class. The type of a parameter follows
/// from its values in all examples.
fn described(examples: &[Operation]) -> (String, Vec<String>) {
    let text = serde_json::to_string(&examples[0]).unwrap();
    let (key, parameters) = tagged(&examples[0]);
    let all: Vec<Value> = examples.iter().map(|example| tagged(example).1).collect();
    let mut names: Vec<String> = parameters.as_object().unwrap().keys().cloned().collect();
    // The map loses the order of the text.
    names.sort_by_key(|name| text.find(&format!("\"{name}\":")));
    let field = |name: &String| {
        let read = |changed: Option<Value>| {
            let mut parameters = parameters.as_object().unwrap().clone();
            parameters.remove(name);
            parameters.extend(changed.map(|value| (name.clone(), value)));
            let tagged = Value::Object([(key.clone(), parameters.into())].into_iter().collect());
            serde_json::from_value::<Operation>(tagged)
        };
        let forms = all.iter().flat_map(|parameters| forms(&parameters[name]));
        let mut taken: Vec<Value> = forms.filter(|form| read(Some(form.clone())).is_ok()).collect();
        if taken.iter().any(is_long) {
            // A list of any length includes the others.
            taken.retain(|form| !form.is_array() || is_long(form));
        }
        let mut types: Vec<String> = taken.iter().map(annotation).collect();
        types.sort_by_key(|annotation| annotation == "None");
        let mut seen = HashSet::new();
        types.retain(|annotation| seen.insert(annotation.clone()));
        let annotated = format!("{name}: {}", types.join(" | "));
        match read(None) {
            Ok(operation) => {
                format!("{annotated} = {}", literal(&serde_json::to_value(operation).unwrap()[&key][name]))
            }
            Err(_) => annotated,
        }
    };
    let fields = names.iter().map(field).collect();
    (key, fields)
}

/// Returns an operation's name in TOML, and its parameters.
fn tagged(operation: &Operation) -> (String, Value) {
    match serde_json::to_value(operation).unwrap() {
        Value::Object(tagged) => tagged.into_iter().next().unwrap(),
        other => panic!("an operation is a table: {other}"),
    }
}

/// Length of a list that is tried as a parameter: only parameters of any length take it.
const LONG: usize = 5;

fn is_long(form: &Value) -> bool {
    form.as_array().is_some_and(|list| list.len() == LONG)
}

/// Returns values to try for a parameter that has this value in an example: a number, lists of numbers, and no value at
/// all. All numbers are 1.
fn forms(value: &Value) -> Vec<Value> {
    let one = match value {
        Value::Array(values) if values[0].is_object() => return vec![value.clone()],
        Value::Array(values) => &values[0],
        value => value,
    };
    let one: Value = match one {
        Value::Number(number) if number.is_f64() => 1.0.into(),
        Value::Number(_) => 1.into(),
        other => return vec![other.clone(), Value::Null],
    };
    let lists = [2, 3, 4, LONG].map(|length| Value::Array(vec![one.clone(); length]));
    [one].into_iter().chain(lists).chain([Value::Null]).collect()
}

fn annotation(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(_) => "bool".into(),
        Value::String(_) => "str".into(),
        Value::Array(values) if values[0].is_object() => "\"Sequence[Operation]\"".into(),
        Value::Array(values) if values.len() == LONG => format!("Sequence[{}]", annotation(&values[0])),
        Value::Array(values) => format!("tuple[{}]", listed(values, annotation)),
        Value::Number(number) if number.is_f64() => "float".into(),
        Value::Number(_) => "int".into(),
        other => panic!("a parameter is no table: {other}"),
    }
}

fn literal(value: &Value) -> String {
    match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Array(values) => format!("({})", listed(values, literal)),
        number_or_string => number_or_string.to_string(),
    }
}

fn listed(values: &[Value], each: fn(&Value) -> String) -> String {
    values.iter().map(each).collect::<Vec<_>>().join(", ")
}
