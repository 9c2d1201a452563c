//! Benches of single stages, in the folder `benches`.
