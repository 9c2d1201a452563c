//! What can be asked of the samples of a dataset: `id`, `label`, `class`, `name`, and the fields of one number.

use super::filter::{Columns, Value};
use ddlp_dataset::{Dataset, ReadError, SampleFields};
use ddlp_pixels::{DType, Field};
use half::{bf16, f16};
use std::cell::RefCell;
use std::ops::Range;

/// The columns that every dataset has. Fields come after them.
const OWN: [&str; 4] = ["id", "label", "class", "name"];
const ID: usize = 0;
const LABEL_COLUMN: usize = 1;
const CLASS: usize = 2;
/// The column of names.
pub const NAME: usize = 3;

/// The columns of a dataset and of the fields beside it.
pub struct SampleColumns<'d> {
    dataset: &'d dyn Dataset,
    beside: &'d SampleFields,
    fields: Vec<&'d Field>,
    /// The first sample whose name is in memory, and the names from there on.
    names: RefCell<(u64, Vec<String>)>,
}

impl<'d> SampleColumns<'d> {
    pub fn new(dataset: &'d dyn Dataset, beside: &'d SampleFields) -> Self {
        Self { dataset, beside, fields: beside.fields().collect(), names: RefCell::default() }
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.dataset.len()
    }

    /// Returns the label of a sample.
    pub fn label(&self, index: u64) -> i64 {
        self.beside.label(self.dataset, index)
    }

    /// Reads the names of neighbouring samples, before they are asked for.
    pub fn read_names(&self, samples: Range<u64>) -> Result<(), ReadError> {
        *self.names.borrow_mut() = (samples.start, self.dataset.names(samples)?);
        Ok(())
    }

    fn classes(&self) -> &[String] {
        self.beside.classes().unwrap_or_else(|| self.dataset.classes())
    }
}

impl Columns for SampleColumns<'_> {
    fn find(&self, name: &str) -> Result<Option<(usize, bool)>, String> {
        if let Some(column) = OWN.iter().position(|own| *own == name) {
            return Ok(Some((column, column >= CLASS)));
        }
        let Some(at) = self.fields.iter().position(|field| field.name == name) else { return Ok(None) };
        let numbers: u64 = self.fields[at].shape.iter().map(|&size| u64::from(size)).product();
        if numbers != 1 {
            return Err(format!("the field {name} has {numbers} numbers, and only fields of one can be asked"));
        }
        Ok(Some((OWN.len() + at, false)))
    }

    fn names(&self) -> Vec<String> {
        let fields = self.fields.iter().map(|field| field.name.as_str()).filter(|name| !OWN.contains(name));
        OWN.into_iter().chain(fields).map(str::to_owned).collect()
    }

    fn value(&self, column: usize, sample: u64) -> Value<'_> {
        match column {
            ID => Value::Whole(sample as i64),
            LABEL_COLUMN => Value::Whole(self.label(sample)),
            CLASS => {
                let class = usize::try_from(self.label(sample)).ok().and_then(|label| self.classes().get(label));
                Value::Text(class.map_or("", String::as_str).into())
            }
            column => match column.checked_sub(OWN.len()) {
                None => {
                    let (first, names) = &*self.names.borrow();
                    Value::Text(names[(sample - first) as usize].clone().into())
                }
                Some(field) => number(self.fields[field].dtype, self.beside.value(field, sample)),
            },
        }
    }

    fn check(&self, column: usize, text: &str) -> Result<(), String> {
        if column != CLASS || self.classes().iter().any(|class| class == text) {
            return Ok(());
        }
        Err(format!("the dataset has no class {text}: `ddlp inspect` lists them"))
    }
}

/// Returns a number of a field.
fn number(dtype: DType, bytes: &[u8]) -> Value<'static> {
    fn of<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().expect("one number of this type")
    }
    match dtype {
        DType::U8 => Value::Whole(bytes[0].into()),
        DType::I64 => Value::Whole(i64::from_ne_bytes(of(bytes))),
        DType::F32 => Value::Number(f32::from_ne_bytes(of(bytes)).into()),
        DType::F16 => Value::Number(f16::from_ne_bytes(of(bytes)).into()),
        DType::Bf16 => Value::Number(bf16::from_ne_bytes(of(bytes)).into()),
        // Equal to nothing.
        _ => Value::Number(f64::NAN),
    }
}
