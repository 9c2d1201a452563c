//! Parameters that came after the first version, in the binary encoding of plans and programs.
//!
//! Plans of the first version name operations with fewer parameters, and the digest of a program is made from its
//! bytes. So an operation whose later parameters have their defaults keeps its first encoding: a number, such as its
//! size, and the rest. Any other one begins with a number that is no such number, and all parameters follow.

use serde::de::{Error, SeqAccess, Unexpected, Visitor};
use serde::ser::SerializeTuple;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::marker::PhantomData;

/// What stands in place of the first number.
const NO_SIZE: u32 = u32::MAX;

/// An operation with parameters that came after the first version.
pub(super) trait FirstForm: Sized {
    /// The parameters of the first version besides the first one.
    type Rest: Serialize + for<'de> Deserialize<'de>;

    /// Returns the parameters of the first version, if all others have their defaults.
    fn first(&self) -> Option<(u32, Self::Rest)>;

    /// Returns the operation with these parameters of the first version. `None` if `first` is no such parameter.
    fn of_first(first: u32, rest: Self::Rest) -> Option<Self>;
}

/// All parameters, as serde derives their encoding.
pub(super) struct Whole<T>(pub T);

pub(super) fn write<O: FirstForm, S: Serializer>(operation: &O, serializer: S) -> Result<S::Ok, S::Error>
where
    for<'o> Whole<&'o O>: Serialize,
{
    let mut tuple = serializer.serialize_tuple(2)?;
    match operation.first().filter(|(size, _)| *size != NO_SIZE) {
        Some((size, rest)) => {
            tuple.serialize_element(&size)?;
            tuple.serialize_element(&rest)?;
        }
        None => {
            tuple.serialize_element(&NO_SIZE)?;
            tuple.serialize_element(&Whole(operation))?;
        }
    }
    tuple.end()
}

pub(super) fn read<'de, O: FirstForm, D: Deserializer<'de>>(deserializer: D) -> Result<O, D::Error>
where
    Whole<O>: Deserialize<'de>,
{
    deserializer.deserialize_tuple(2, FormVisitor(PhantomData))
}

struct FormVisitor<O>(PhantomData<O>);

impl<'de, O: FirstForm> Visitor<'de> for FormVisitor<O>
where
    Whole<O>: Deserialize<'de>,
{
    type Value = O;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the parameters of an operation")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parameters: A) -> Result<O, A::Error> {
        let missing = |number| A::Error::invalid_length(number, &"the parameters of an operation");
        let size = parameters.next_element::<u32>()?.ok_or_else(|| missing(0))?;
        if size == NO_SIZE {
            return Ok(parameters.next_element::<Whole<O>>()?.ok_or_else(|| missing(1))?.0);
        }
        let rest = parameters.next_element()?.ok_or_else(|| missing(1))?;
        let unknown = || A::Error::invalid_value(Unexpected::Unsigned(size.into()), &"a parameter of an operation");
        O::of_first(size, rest).ok_or_else(unknown)
    }
}

/// Implements serde's traits for an operation whose `#[serde(remote = "Self")]` derives how all parameters are encoded.
macro_rules! keep_first_form {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    return $name::serialize(self, serializer);
                }
                $crate::ops::first_form::write(self, serializer)
            }
        }

        impl serde::Serialize for $crate::ops::first_form::Whole<&$name> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self.0, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    return $name::deserialize(deserializer);
                }
                $crate::ops::first_form::read(deserializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $crate::ops::first_form::Whole<$name> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $name::deserialize(deserializer).map(Self)
            }
        }
    };
}
pub(super) use keep_first_form;

#[cfg(test)]
mod tests {
    use crate::ops::{CenterCrop, Operation, RandomCrop, RandomResizedCrop, Resize};

    #[test]
    fn operations_of_the_first_version_keep_their_bytes() {
        let words =
            |bytes: &[u8]| -> Vec<u32> { bytes.as_chunks().0.iter().copied().map(u32::from_le_bytes).collect() };
        let bytes = |operation: Operation| words(&operation.to_bytes());
        assert_eq!(bytes(Resize::to(256).into()), [1, 256]);
        assert_eq!(bytes(CenterCrop::to(224).into()), [2, 224]);
        assert_eq!(bytes(RandomCrop::padded(32, 4).into()), [3, 32, 4]);
        let crop = RandomResizedCrop::within(224, [0.0, 0.0], [0.0, 0.0]);
        assert_eq!(bytes(crop.into()), [0, 224, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_is_written_is_read() {
        let fixed = bincode::config::standard().with_little_endian().with_fixed_int_encoding();
        let varied = bincode::config::standard();
        for operation in Operation::examples().into_iter().flatten() {
            let bytes = operation.to_bytes();
            assert_eq!(bincode::serde::decode_from_slice(&bytes, fixed).unwrap(), (operation.clone(), bytes.len()));
            for end in 0..bytes.len() {
                assert!(bincode::serde::decode_from_slice::<Operation, _>(&bytes[..end], fixed).is_err(), "{end}");
            }
            let bytes = bincode::serde::encode_to_vec(&operation, varied).unwrap();
            assert_eq!(bincode::serde::decode_from_slice(&bytes, varied).unwrap(), (operation.clone(), bytes.len()));
            let text = serde_json::to_string(&operation).unwrap();
            assert_eq!(serde_json::from_str::<Operation>(&text).unwrap(), operation, "{text}");
        }
    }
}
