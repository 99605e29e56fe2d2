//! The channels that have a `tests/conformance.rs` in their folder, as `build.rs` lists them.

include!(concat!(env!("OUT_DIR"), "/columns.rs"));
