//! Checks every promise: compares the server's states with the sandbox's counts.

use std::collections::HashMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::steps::{DemoRun, SentCase};

struct PromiseChecks {
    held: bool,
}

impl PromiseChecks {
    fn check(&mut self, held: bool, what: &str, evidence: &str) {
        println!("  {} {what:<72} {evidence}", if held { "✓" } else { "✗" });
        self.held &= held;
    }
}

pub(super) async fn check_all(run: &DemoRun<'_>) -> Result<bool> {
    let received = received(run).await?;
    let mut checks = PromiseChecks { held: true };
    println!("\nOne delivery for everything that can happen to one:");
    for sent in &run.cases {
        case(run, sent, &received, &mut checks).await?;
    }
    cancelled(run, &received, &mut checks).await?;
    println!("\nAll of them:");
    totals(run, &received, &mut checks).await?;
    Ok(checks.held)
}

async fn case(
    run: &DemoRun<'_>,
    sent: &SentCase,
    received: &HashMap<String, Value>,
    checks: &mut PromiseChecks,
) -> Result<()> {
    let delivery = run.services.api.get(&format!("/v1/deliveries/{}", sent.delivery)).await?;
    let replayed = run.replayed.as_deref() == Some(&*sent.delivery);
    let (state, reason) = (&delivery["state"], &delivery["reason"]);
    let known_as = run.accepted.get(&sent.delivery).unwrap_or(&sent.delivery);
    let calls = received.get(known_as).and_then(|r| r["attempts"].as_u64()).unwrap_or(0);
    // The replayed delivery has a new end. Its first end is in its log.
    let ended = if replayed {
        let log = delivery["log"].as_array().map(Vec::as_slice).unwrap_or_default();
        state == "sent" && log.iter().any(|attempt| attempt["decision"] == "dead_letter")
    } else {
        state == sent.case.end.state.name()
            && reason.as_str() == sent.case.end.reason.map(|r| r.name())
    };
    let shown = match (replayed, reason.as_str()) {
        (true, _) => "dead letter permanent, replayed, sent".to_owned(),
        (false, Some(reason)) => format!("dead letter {reason}"),
        (false, None) => state.as_str().unwrap_or_default().to_owned(),
    };
    let evidence = format!("{shown}, {calls} {}", if calls == 1 { "call" } else { "calls" });
    checks.check(ended && calls >= sent.case.calls_min, sent.case.what, &evidence);
    Ok(())
}

async fn cancelled(
    run: &DemoRun<'_>,
    received: &HashMap<String, Value>,
    checks: &mut PromiseChecks,
) -> Result<()> {
    let cancelled = run.cancelled.as_deref().context("a cancelled delivery")?;
    let state =
        run.services.api.get(&format!("/v1/deliveries/{cancelled}")).await?["state"].clone();
    checks.check(
        state == "cancelled" && !received.contains_key(cancelled),
        "scheduled for tomorrow, cancelled today",
        state.as_str().unwrap_or_default(),
    );
    Ok(())
}

async fn totals(
    run: &DemoRun<'_>,
    received: &HashMap<String, Value>,
    checks: &mut PromiseChecks,
) -> Result<()> {
    let states = run.services.api.get("/v1/stats").await?["states"].clone();
    let n = |name: &str| states[name].as_u64().unwrap_or(0);
    let accepted = run.accepted.len() as u64;
    let ends = ["sent", "gone", "expired", "failed", "cancelled"];
    let sum: u64 = ends.map(n).iter().sum();
    let shown = ends.map(|end| format!("{} {end}", n(end))).join(" + ");
    let shown = format!("{shown} = {sum} of {accepted}");
    checks.check(sum == accepted, "every message is accounted for", &shown);

    let mut lost = 0;
    for (id, known_as) in &run.accepted {
        let arrived = received.get(known_as).and_then(|r| r["accepted"].as_u64()).unwrap_or(0) > 0;
        if !arrived
            && run.services.api.get(&format!("/v1/deliveries/{id}")).await?["state"] == "sent"
        {
            lost += 1;
        }
    }
    let what = "nothing is lost: what is `sent`, a provider has";
    checks.check(lost == 0, what, &format!("lost = {lost}"));

    let summary = run.services.sandbox.received();
    let count = |name: &str| summary[name].as_u64().unwrap_or(0);
    let (duplicates, after_reset) = (count("duplicates"), count("duplicates_after_reset"));
    checks.check(
        duplicates == 0,
        "nothing is sent twice that was answered once",
        &format!("duplicates = {duplicates} ({after_reset} more after a provider that took it and hung up)"),
    );
    let early = count("retry_after_violations");
    checks.check(
        early == 0,
        "no provider was called before its Retry-After",
        &format!("violations = {early} by the sandbox's own clock"),
    );
    for early in received.values().filter(|entry| entry["retry_after_violations"] != 0) {
        println!("      {} {}: {}", early["kind"], early["id"], early["history"]);
    }
    let flaws =
        count("bad_signature") + count("bad_vapid") + count("undecryptable") + count("bad_request");
    checks.check(
        flaws == 0,
        "every push decrypted, every signature and VAPID token verified",
        &format!("{} calls checked", count("total")),
    );
    println!(
        "\n  Dead letters by reason: permanent, retries_exhausted, ttl and ambiguous are shown above; poison takes\n  \
         three crashes or a damaged store, refused a class that does not wait for an open breaker."
    );
    Ok(())
}

/// What the sandbox received, by the id that it saw, or without one, by the receiver.
async fn received(run: &DemoRun<'_>) -> Result<HashMap<String, Value>> {
    let text = run.services.received_ids().await?;
    let mut received = HashMap::new();
    for line in text.lines() {
        let entry: Value = serde_json::from_str(line)?;
        let text =
            |name: &str| entry[name].as_str().with_context(|| format!("an entry without {name}"));
        let known_as = match text("id")? {
            id if id.starts_with("digest_") => format!("{}/{}", text("kind")?, text("target")?),
            id => id.to_owned(),
        };
        received.insert(known_as, entry);
    }
    Ok(received)
}
