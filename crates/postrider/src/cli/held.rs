//! `deliveries release`: lets held deliveries go on.

use super::prelude::*;
use super::selection::{DeliveryChoiceArgs, result, selection};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  postrider deliveries release --all --tenant '*'          everything, of all tenants
  postrider deliveries release --all --rate 50
  postrider deliveries release --until 2026-11-15T06:00:00Z
  postrider deliveries release dlv_… dlv_…

A restored backup holds what was pending in it, because it may have been sent since. Released deliveries are
sent, also if they were sent before. `postrider messages cancel` gives up those that should not be.")]
pub(super) struct ReleaseArgs {
    /// dlv_…; without ids, a filter or --all selects them
    ids: Vec<String>,
    /// Everything that is held.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    choice: DeliveryChoiceArgs,
    /// At most this many per second; all at once if absent.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
}

pub(super) async fn release(args: ReleaseArgs, session: ServerSession) -> CliResult {
    let ReleaseArgs { ids, all, choice, rate } = args;
    let mut body = selection("held deliveries", &ids, choice.fields(), all)?;
    body.extend(rate.map(|rate| ("rate_per_s".to_owned(), json!(rate))));
    let text = |done: &Value| result(&ids, &done["released"], "released", "are not held");
    session.post("/v1/deliveries/release", &Value::Object(body), text).await
}
