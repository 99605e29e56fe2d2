//! Every parser of foreign input, called with changed inputs for a minute each (`--seconds N`, `--seed N`).

use anyhow::{Result, bail};
use postrider_testkit::fuzz::{SEED, TIME};

use crate::shell;

const TARGETS: [&[&str]; 3] = [
    &[
        "cargo",
        "test",
        "-p",
        "postrider",
        "--test",
        "fuzz",
        "--",
        "--nocapture",
        "--test-threads=1",
    ],
    &["cargo", "test", "-p", "postrider", "--lib", "fuzzed", "--", "--nocapture"],
    &[
        "cargo",
        "test",
        "-p",
        "postrider-channels",
        "--features",
        "smpp",
        "--lib",
        "fuzz",
        "--",
        "--nocapture",
    ],
];

pub(super) fn run(args: &[&str]) -> Result<()> {
    let (mut seconds, mut seed) = (60, std::process::id().into());
    let mut rest = args.iter();
    while let Some(option) = rest.next() {
        let value = rest.next().and_then(|text| text.parse::<u64>().ok());
        match (*option, value) {
            ("--seconds", Some(value)) => seconds = value,
            ("--seed", Some(value)) => seed = value,
            _ => bail!("{option} is not known here: --seconds N, --seed N"),
        }
    }
    println!("{seconds} s each, seed {seed}");
    for target in TARGETS {
        let mut command = shell::command(target)?;
        command.current_dir(shell::root());
        command.env(TIME, (seconds * 1_000).to_string()).env(SEED, seed.to_string());
        shell::run(&mut command)?;
    }
    Ok(())
}
