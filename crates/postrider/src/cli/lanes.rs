//! `lanes`: list and show lanes, pause and resume them, force breakers.

use clap::ValueEnum;

use super::keys::seconds;
use super::prelude::*;
use super::providers::pause_body;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider lanes list
  postrider lanes list --state blocked --channel webhook
  postrider lanes pause 7 --for 1h --reason 'their maintenance'
  postrider lanes breaker 7 closed")]
pub(super) enum LanesCommand {
    /// List lanes with pending deliveries, those with the most first, and paused lanes.
    List {
        /// ready, waiting or blocked
        #[arg(long)]
        state: Option<String>,
        /// Only this channel, e.g. webhook
        #[arg(long)]
        channel: Option<String>,
        /// Only this provider, e.g. https://hooks.example.com
        #[arg(long)]
        provider: Option<String>,
        /// Only this class
        #[arg(long)]
        class: Option<String>,
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one lane: its gates, what it waits for and what can be done.
    Show {
        /// The lane's number.
        id: u32,
    },
    /// Pause a lane: send nothing until it is resumed or the time is over, also after a restart.
    Pause {
        /// The lane's number.
        id: u32,
        /// Why; `explain` and the dashboard show it.
        #[arg(long)]
        reason: Option<String>,
        /// It ends by itself after so long, e.g. `30m`, `1h`.
        #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
        for_s: Option<u64>,
    },
    /// Resume a paused lane.
    Resume {
        /// The lane's number.
        id: u32,
    },
    /// Force the breaker of the lane's provider, for all its lanes (admin key).
    Breaker {
        /// The lane's number.
        id: u32,
        force: BreakerArg,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum BreakerArg {
    /// Send nothing to this provider.
    Open,
    /// Send, whatever the failures.
    Closed,
    /// Decide by the counted failures.
    Auto,
}

pub(super) async fn run(command: LanesCommand, session: ServerSession) -> CliResult {
    let (id, action, body) = match command {
        LanesCommand::List { state, channel, provider, class, limit } => {
            let query = [
                ("state", state),
                ("channel", channel),
                ("provider", provider),
                ("class", class),
                ("limit", Some(limit.to_string())),
            ];
            let path = with_query("/v1/lanes", &query);
            return session.get(&path, |list| table(items(list, "lanes"), &COLUMNS)).await;
        }
        LanesCommand::Show { id } => return session.get(&format!("/v1/lanes/{id}"), detail).await,
        LanesCommand::Pause { id, reason, for_s } => (id, "pause", pause_body(reason, for_s)),
        LanesCommand::Resume { id } => (id, "resume", Value::Null),
        LanesCommand::Breaker { id, force } => {
            let word = match force {
                BreakerArg::Open => "open",
                BreakerArg::Closed => "closed",
                BreakerArg::Auto => "auto",
            };
            (id, "breaker", json!({"force": word}))
        }
    };
    session.post(&format!("/v1/lanes/{id}/{action}"), &body, detail).await
}

fn detail(lane: &Value) -> String {
    let mut text = table(std::slice::from_ref(lane), &COLUMNS);
    if lane["waits_for"].is_string() {
        text += &format!("\nIt waits: {}.\n", cell(lane, "/waits_for"));
    }
    let gates = [("GATE", "/gate"), ("VERDICT", "/verdict"), ("", "/detail")];
    text += &format!("\n{}", table(items(lane, "gates"), &gates));
    for step in items(lane, "can_do") {
        text += &format!("\nYou can: {}", step.as_str().unwrap_or_default());
    }
    text
}

pub(super) const COLUMNS: [(&str, &str); 10] = [
    ("LANE", "/id"),
    ("TENANT", "/tenant"),
    ("CHANNEL", "/channel"),
    ("PROVIDER", "/provider"),
    ("CLASS", "/class"),
    ("STATE", "/state"),
    ("HELD BY", "/held_by"),
    ("UNTIL", "/until"),
    ("PENDING", "/pending"),
    ("IN FLIGHT", "/in_flight"),
];
