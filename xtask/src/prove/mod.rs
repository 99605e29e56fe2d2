//! `cargo xtask prove NAME`: proofs that take too long for every change. One file per proof; a proof
//! prints its result or fails.

mod api;
mod attack;
mod backup;
mod badpage;
mod channels;
mod demo;
mod fuzz;
mod harm;
mod jobs;
mod kill;
mod lanes;
mod ledger;
mod month;
mod mutants;
mod nodes;
mod power;
mod reader;
mod sim;

use anyhow::{Result, bail};

struct Proof {
    name: &'static str,
    claim: &'static str,
    run: fn(&[&str]) -> Result<()>,
}

const PROOFS: &[Proof] = &[
    Proof {
        name: "api",
        claim: "random calls by the OpenAPI description: no server error, no answer that is not described (--cases N)",
        run: api::run,
    },
    Proof {
        name: "attack",
        claim: "1 000 idle and 1 000 slow connections, then five minutes of filling quotas: others notice nothing (--seconds N)",
        run: attack::run,
    },
    Proof {
        name: "backup",
        claim: "a backup under 1 000 accepts/s has everything, and sends nothing until it is released",
        run: backup::run,
    },
    Proof {
        name: "badpage",
        claim: "bad pages among a million pending: all others go on at 95 % of the rate (--pending N)",
        run: badpage::run,
    },
    Proof {
        name: "channels",
        claim: "one message per channel arrives once, with its TTL in the provider's field",
        run: channels::run,
    },
    Proof {
        name: "demo",
        claim: "every promise of the demo holds, within a minute",
        run: demo::run,
    },
    Proof {
        name: "fuzz",
        claim: "no parser of foreign input panics or hangs in a minute of changed inputs (--seconds N, --seed N)",
        run: fuzz::run,
    },
    Proof {
        name: "jobs",
        claim: "kill -9 ten times while 100 000 dead letters are replayed: each is replayed once (--deliveries N, --kills N)",
        run: jobs::run,
    },
    Proof {
        name: "ledger",
        claim: "5 million deliveries, 200 000 dead letters, 1 000 tenants: every list and filter p95 < 100 ms at 1 000 deliveries/s (--deliveries N)",
        run: ledger::run,
    },
    Proof {
        name: "kill",
        claim: "kill -9 ten times during 100 000 messages: nothing lost, few repeats, all recognisable (--kills N, --messages N)",
        run: kill::run,
    },
    Proof {
        name: "power",
        claim: "500 power cuts that drop what was not synced: every acknowledged message is there",
        run: power::run,
    },
    Proof {
        name: "reader",
        claim: "a foreign reader held open for a minute under 500 accepts/s: p99 below 20 ms",
        run: reader::run,
    },
    Proof {
        name: "month",
        claim: "30 virtual days of one store: neither speed, memory nor file get worse (--messages N)",
        run: month::run,
    },
    Proof {
        name: "sim",
        claim: "20 000 simulated seeds, twice each, over both stores: no invariant is broken",
        run: sim::run,
    },
    Proof {
        name: "lanes",
        claim: "noisy tenants, bursts, limits and outages do not affect others (NAME …, --scale N, --down-s N)",
        run: lanes::run,
    },
    Proof {
        name: "harm",
        claim: "sick traffic costs healthy traffic nothing, in 20 fresh worlds (--seeds N, --from S, --seconds T, --engine NAME --nodes N) or --only NAME",
        run: harm::run,
    },
    Proof {
        name: "nodes",
        claim: "several nodes over one store lose nothing when nodes, network or store fail (--only NAME, --messages N)",
        run: nodes::run,
    },
    Proof {
        name: "engines",
        claim: "what an engine costs: rates, processor time and bytes of accepting and delivering (--engine NAME, --messages N)",
        run: nodes::benchmark::run,
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
            bail!("no proof is called {name:?}; known: {}", names.join(", "))
        }
    }
}
