//! Fields from tar shards: the numbers in the `.json` members beside the images.

use super::rows::Rows;
use super::{FieldsError, LABELS, SampleFields};
use crate::Dataset;
use crate::shards::{ShardError, each_beside};
use serde_json::{Map, Value};
use std::path::Path;

const UNIT: &str = "member .json";

/// Reads fields from a shard, or from all shards of a folder.
pub(super) fn read(path: &Path, dataset: &dyn Dataset) -> Result<SampleFields, FieldsError> {
    let mut begun: Option<(Vec<String>, Rows<'_>)> = None;
    let mut number = 0;
    each_beside(path, "json", |member| {
        let problem = |problem: String| {
            let (path, key) = (member.shard.clone(), member.key.clone());
            FieldsError::from(ShardError::Sample { path, key, problem: format!("a .json {problem}") })
        };
        let object: Map<String, Value> =
            serde_json::from_slice(&member.bytes).map_err(|error| problem(format!("that cannot be read: {error}")))?;
        let (keys, rows) = match &mut begun {
            Some(begun) => begun,
            None => begun.insert(begin(path, dataset, &object).ok_or_else(|| problem("without any number".into()))??),
        };
        let missing = |key: &String| problem(format!("without numbers for {key:?}, which the first .json has"));
        let cell = |key: &String| object.get(key).and_then(|value| cell(key, value)).ok_or_else(|| missing(key));
        let cells = keys.iter().map(cell).collect::<Result<Vec<String>, _>>()?;
        number += 1;
        let cells: Vec<&str> = cells.iter().map(String::as_str).collect();
        rows.take(number, &member.sample, &cells).map_err(|error| match error {
            FieldsError::Row { what, .. } => problem(format!("that does not fit: {what}")),
            other => other,
        })
    })?;
    match begun {
        Some((_, rows)) => rows.finish(),
        None => Err(FieldsError::NoMembers { path: path.into() }),
    }
}

/// Begins a table with a column for each key of an object whose value is numbers. Returns these keys and the table, or
/// `None` if no value is numbers.
fn begin<'t>(
    path: &'t Path,
    dataset: &'t dyn Dataset,
    object: &Map<String, Value>,
) -> Option<Result<(Vec<String>, Rows<'t>), FieldsError>> {
    let keys: Vec<String> =
        object.iter().filter(|(key, value)| cell(key, value).is_some()).map(|(key, _)| key.clone()).collect();
    let header = std::iter::once("").chain(keys.iter().map(String::as_str));
    let rows = (!keys.is_empty()).then(|| Rows::new(path, UNIT, dataset, header, 0))?;
    Some(rows.map(|rows| (keys, rows)))
}

/// Returns the numbers of a value as a table has them; `None` if the value is something else.
fn cell(key: &str, value: &Value) -> Option<String> {
    match value {
        Value::Bool(is) => Some(u8::from(*is).to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Array(values) if !values.is_empty() || key == LABELS => {
            let is_plain = |value: &Value| matches!(value, Value::Bool(_) | Value::Number(_));
            let cells = values.iter().map(|value| cell("", value).filter(|_| is_plain(value)));
            Some(cells.collect::<Option<Vec<_>>>()?.join(" "))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shards::Shards;
    use ddlp_pixels::DType;
    use std::fs;

    /// Writes shards a.tar and b.tar with these members beside images with labels: 0 and 1 in the first shard, 0 in the
    /// second. Returns the fields of the samples.
    fn read(json: [&str; 3]) -> Result<SampleFields, String> {
        let root = tempfile::tempdir().unwrap();
        for (shard, members) in [("a.tar", &json[..2]), ("b.tar", &json[2..])] {
            let mut builder = tar::Builder::new(Vec::new());
            let mut append = |name: String, content: &str| {
                let mut header = tar::Header::new_gnu();
                header.set_size(content.len() as u64);
                builder.append_data(&mut header, name, content.as_bytes()).unwrap();
            };
            for (number, json) in members.iter().enumerate() {
                append(format!("d/{number}.jpg"), "x");
                append(format!("d/{number}.cls"), "2");
                append(format!("d/{number}.seg.png"), "mask");
                if !json.is_empty() {
                    append(format!("d/{number}.JSON"), json);
                }
            }
            fs::write(root.path().join(shard), builder.into_inner().unwrap()).unwrap();
        }
        // The fields of one shard come from all shards, too.
        let one = Shards::open(&root.path().join("b.tar")).unwrap();
        let all = Shards::open(root.path()).unwrap();
        let fields = SampleFields::read(root.path(), &all).map_err(|error| error.to_string())?;
        let last = SampleFields::read(root.path(), &one).unwrap();
        assert!((0..fields.fields().count()).all(|field| last.value(field, 0) == fields.value(field, 2)));
        Ok(fields)
    }

    #[test]
    fn numbers_and_lists_of_numbers_are_fields() {
        let fields = read([
            r#"{"age": 3, "box": [0, 1.5], "text": "a", "on": true, "no": null, "deep": [[1]], "labels": [2, 0]}"#,
            r#"{"box": [2, 3], "on": false, "age": -1, "labels": [], "more": 1}"#,
            r#"{"age": 7, "on": true, "box": [4, 5e-1], "labels": [1]}"#,
        ]);
        let fields = fields.unwrap();
        let described: Vec<_> = fields.fields().map(|field| (&*field.name, field.dtype, field.shape.clone())).collect();
        let expected = [
            ("age", DType::I64, vec![]),
            ("box", DType::F32, vec![2]),
            ("labels", DType::F32, vec![3]),
            ("on", DType::I64, vec![]),
        ];
        assert_eq!(described, expected);
        assert_eq!(fields.value(0, 1), (-1i64).to_ne_bytes());
        assert_eq!(fields.value(1, 2), [4f32.to_ne_bytes(), 0.5f32.to_ne_bytes()].as_flattened());
        assert_eq!(fields.value(2, 0), [1f32, 0.0, 1.0].map(f32::to_ne_bytes).as_flattened());
    }

    #[test]
    fn members_that_do_not_fit_say_which_and_why() {
        for (json, part) in [
            (["", "", ""], "has no .json members"),
            ([r#"{"a": 1}"#, r#"{"a": 1}"#, ""], "no member .json for 1 of the 3 samples, such as b.tar:d/0.jpg"),
            ([r#"{"a": 1}"#, r#"{"b": 1}"#, "{}"], "sample d/1 in"),
            ([r#"{"a": 1}"#, r#"{"b": 1}"#, "{}"], "a.tar has a .json without numbers for \"a\""),
            ([r#"{"a": [1]}"#, r#"{"a": [1, 2]}"#, "{}"], "that does not fit: column \"a\": the cell has 2 numbers"),
            (["[1]", "", ""], "a .json that cannot be read: invalid type"),
            ([r#"{"a": "1"}"#, "", ""], "a .json without any number"),
        ] {
            let error = read(json).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
