//! Helpers for the tests of several crates. Depends on no other crate of the project, and only tests depend on it.

pub mod allocations;
pub mod nested;
pub mod page_cache;
pub mod signals;
pub mod trees;
pub mod unprivileged;
