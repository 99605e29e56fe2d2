//! `lanes`: how they stand, and what an operator can do about them.

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
    /// Lanes with something pending, the deepest first, and paused ones.
    List {
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// One lane: every gate, what it waits for and what can be done.
    Show {
        /// The lane's number.
        id: u32,
    },
    /// Send nothing more of this lane until it is resumed, also across restarts.
    Pause {
        /// The lane's number.
        id: u32,
    },
    /// Send a paused lane's work again.
    Resume {
        /// The lane's number.
        id: u32,
    },
    /// BreakerArg the breaker of the lane's provider, for all its lanes (admin key).
    Breaker {
        /// The lane's number.
        id: u32,
        force: BreakerArg,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum BreakerArg {
    /// Nothing more to this provider.
    Open,
    /// Send, whatever is counted.
    Closed,
    /// Judge by what is counted.
    Auto,
}

pub(super) async fn run(args: LanesArgs) -> CliResult {
    let (client, out) = (args.connection.client()?, args.connection.output());
    let act = |id: u32, what: &str| format!("/v1/lanes/{id}/{what}");
    let lane = match args.what {
        LanesCommand::List { limit } => {
            let path = with_query("/v1/lanes", &[("limit", Some(limit.to_string()))]);
            let list = client.get(&path).await?;
            return out.show(&list, |list| table(items(list, "lanes"), &COLUMNS));
        }
        LanesCommand::Show { id } => client.get(&format!("/v1/lanes/{id}")).await?,
        LanesCommand::Pause { id } => client.post(&act(id, "pause"), &Value::Null).await?,
        LanesCommand::Resume { id } => client.post(&act(id, "resume"), &Value::Null).await?,
        LanesCommand::Breaker { id, force } => {
            let word = match force {
                BreakerArg::Open => "open",
                BreakerArg::Closed => "closed",
                BreakerArg::Auto => "auto",
            };
            client.post(&act(id, "breaker"), &json!({"force": word})).await?
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
