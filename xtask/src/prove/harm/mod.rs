//! Proves on the real binary, over this machine's loopback addresses, that sick traffic costs healthy traffic nothing:
//! in fresh worlds that run with and without their sick part, and in named conditions. The simulator proves the same
//! for many more worlds, without sockets.

mod bounds;
mod conditions;
mod fixture;
mod options;
mod run;
mod sick;
mod traffic;
mod world;
mod worlds;

use anyhow::Result;

use crate::shell;
use options::HarmProofOptions;

/// `cargo xtask prove harm [--seeds N] [--from S] [--seconds T]` or `--only NAME …`; `--only list` names them.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let options = HarmProofOptions::parse(args)?;
    if options.only.iter().any(|name| name == "list") {
        conditions::list();
        return Ok(());
    }
    if !options.as_built {
        shell::step(&shell::root(), &["cargo", "build", "--release", "-p", "postrider"])?;
    }
    if options.only.is_empty() { worlds::run(&options) } else { conditions::run(&options) }
}
