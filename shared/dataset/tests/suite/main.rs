//! Datasets as programs that open them see them.

mod detection;
mod page_cache;
