//! Tests of the promises that this crate makes to its users.

mod boxes;
mod draws;
mod formats;
mod geometry;
mod inspect;
mod prepare;
mod values;
mod verdicts;
