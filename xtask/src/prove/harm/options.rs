//! What the command line asks for.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::shell;

const SEEDS: u64 = 20;
/// So many servers share an engine's store.
const NODES: usize = 3;

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
    /// The engine of a store that several servers share; each server has a folder without it.
    pub(super) engine: Option<String>,
    /// How many servers share it.
    nodes: Option<usize>,
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
                "--engine" => options.engine = Some((*value()?).to_owned()),
                "--nodes" => options.nodes = Some(value()?.parse()?),
                other => bail!(
                    "unknown option {other:?}; known: --seeds N, --from S, --seconds T, --only NAME, \
                     --tls, --files N, --binary FILE, --as-built, --one-by-one, --engine NAME, --nodes N"
                ),
            }
        }
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<()> {
        if self.nodes == Some(0) {
            bail!("--nodes must be at least 1");
        }
        if self.engine.is_none() && self.nodes.is_some_and(|nodes| nodes > 1) {
            bail!("--nodes {} needs a store that they share: add --engine NAME", self.nodes());
        }
        if self.engine.is_some() && !self.only.is_empty() {
            bail!("--engine is for worlds: leave out --only");
        }
        Ok(())
    }

    /// How many servers run.
    pub(super) fn nodes(&self) -> usize {
        self.nodes.unwrap_or(if self.engine.is_some() { NODES } else { 1 })
    }

    /// Sending begins so long after the start of the provider: servers that share a store have to share the work first.
    pub(super) fn lead_ms(&self) -> u64 {
        if self.engine.is_some() { 12_000 } else { 3_000 }
    }

    /// Servers that share a store hear of each other's work a little later.
    pub(super) fn extra_ms(&self) -> i64 {
        if self.engine.is_some() { 200 } else { 0 }
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

    #[test]
    fn several_servers_need_a_store_that_they_share() {
        let options = HarmProofOptions::parse(&["--engine", "redis"]).unwrap();
        assert_eq!((options.nodes(), options.extra_ms()), (3, 200));
        let alone = HarmProofOptions::parse(&[]).unwrap();
        assert_eq!((alone.nodes(), alone.extra_ms()), (1, 0));
        assert!(HarmProofOptions::parse(&["--nodes", "3"]).is_err());
        assert!(HarmProofOptions::parse(&["--engine", "redis", "--nodes", "0"]).is_err());
        assert!(HarmProofOptions::parse(&["--engine", "redis", "--only", "email"]).is_err());
    }
}
