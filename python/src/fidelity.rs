//! A Python function that returns the fidelity of an epoch.

use crate::of_epoch::OfEpoch;
use ddlp_host::Fidelity;
use pyo3::prelude::*;

/// Calls the program's function, as wrapped by `ddlp/_fidelity.py`.
pub fn of_epoch(function: &OfEpoch, epoch: u32) -> Result<Fidelity, String> {
    let number = function.call(epoch, |number| number.extract::<u8>())?;
    Fidelity::new(number).ok_or_else(|| format!("it is {number}, but must be a number from 1 to 10"))
}
