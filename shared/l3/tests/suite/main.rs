//! Images of all kinds through the encoder and the decoder.

mod hostile;
mod images;
mod regions;
mod round_trip;
