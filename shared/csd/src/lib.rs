//! The contract of the compute namespace.
