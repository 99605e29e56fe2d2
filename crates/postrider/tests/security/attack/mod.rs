//! Attacks on what all share: connections and quotas. Small in every test run; `cargo xtask prove attack` makes them
//! large and their bounds tight.

mod connections;
mod load;
mod quotas;

use postrider_testkit::process::ProcessFixture;

/// A size that `cargo xtask prove attack` sets.
fn size(name: &str, usual: f64) -> f64 {
    let set = std::env::var(format!("POSTRIDER_ATTACK_{name}")).ok();
    set.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// A server of the binary under test, or of the one that the proof names.
fn attacked(config: &str) -> ProcessFixture {
    let named = std::env::var("POSTRIDER_ATTACK_BINARY").ok();
    let binary = named.unwrap_or_else(|| env!("CARGO_BIN_EXE_postrider").to_owned());
    ProcessFixture::started(binary, config).unwrap()
}
