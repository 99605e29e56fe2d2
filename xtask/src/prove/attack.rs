//! Runs the attacks on connections and quotas at full size: a thousand idle and a thousand slow connections, and five
//! minutes of a tenant that fills every quota.

use anyhow::{Context, Result, bail};

use crate::shell;

/// `--seconds N` chooses another length of the attack on quotas, `--binary FILE` another server than a release build.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let (mut seconds, mut binary) = ("300", None);
    let mut words = args.iter().copied();
    while let Some(word) = words.next() {
        match word {
            "--seconds" => seconds = words.next().context("--seconds needs a number")?,
            "--binary" => binary = words.next().map(str::to_owned),
            other => bail!("{other} is not known here: --seconds N, --binary FILE"),
        }
    }
    let binary = match binary {
        Some(binary) => binary,
        None => {
            shell::step(&shell::root(), &["cargo", "build", "--release", "-p", "postrider"])?;
            shell::root().join("target/release/postrider").display().to_string()
        }
    };
    let binary = format!("POSTRIDER_ATTACK_BINARY={binary}");
    let quota_s = format!("POSTRIDER_ATTACK_SECONDS={seconds}");
    let connections: &[&str] = &[
        &binary,
        "POSTRIDER_ATTACK_CONNECTIONS=1000",
        "POSTRIDER_ATTACK_PER_S=500",
        "POSTRIDER_ATTACK_SECONDS=30",
        "POSTRIDER_ATTACK_TIMES=2",
        "POSTRIDER_ATTACK_FLOOR_MS=0",
    ];
    let quotas: &[&str] = &[
        &binary,
        &quota_s,
        "POSTRIDER_ATTACK_QUOTA_PER_S=100",
        "POSTRIDER_ATTACK_QUOTA_LINES=16",
        "POSTRIDER_ATTACK_QUOTA_TIMES=1.5",
        "POSTRIDER_ATTACK_FLOOR_MS=0",
    ];
    for (sizes, test) in [(connections, "attack::connections"), (quotas, "attack::quotas")] {
        let line: Vec<&str> = ["env"]
            .iter()
            .chain(sizes)
            .chain(&[
                "cargo",
                "test",
                "-p",
                "postrider",
                "--test",
                "security",
                "--",
                test,
                "--nocapture",
            ])
            .copied()
            .collect();
        shell::step(&shell::root(), &line).context("others noticed the attack")?;
    }
    eprintln!("\nProven: neither connections nor quotas of one caller cost others anything.");
    Ok(())
}
