//! `status`: the present state on one screen.

use std::io::IsTerminal as _;
use std::time::Duration;

use super::accounts::credential_warnings;
use super::lanes::COLUMNS;
use super::prelude::*;

const LANES: usize = 10;

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Refresh every second until interrupted.
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn run(args: StatusArgs) -> CliResult {
    let ServerSession { client, out } = args.connection.session()?;
    loop {
        let status = fetch(&client, LANES).await?;
        if args.watch && !out.json && std::io::stdout().is_terminal() {
            // Clear the screen and move the cursor to its beginning.
            output::write("\x1b[2J\x1b[H\n")?;
        }
        out.show(&status, screen)?;
        if !args.watch {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

pub(super) async fn fetch(client: &Client, lanes: usize) -> Result<Value, super::CliError> {
    let stats = client.get("/v1/stats").await?;
    let lanes = client.get(&format!("/v1/lanes?limit={lanes}")).await?;
    // Only an admin key may see accounts.
    let accounts = match stats["rates"].is_object() {
        true => client.get("/v1/accounts").await?["accounts"].take(),
        false => Value::Null,
    };
    Ok(json!({"stats": stats, "lanes": lanes["lanes"], "accounts": accounts}))
}

pub(super) fn screen(status: &Value) -> String {
    let stats = &status["stats"];
    let number = |field: &str| cell(stats, field);
    let mut text = format!(
        "Postrider {}, up {} s\n\n\
         depth      {} pending, oldest {}, lag {} s, {} in flight, {} connections\n\
         capacity   {}\n\
         per second {} accepted, {} attempts, {} retried, {} sent, {} dead\n\
         since start {} accepted, {} attempts, {} sent, {} gone, {} expired, {} dead\n",
        number("/version"),
        number("/uptime_s"),
        number("/depth"),
        stats["oldest_pending_s"].as_f64().map_or("-".to_owned(), |s| format!("{s:.1} s")),
        number("/lag_s"),
        number("/in_flight"),
        number("/connections"),
        capacity(stats),
        number("/rates/accepted_per_s"),
        number("/rates/attempts_per_s"),
        number("/rates/retried_per_s"),
        number("/rates/sent_per_s"),
        number("/rates/dead_lettered_per_s"),
        number("/totals/accepted"),
        number("/totals/attempts"),
        number("/totals/sent"),
        number("/totals/gone"),
        number("/totals/expired"),
        number("/totals/dead_lettered"),
    );
    if stats["held"].as_u64().is_some_and(|held| held > 0) {
        text += &format!("held       {} from a backup, until they are released\n", number("/held"));
    }
    if stats["engine"].is_object() {
        text += &format!("store      {}: {}\n", number("/engine/name"), number("/engine/promise"));
    }
    if stats["backup_at"].is_string() {
        text += &format!("backup     {}\n", number("/backup_at"));
    }
    text += &format!("\nstates       {}", counts(&stats["states"]));
    text += &format!("\ndead letters {}\n\n", counts(&stats["dead_letters"]));
    text += &match items(status, "lanes") {
        [] => "no lane has pending deliveries".to_owned(),
        lanes => table(lanes, &COLUMNS),
    };
    for problem in items(stats, "problems") {
        text += &format!("\nPROBLEM store {}: {}", cell(problem, "/code"), cell(problem, "/what"));
    }
    for line in credential_warnings(items(status, "accounts")) {
        text += &format!("\n{line}");
    }
    text
}

/// The capacity of the server if the key may see it, else of the tenant.
fn capacity(stats: &Value) -> String {
    let whole = &stats["server_capacity"];
    let body = if whole.is_object() { whole } else { &stats["capacity"] };
    let percent = body["fill"].as_f64().unwrap_or_default() * 100.0;
    let of = |what: &str| match body[format!("{what}_max")].as_u64() {
        Some(max) => format!("{} of {max} {what}", body[what]),
        None => format!("{} {what}", body[what]),
    };
    format!("{percent:.1} % used: {}, {}", of("deliveries"), of("bytes"))
}

fn counts(map: &Value) -> String {
    let parts: Vec<String> = map
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, n)| n.as_u64() != Some(0))
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}
