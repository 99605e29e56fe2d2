//! What the command line asks for.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use crate::shell;

/// Which proofs run, on which engine, and how large.
#[derive(Debug)]
pub(super) struct NodeProofOptions {
    /// All without it.
    pub(super) only: Vec<String>,
    pub(super) messages: usize,
    /// Messages that are handed in per second.
    pub(super) rate: usize,
    pub(super) engine: String,
    /// How long a cut network and a held snapshot last.
    pub(super) cut_s: u64,
    pub(super) snapshot_s: u64,
    /// How long `prove engines` watches sizes under load; not at all without it.
    pub(super) soak_s: Option<u64>,
    /// Use the existing binary.
    as_built: bool,
}

impl NodeProofOptions {
    pub(super) fn parse(args: &[&str]) -> Result<Self> {
        let mut options = Self {
            only: Vec::new(),
            messages: 100_000,
            rate: 1_000,
            engine: "postgres".to_owned(),
            cut_s: 30,
            snapshot_s: 120,
            soak_s: None,
            as_built: false,
        };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let mut value = || rest.next().with_context(|| format!("{arg} needs a value"));
            match *arg {
                "--only" => options.only.push((*value()?).to_owned()),
                "--messages" => options.messages = value()?.parse()?,
                "--rate" => options.rate = value()?.parse()?,
                "--engine" => options.engine = (*value()?).to_owned(),
                "--cut-s" => options.cut_s = value()?.parse()?,
                "--snapshot-s" => options.snapshot_s = value()?.parse()?,
                "--soak-s" => options.soak_s = Some(value()?.parse()?),
                "--as-built" => options.as_built = true,
                other => bail!(
                    "unknown option {other:?}; known: --only NAME, --messages N, --rate N, --engine NAME, --cut-s N, \
                     --snapshot-s N, --soak-s N, --as-built"
                ),
            }
        }
        if options.messages == 0 || options.rate == 0 {
            bail!("--messages and --rate must be at least 1");
        }
        Ok(options)
    }

    pub(super) fn build(&self) -> Result<()> {
        if self.as_built {
            return Ok(());
        }
        shell::step(&shell::root(), &["cargo", "build", "--release", "-p", "postrider"])
    }

    pub(super) fn binary() -> PathBuf {
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
    fn a_hundred_thousand_messages_on_postgresql_unless_something_else_is_asked_for() {
        let options = NodeProofOptions::parse(&[]).unwrap();
        assert_eq!(
            (options.messages, &*options.engine, options.only.len()),
            (100_000, "postgres", 0)
        );
        let options = NodeProofOptions::parse(&["--only", "kill", "--messages", "50"]).unwrap();
        assert_eq!((options.messages, options.only), (50, vec!["kill".to_owned()]));
        assert!(NodeProofOptions::parse(&["--mesages", "1"]).is_err());
        assert!(NodeProofOptions::parse(&["--rate", "0"]).is_err());
    }
}
