//! Keeps the operations as Python has them, `python/ddlp/_operations.py`, as the list of operations makes them.

use super::Operation;
use serde_json::Value;
use std::fmt::Write;

const MADE: &str = include_str!("../../../../python/ddlp/_operations.py");

const BEGINNING: &str = r#""""The operations of a pipeline. Names, parameters and defaults are torchvision's.

The Rust library's operations make this file: `DDLP_UPDATE=1 cargo test -p ddlp-pixels python` writes it.
"""

from dataclasses import dataclass
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

/// Returns the module.
fn module() -> String {
    let mut module = BEGINNING.to_owned();
    let mut keys = Vec::new();
    for ((name, documentation), examples) in
        Operation::NAMES.iter().zip(Operation::DOCUMENTATION).zip(Operation::examples())
    {
        let (key, parameters) = described(&examples[0]);
        let documentation = documentation.trim();
        write!(module, "\n\n@dataclass(frozen=True)\nclass {name}:\n    \"\"\"{documentation}\"\"\"\n\n").unwrap();
        parameters.iter().for_each(|parameter| writeln!(module, "    {parameter}").unwrap());
        keys.push((name, key));
    }
    writeln!(module, "\n\nOperation = (\n    {}\n)", Operation::NAMES.join("\n    | ")).unwrap();
    module.push_str("\n# Names in TOML and JSON.\nNAMES = {\n");
    keys.iter().for_each(|(name, key)| writeln!(module, "    {name}: \"{key}\",").unwrap());
    module.push_str("}\n\n__all__ = [\n    \"Operation\",\n");
    Operation::NAMES.iter().for_each(|name| writeln!(module, "    \"{name}\",").unwrap());
    module.push_str("]\n");
    module
}

/// Returns the name of an operation in TOML, and its parameters as fields of a class.
fn described(example: &Operation) -> (String, Vec<String>) {
    let text = serde_json::to_string(example).unwrap();
    let Value::Object(tagged) = serde_json::from_str(&text).unwrap() else { panic!("an operation is a table: {text}") };
    let (key, parameters) = tagged.into_iter().next().unwrap();
    let mut names: Vec<String> = parameters.as_object().unwrap().keys().cloned().collect();
    // The map has another order than the text.
    names.sort_by_key(|name| text.find(&format!("\"{name}\":")));
    let field = |name: &String| {
        let read = |changed: Option<Value>| {
            let mut parameters = parameters.as_object().unwrap().clone();
            parameters.remove(name);
            parameters.extend(changed.map(|value| (name.clone(), value)));
            let tagged = Value::Object([(key.clone(), parameters.into())].into_iter().collect());
            serde_json::from_value::<Operation>(tagged)
        };
        let is_list_or_number = parameters[name].is_array() && read(Some(0.5.into())).is_ok();
        let number = if is_list_or_number { "float | " } else { "" };
        let annotated = format!("{name}: {number}{}", annotation(&parameters[name]));
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

fn annotation(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("tuple[{}]", listed(values, annotation)),
        Value::Number(number) if number.is_f64() => "float".into(),
        Value::Number(_) => "int".into(),
        other => panic!("parameters are numbers or lists of them, not {other}"),
    }
}

fn literal(value: &Value) -> String {
    match value {
        Value::Array(values) => format!("({})", listed(values, literal)),
        number => number.to_string(),
    }
}

fn listed(values: &[Value], each: fn(&Value) -> String) -> String {
    values.iter().map(each).collect::<Vec<_>>().join(", ")
}
