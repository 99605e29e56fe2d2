//! Proves under load that lanes are isolated, with the real server and sandboxes: a noisy tenant, a
//! burst, a provider with a rate limit, one with few slots, one that is down. Each scenario prints its
//! figures and fails if a promise is broken.

mod fixture;
mod scenarios;

use anyhow::{Context, Result, bail};

use crate::shell;

struct Scenario {
    name: &'static str,
    promise: &'static str,
    run: fn(&ProofOptions) -> Result<String>,
}

/// Size and duration of the scenarios; scale 1 is the full size.
pub(super) struct ProofOptions {
    scale: f64,
    down_s: u64,
    /// Use the existing binary.
    as_built: bool,
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "noisy",
        promise: "one tenant with 1 000 000 queued, 99 with 10 each, 500/s by 429: the 99 within 5 s",
        run: scenarios::noisy,
    },
    Scenario {
        name: "noisy-paced",
        promise: "the same, but the provider delays calls instead of refusing them",
        run: scenarios::noisy_paced,
    },
    Scenario {
        name: "burst",
        promise: "a code every 100 ms beside a burst of 100 000, 500/s by 429: p99 below 250 ms",
        run: scenarios::burst,
    },
    Scenario {
        name: "burst-paced",
        promise: "the same, but the provider delays calls instead of refusing them",
        run: scenarios::burst_paced,
    },
    Scenario {
        name: "limited",
        promise: "a provider that allows 100/s: at least 95/s, below 5 % refused, after 30 s",
        run: scenarios::limited,
    },
    Scenario {
        name: "slots",
        promise: "a provider with 5 slots: 4 to 5 in use on average",
        run: scenarios::slots,
    },
    Scenario {
        name: "down",
        promise: "a provider down for 5 minutes with 100 000 queued: below one call per second, nothing given up, drained; another one's throughput within 10 %",
        run: scenarios::down,
    },
];

/// `cargo xtask prove lanes [NAME …] [--scale 0.1] [--down-s 60] [--as-built]`
pub(super) fn run(args: &[&str]) -> Result<()> {
    let (options, names) = options(args)?;
    let chosen: Vec<_> =
        SCENARIOS.iter().filter(|s| names.is_empty() || names.contains(&s.name)).collect();
    if chosen.len() < names.len() || (chosen.is_empty() && !names.is_empty()) {
        let known: Vec<_> = SCENARIOS.iter().map(|s| s.name).collect();
        bail!("unknown scenario in {names:?}; known: {}", known.join(", "));
    }
    if !options.as_built {
        shell::step(&shell::root(), &["cargo", "build", "--release", "-p", "postrider"])?;
    }
    let mut broken = Vec::new();
    for Scenario { name, promise, run } in chosen {
        shell::heading(&format!("{name}: {promise}"));
        match run(&options) {
            Ok(figures) => eprintln!("held: {figures}"),
            Err(error) => {
                eprintln!("BROKEN: {error:#}");
                broken.push(*name);
            }
        }
    }
    if !broken.is_empty() {
        bail!("broken: {}", broken.join(", "));
    }
    eprintln!("\nProven at scale {}, {} s of outage.", options.scale, options.down_s);
    Ok(())
}

fn options<'a>(args: &[&'a str]) -> Result<(ProofOptions, Vec<&'a str>)> {
    let mut options = ProofOptions { scale: 1.0, down_s: 300, as_built: false };
    let (mut names, mut rest) = (Vec::new(), args.iter());
    while let Some(arg) = rest.next() {
        match *arg {
            "--scale" => options.scale = rest.next().context("--scale N")?.parse()?,
            "--as-built" => options.as_built = true,
            "--down-s" => options.down_s = rest.next().context("--down-s N")?.parse()?,
            name => names.push(name),
        }
    }
    Ok((options, names))
}

impl ProofOptions {
    fn of(&self, count: usize) -> usize {
        ((count as f64 * self.scale) as usize).max(1)
    }
}
