//! Random numbers from one seed, as in the proofs on the real binary.

pub(crate) use postrider_testkit::random::SimRng;
