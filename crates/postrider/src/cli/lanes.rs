//! `lanes`: list and show lanes, pause and resume them, force breakers.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::output::{cell, items, table};
use super::{CliResult, ConnectionArgs};
use crate::client::with_query;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  postrider lanes list
  postrider lanes pause 7
  postrider lanes breaker 7 closed")]
pub(super) struct LanesArgs {
    #[command(subcommand)]
    what: LanesCommand,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Debug, Subcommand)]
enum LanesCommand {
    /// List lanes with pending deliveries, those with the most first, and paused lanes.
    List {
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one lane: its gates, what it waits for and what can be done.
    Show {
        /// The lane's number.
        id: u32,
    },
    /// Pause a lane: send nothing until it is resumed, also after a restart.
    Pause {
        /// The lane's number.
        id: u32,
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
enum BreakerArg {
    /// Send nothing to this provider.
    Open,
    /// Send, whatever the failures.
    Closed,
    /// Decide by the counted failures.
    Auto,
}

pub(super) async fn run(args: LanesArgs) -> CliResult {
    let (client, out) = (args.connection.client()?, args.connection.output());
    let path = |id: u32, action: &str| format!("/v1/lanes/{id}/{action}");
    let lane = match args.what {
        LanesCommand::List { limit } => {
            let query = [("limit", Some(limit.to_string()))];
            let list = client.get(&with_query("/v1/lanes", &query)).await?;
            return out.show(&list, |list| table(items(list, "lanes"), &COLUMNS));
        }
        LanesCommand::Show { id } => client.get(&format!("/v1/lanes/{id}")).await?,
        LanesCommand::Pause { id } => client.post(&path(id, "pause"), &Value::Null).await?,
        LanesCommand::Resume { id } => client.post(&path(id, "resume"), &Value::Null).await?,
        LanesCommand::Breaker { id, force } => {
            let word = match force {
                BreakerArg::Open => "open",
                BreakerArg::Closed => "closed",
                BreakerArg::Auto => "auto",
            };
            client.post(&path(id, "breaker"), &json!({"force": word})).await?
        }
    };
    out.show(&lane, detail)
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
