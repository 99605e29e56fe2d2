//! What the command line asks for.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::shell;

const SEEDS: u64 = 20;

/// Which worlds or conditions run, and how.
#[derive(Debug, Default)]
pub(super) struct HarmProofOptions {
    /// The first seed; a fresh one without it.
    pub(super) from: Option<u64>,
    pub(super) seeds: u64,
    /// How long each run sends.
    seconds: Option<u64>,
    /// Conditions by name, instead of worlds.
    pub(super) only: Vec<String>,
    pub(super) tls: bool,
    /// The limit of open files of the server.
    pub(super) files: Option<u64>,
    /// The server's binary, if not the one of this workspace.
    binary: Option<PathBuf>,
    /// Use the existing binary of this workspace.
    pub(super) as_built: bool,
    /// Never run two runs of a world at the same time.
    pub(super) one_by_one: bool,
}

impl HarmProofOptions {
    pub(super) fn parse(args: &[&str]) -> Result<Self> {
        let mut options = Self { seeds: SEEDS, ..Self::default() };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{arg} needs a value"));
            match *arg {
                "--from" => options.from = Some(value()?.parse()?),
                "--seeds" => options.seeds = value()?.parse()?,
                "--seconds" => options.seconds = Some(value()?.parse()?),
                "--only" => options.only.push((*value()?).to_owned()),
                "--tls" => options.tls = true,
                "--files" => options.files = Some(value()?.parse()?),
                "--binary" => options.binary = Some(value()?.into()),
                "--as-built" => options.as_built = true,
                "--one-by-one" => options.one_by_one = true,
                other => bail!(
                    "unknown option {other:?}; known: --seeds N, --from S, --seconds T, --only NAME, \
                     --tls, --files N, --binary FILE, --as-built, --one-by-one"
                ),
            }
        }
        Ok(options)
    }

    pub(super) fn seconds(&self, default: u64) -> u64 {
        self.seconds.unwrap_or(default)
    }

    /// The binary of the server.
    pub(super) fn server(&self) -> PathBuf {
        self.binary.clone().unwrap_or_else(Self::sandbox)
    }

    /// The binary of the fake provider.
    pub(super) fn sandbox() -> PathBuf {
        target().join("release/postrider")
    }
}

/// Cargo's folder of built files.
pub(super) fn target() -> PathBuf {
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    named.unwrap_or_else(|| shell::root().join("target"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_worlds_run_unless_something_else_is_asked_for() {
        let options = HarmProofOptions::parse(&[]).unwrap();
        assert_eq!((options.seeds, options.seconds(60), options.only.len()), (20, 60, 0));
        let args = ["--from", "7", "--seeds", "1", "--seconds", "5", "--only", "email", "--tls"];
        let options = HarmProofOptions::parse(&args).unwrap();
        assert_eq!((options.from, options.seeds, options.seconds(60)), (Some(7), 1, 5));
        assert!(options.tls && options.only == ["email"]);
        assert!(HarmProofOptions::parse(&["--sedes", "1"]).is_err());
    }
}
