//! `cargo xtask prove NAME`: claims that take too long, or too much of a machine, to be proven on
//! every change. One file per proof; a proof ends in a sentence with its numbers, or fails.

mod channels;
mod demo;
mod kill;
mod lanes;
mod mutants;
mod sim;

use anyhow::{Result, bail};

struct Proof {
    name: &'static str,
    claim: &'static str,
    run: fn(&[&str]) -> Result<()>,
}

const PROOFS: &[Proof] = &[
    Proof {
        name: "channels",
        claim: "one message per channel arrives once, and says how long it lives in the provider's field",
        run: channels::run,
    },
    Proof {
        name: "demo",
        claim: "the demo's whole story holds, and is told within a minute",
        run: demo::run,
    },
    Proof {
        name: "kill",
        claim: "ten times kill -9 among 100 000 messages: nothing lost, repeats bounded and recognisable",
        run: kill::run,
    },
    Proof {
        name: "sim",
        claim: "20 000 seeds of simulated lives, twice each, over both stores: no promise is broken",
        run: sim::run,
    },
    Proof {
        name: "lanes",
        claim: "noisy tenants, bursts, limits and outages hurt nobody else (NAME …, --scale N, --down-s N)",
        run: lanes::run,
    },
    Proof {
        name: "mutants",
        claim: "each promise, broken on purpose, makes a test fail",
        run: mutants::run,
    },
];

pub(crate) fn run(name: &str, args: &[&str]) -> Result<()> {
    if name == "list" {
        for Proof { name, claim, .. } in PROOFS {
            println!("{name:<10} {claim}");
        }
        return Ok(());
    }
    match PROOFS.iter().find(|proof| proof.name == name) {
        Some(proof) => (proof.run)(args),
        None => {
            let names: Vec<&str> = PROOFS.iter().map(|proof| proof.name).collect();
            bail!("no proof is called {name:?}; there are: {}", names.join(", "))
        }
    }
}
