//! Datasets as those who open them see them.

mod detection;
mod page_cache;
