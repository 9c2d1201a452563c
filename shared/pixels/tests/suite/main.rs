//! What the crate promises to those who use it.

mod boxes;
mod draws;
mod inspect;
mod prepare;
mod verdicts;
