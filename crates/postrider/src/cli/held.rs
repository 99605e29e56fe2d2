//! `deliveries release`: lets held deliveries go on.

use super::prelude::*;

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
    /// Only this channel, e.g. webhook
    #[arg(long)]
    channel: Option<String>,
    #[arg(long)]
    recipient: Option<String>,
    /// msg_…
    #[arg(long)]
    message: Option<String>,
    /// Not older than this, e.g. 2026-11-15T06:00:00Z
    #[arg(long)]
    since: Option<String>,
    /// Older than this.
    #[arg(long)]
    until: Option<String>,
    /// At most this many per second; all at once if absent.
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,
}

pub(super) async fn release(args: ReleaseArgs, session: ServerSession) -> CliResult {
    let fields = [
        ("channel", args.channel),
        ("recipient", args.recipient),
        ("message", args.message),
        ("since", args.since),
        ("until", args.until),
    ];
    let mut filter = Map::new();
    for (name, value) in fields {
        filter.extend(value.map(|value| (name.to_owned(), Value::from(value))));
    }
    let mut body = match (args.ids.is_empty(), filter.is_empty(), args.all) {
        (false, true, false) => json!({"ids": args.ids}),
        (true, false, false) | (true, true, true) => json!({"filter": filter}),
        (true, true, false) => {
            let text = "select held deliveries by ids, by a filter, or with --all";
            return Err(CliError::Usage(text.to_owned()));
        }
        _ => return Err(CliError::Usage("give only one of ids, a filter and --all".to_owned())),
    };
    if let Some(rate) = args.rate {
        body["rate_per_s"] = json!(rate);
    }
    let missing = |released: u64| (args.ids.len() as u64).saturating_sub(released);
    let text = |done: &Value| match missing(done["released"].as_u64().unwrap_or(0)) {
        0 => format!("{} released", done["released"]),
        n => format!("{} released, {n} are not held", done["released"]),
    };
    session.post("/v1/deliveries/release", &body, text).await
}
