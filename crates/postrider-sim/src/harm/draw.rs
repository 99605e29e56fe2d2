//! Random numbers for one entity of a world, as in the proof on the real binary.

pub(crate) use postrider_testkit::random::{draw, zipf};
