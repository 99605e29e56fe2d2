//! Mail accounts of three tenants: one relay is slow, one fails, one is healthy.

use std::fmt::Write as _;

use anyhow::{Result, ensure};

use super::super::fixture::{ProviderPorts, origin_address};
use super::super::options::HarmProofOptions;
use super::super::run::RunSetup;
use super::super::traffic::{DueDestination, DueMessage};
use super::{HealthyWaits, healthy_per_s, in_order, steady};

/// The tenant of each account is its place here.
const ACCOUNTS: [&str; 3] = ["slow", "failing", "healthy"];
const HEALTHY: u64 = 2;
const MAILS_PER_S: u64 = 100;
const MAILBOXES: u64 = 100;
const RATE_SHARE_MIN: f64 = 0.9;

pub(super) fn email(options: &HarmProofOptions) -> Result<String> {
    let seconds = options.seconds(60);
    let messages = in_order(steady(MAILS_PER_S * 3, seconds, mail));
    let run = |faults: &str| {
        RunSetup { config, ..RunSetup::new(options, faults.to_owned()) }.run(&messages)
    };
    let well = healthy_per_s(&messages, &run("")?, seconds);
    let sick = run("[[rule]]\nfault = \"slow:5000\"\nname = \"slow-\"\n\
                    [[rule]]\nfault = \"421\"\nname = \"failing-\"\n")?;
    let (rate, waits) =
        (healthy_per_s(&messages, &sick, seconds), HealthyWaits::of(&messages, &sick));
    let figures =
        format!("{well:.0}/s while all accounts work, {rate:.0}/s then; {}", waits.shown());
    ensure!(rate >= well * RATE_SHARE_MIN, "{figures}");
    Ok(figures)
}

fn mail(n: u64, due_ms: u64) -> DueMessage {
    let (account, mailbox) = (n % 3, n / 3 % MAILBOXES);
    let name = ACCOUNTS[account as usize];
    DueMessage {
        due_ms,
        tenant: account as u32,
        class: "transactional",
        destination: DueDestination::Mailbox(format!("{name}-{mailbox}")),
        healthy: account == HEALTHY,
    }
}

/// Each account has a relay of its own: another address of the same fake.
fn config(ports: ProviderPorts) -> String {
    let mut text = String::new();
    for (n, name) in (0..).zip(ACCOUNTS) {
        let (host, port) = (origin_address(n), ports.smtp);
        let _ = write!(
            text,
            "[accounts.{name}]\nchannel = \"email\"\ntenant = \"t{n}\"\nfrom = \"news@shop.example\"\n\
             host = \"{host}\"\nport = {port}\ntls = \"none\"\n"
        );
    }
    text
}
