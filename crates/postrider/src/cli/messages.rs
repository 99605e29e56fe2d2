//! `messages`, `deliveries` and `explain`.

use super::held;
use super::jobs::{self, JobArgs};
use super::prelude::*;
use super::selection::{DeliveryChoiceArgs, LaneChoiceArgs, selection};

#[derive(Debug, Subcommand)]
pub(super) enum MessagesCommand {
    /// List the latest deliveries with their messages.
    List {
        /// The number of deliveries, at most 1000.
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show a message with its counts per state.
    Show { id: String },
    /// Cancel what is not yet sent.
    Cancel { id: String },
    /// Print the stored content (needs a key with the scope `content`; audited).
    Content { id: String },
}

#[derive(Debug, Subcommand)]
pub(super) enum DeliveriesCommand {
    /// List deliveries, newest first.
    List(DeliveryFilterArgs),
    /// Show one delivery with all its attempts.
    Show { id: String },
    /// Cancel what is not yet sent of those that match, in the background.
    Cancel {
        /// queued, sending, retrying or parked
        #[arg(long)]
        state: Option<String>,
        #[command(flatten)]
        choice: DeliveryChoiceArgs,
        #[command(flatten)]
        lane: LaneChoiceArgs,
        /// Those of the message that was accepted under this key.
        #[arg(long)]
        idempotency_key: Option<String>,
        /// All pending deliveries.
        #[arg(long)]
        all: bool,
        /// Why: for the audit log.
        #[arg(long)]
        reason: Option<String>,
        /// At most this many per second, 100 if absent.
        #[arg(long, value_name = "PER_SECOND")]
        rate: Option<f64>,
        #[command(flatten)]
        job: JobArgs,
    },
    /// Download those that match, without endpoints and payloads.
    Export {
        /// queued, sending, retrying, parked, sent, gone, expired, failed, cancelled, …
        #[arg(long)]
        state: Option<String>,
        #[command(flatten)]
        choice: DeliveryChoiceArgs,
        #[command(flatten)]
        lane: LaneChoiceArgs,
        /// Why they are dead letters, such as retries_exhausted
        #[arg(long)]
        reason: Option<String>,
        /// Those of the message that was accepted under this key.
        #[arg(long)]
        idempotency_key: Option<String>,
        /// ndjson or csv
        #[arg(long, default_value = "ndjson")]
        format: String,
        /// A file [default: standard output].
        #[arg(long, value_name = "FILE")]
        out: Option<std::path::PathBuf>,
    },
    /// Let deliveries go on that are held since the store was restored from a backup.
    Release(held::ReleaseArgs),
}

#[derive(Debug, Args)]
pub(super) struct DeliveryFilterArgs {
    /// queued, sending, retrying, parked, sent, gone, expired, failed, cancelled, …
    #[arg(long)]
    state: Option<String>,
    #[command(flatten)]
    choice: DeliveryChoiceArgs,
    #[command(flatten)]
    lane: LaneChoiceArgs,
    /// Why they are dead letters, such as retries_exhausted
    #[arg(long)]
    reason: Option<String>,
    /// Those of the message that was accepted under this key.
    #[arg(long)]
    idempotency_key: Option<String>,
    /// Only those that are held until they are released.
    #[arg(long)]
    held: bool,
    /// The `next` of the page before.
    #[arg(long)]
    cursor: Option<String>,
    #[arg(long, default_value_t = 50)]
    limit: usize,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  postrider explain dlv_06f1w8v0m5qk3t9xz2c4b7d8ea")]
pub(super) struct ExplainArgs {
    /// dlv_…
    id: String,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn messages(command: MessagesCommand, session: ServerSession) -> CliResult {
    match command {
        MessagesCommand::List { limit } => {
            let path = with_query("/v1/deliveries", &[("limit", Some(limit.to_string()))]);
            let columns = [
                ("MESSAGE", "/message"),
                ("DELIVERY", "/id"),
                ("STATE", "/state"),
                ("CLASS", "/class"),
                ("CREATED", "/created_at"),
            ];
            session.get(&path, |page| table(items(page, "items"), &columns)).await
        }
        MessagesCommand::Show { id } => {
            session.get(&format!("/v1/messages/{}", id_segment(&id)?), message).await
        }
        MessagesCommand::Cancel { id } => {
            let path = format!("/v1/messages/{}/cancel", id_segment(&id)?);
            let text = |done: &Value| {
                format!(
                    "{} cancelled, {} being sent, {} already final",
                    done["cancelled"], done["in_flight"], done["already_final"]
                )
            };
            session.post(&path, &Value::Null, text).await
        }
        MessagesCommand::Content { id } => {
            let path = format!("/v1/messages/{}/content", id_segment(&id)?);
            let bytes = session.client.bytes(http::Method::GET, &path, None).await?;
            output::print(&String::from_utf8_lossy(&bytes))
        }
    }
}

pub(super) async fn deliveries(command: DeliveriesCommand, session: ServerSession) -> CliResult {
    match command {
        DeliveriesCommand::List(filter) => {
            let mut query = filter.choice.fields().to_vec();
            query.extend(filter.lane.fields());
            query.extend([
                ("state", filter.state),
                ("reason", filter.reason),
                ("idempotency_key", filter.idempotency_key),
                ("held", filter.held.then(|| "true".to_owned())),
                ("cursor", filter.cursor),
                ("limit", Some(filter.limit.to_string())),
            ]);
            session.get(&with_query("/v1/deliveries", &query), delivery_table).await
        }
        DeliveriesCommand::Cancel {
            state,
            choice,
            lane,
            idempotency_key,
            all,
            reason,
            rate,
            job,
        } => {
            let own = [("state", state), ("idempotency_key", idempotency_key)];
            let fields = choice.fields().into_iter().chain(lane.fields()).chain(own);
            let mut body = selection("deliveries", &[], fields, all)?;
            body.insert("kind".to_owned(), "cancel".into());
            body.extend(reason.map(|text| ("reason".to_owned(), text.into())));
            body.extend(rate.map(|rate| ("rate_per_s".to_owned(), json!(rate))));
            jobs::make(body.into(), &job, &session).await
        }
        DeliveriesCommand::Export { state, choice, lane, reason, idempotency_key, format, out } => {
            let own = [("state", state), ("reason", reason), ("idempotency_key", idempotency_key)];
            let fields = choice.fields().into_iter().chain(lane.fields()).chain(own);
            let fields = fields.filter(|(_, value)| value.is_some());
            let filter: Map<String, Value> =
                fields.map(|(name, value)| (name.to_owned(), json!(value))).collect();
            let body = json!({"kind": "export", "filter": filter, "format": format});
            jobs::export(&body, &session, out).await
        }
        DeliveriesCommand::Release(args) => held::release(args, session).await,
        DeliveriesCommand::Show { id } => {
            let path = format!("/v1/deliveries/{}", id_segment(&id)?);
            let text = |delivery: &Value| format!("{}\n{}", facts(delivery), attempts(delivery));
            session.get(&path, text).await
        }
    }
}

pub(super) async fn explain(args: ExplainArgs) -> CliResult {
    let path = format!("/v1/deliveries/{}/explain", id_segment(&args.id)?);
    let text = |why: &Value| {
        let mut text = format!("{}\n\n{}", cell(why, "/summary"), facts(&why["delivery"]));
        if why["waits_for"].is_string() {
            text += &format!("\nIt waits for {}.\n", cell(why, "/waits_for"));
        }
        let gates = [("GATE", "/gate"), ("VERDICT", "/verdict"), ("", "/detail")];
        text +=
            &format!("\n{}\n{}", table(items(why, "gates"), &gates), attempts(&why["delivery"]));
        for step in items(why, "can_do") {
            text += &format!("\nYou can: {}", step.as_str().unwrap_or_default());
        }
        text
    };
    args.connection.session()?.get(&path, text).await
}

pub(super) fn delivery_table(page: &Value) -> String {
    let columns = [
        ("DELIVERY", "/id"),
        ("STATE", "/state"),
        ("REASON", "/reason"),
        ("CHANNEL", "/channel"),
        ("CLASS", "/class"),
        ("ATTEMPTS", "/attempts"),
        ("CHANGED", "/changed_at"),
        ("DUE", "/due_at"),
    ];
    let mut text = table(items(page, "items"), &columns);
    if let Some(next) = page["next"].as_str() {
        text += &format!("\nmore: --cursor {next}");
    }
    text
}

/// Checks an id before it becomes part of a path.
pub(super) fn id_segment(id: &str) -> Result<&str, CliError> {
    if !id.is_empty() && id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Ok(id);
    }
    Err(CliError::Usage(format!("{id:?} is not an id; ids look like msg_…, dlv_…, adr_… or key_…")))
}

fn message(message: &Value) -> String {
    let states = message["states"].as_object();
    let states: Vec<String> =
        states.into_iter().flatten().map(|(state, n)| format!("{n} {state}")).collect();
    format!(
        "{}  class {}, tenant {}\naccepted {}, expires {}\n{}\n\n{}",
        cell(message, "/id"),
        cell(message, "/class"),
        cell(message, "/tenant"),
        cell(message, "/created_at"),
        cell(message, "/expires_at"),
        states.join(", "),
        table(items(message, "deliveries"), &[("DELIVERY", "/id"), ("STATE", "/state")])
    )
}

fn facts(delivery: &Value) -> String {
    let mut text = String::new();
    for (name, field) in [
        ("delivery", "/id"),
        ("message", "/message"),
        ("state", "/state"),
        ("reason", "/reason"),
        ("channel", "/channel"),
        ("provider", "/provider"),
        ("class", "/class"),
        ("recipient", "/recipient"),
        ("attempts", "/attempts"),
        ("accepted", "/created_at"),
        ("changed", "/changed_at"),
        ("due", "/due_at"),
        ("expires", "/expires_at"),
    ] {
        if delivery.pointer(field).is_some_and(|v| !v.is_null()) {
            text += &format!("{name:<10} {}\n", cell(delivery, field));
        }
    }
    text
}

fn attempts(delivery: &Value) -> String {
    let columns = [
        ("#", "/number"),
        ("AT", "/at"),
        ("STATUS", "/status"),
        ("CODE", "/code"),
        ("OUTCOME", "/outcome"),
        ("DECISION", "/decision"),
        ("MS", "/latency_ms"),
        ("RETRY-AFTER", "/retry_after"),
        ("NEXT", "/next_at"),
    ];
    let log = match items(delivery, "log") {
        [] => "not attempted yet".to_owned(),
        log => table(log, &columns),
    };
    let columns = [("RECEIPT", "/event"), ("AT", "/at"), ("RECORDED", "/recorded_at")];
    match items(delivery, "receipts") {
        [] => log,
        receipts => format!("{log}\n{}", table(receipts, &columns)),
    }
}
