//! `dead`: list, replay, discard and export dead letters.

use std::io::Write as _;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};

use super::jobs::{JobArgs, make};
use super::messages::delivery_table;
use super::prelude::*;
use super::selection::{LaneChoiceArgs, result, selection};

const PAGE: usize = 500;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider dead list --reason ttl
  postrider dead replay dlv_… dlv_…
  postrider dead replay --tag spring-sale --rate 50
  postrider dead replay --reason retries_exhausted --rate 50 --ttl 3600
  postrider dead replay --provider https://hooks.example.com --dry-run
  postrider dead replay --reason ttl --rate 50 --wait
  postrider dead discard --error 'payload too large'
  postrider dead export --out dead.ndjson")]
pub(super) enum DeadCommand {
    /// List dead letters, newest first.
    List {
        #[command(flatten)]
        filter: DeadFilterArgs,
        #[arg(long)]
        cursor: Option<String>,
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Put dead letters back into the queue.
    Replay {
        #[command(flatten)]
        selection: DeadSelectionArgs,
        /// At most this many per second; all at once if absent.
        #[arg(long, value_name = "PER_SECOND")]
        rate: Option<f64>,
        /// A new time to live in seconds; the message's own if absent.
        #[arg(long, value_name = "SECONDS")]
        ttl: Option<u32>,
        /// A new retry policy as JSON, e.g. '{"retries":2,"base_ms":500}'.
        #[arg(long, value_name = "JSON")]
        retry: Option<String>,
        #[command(flatten)]
        job: JobArgs,
    },
    /// Give up dead letters for good: body and address are erased, the history stays.
    Discard {
        #[command(flatten)]
        selection: DeadSelectionArgs,
        /// Why: for the audit log. Makes a job.
        #[arg(long)]
        reason_text: Option<String>,
        #[command(flatten)]
        job: JobArgs,
    },
    /// Write dead letters as NDJSON, without endpoints and payloads.
    Export {
        #[command(flatten)]
        filter: DeadFilterArgs,
        /// A file [default: standard output].
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Clone, Args)]
pub(super) struct DeadFilterArgs {
    /// permanent, retries_exhausted, ttl, poison, ambiguous or refused
    #[arg(long)]
    reason: Option<String>,
    /// Only this channel, e.g. webhook
    #[arg(long)]
    channel: Option<String>,
    #[command(flatten)]
    lane: LaneChoiceArgs,
    #[arg(long)]
    recipient: Option<String>,
    /// Those of the message that was accepted under this key.
    #[arg(long)]
    idempotency_key: Option<String>,
    /// One of the tags of the message.
    #[arg(long)]
    tag: Option<String>,
    /// Not older than this, e.g. 2026-11-15T06:00:00Z
    #[arg(long)]
    since: Option<String>,
    /// Older than this.
    #[arg(long)]
    until: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct DeadSelectionArgs {
    /// dlv_…; without ids, a filter or --all selects them
    ids: Vec<String>,
    /// All dead letters.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    filter: DeadFilterArgs,
}

impl DeadFilterArgs {
    fn fields(&self) -> Vec<(&'static str, Option<String>)> {
        let mut fields = self.lane.fields().to_vec();
        fields.extend([
            ("reason", self.reason.clone()),
            ("channel", self.channel.clone()),
            ("recipient", self.recipient.clone()),
            ("idempotency_key", self.idempotency_key.clone()),
            ("tag", self.tag.clone()),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
        ]);
        fields
    }

    fn path(&self, cursor: Option<String>, limit: usize) -> String {
        let mut query = self.fields();
        query.extend([("cursor", cursor), ("limit", Some(limit.to_string()))]);
        with_query("/v1/dead-letters", &query)
    }
}

impl DeadSelectionArgs {
    fn body(&self) -> Result<Map<String, Value>, CliError> {
        selection("dead letters", &self.ids, self.filter.fields(), self.all)
    }

    /// A request for a job of this kind.
    fn job(&self, kind: &str) -> Result<Map<String, Value>, CliError> {
        if !self.ids.is_empty() {
            let text = "a job takes a filter or --all; ids are done at once, without --dry-run, --job and --wait";
            return Err(CliError::Usage(text.to_owned()));
        }
        let mut body = self.body()?;
        body.insert("kind".to_owned(), kind.into());
        Ok(body)
    }

    fn result(&self, done: &Value, verb: &str) -> String {
        result(&self.ids, done, verb, "not found among the dead letters")
    }
}

pub(super) async fn run(command: DeadCommand, session: ServerSession) -> CliResult {
    match command {
        DeadCommand::List { filter, cursor, limit } => {
            session.get(&filter.path(cursor, limit), delivery_table).await
        }
        DeadCommand::Replay { selection, rate, ttl, retry, job } => {
            let mut body =
                if job.is_given() { selection.job("replay")? } else { selection.body()? };
            body.extend(rate.map(|rate| ("rate_per_s".to_owned(), json!(rate))));
            body.extend(ttl.map(|ttl| ("ttl_s".to_owned(), json!(ttl))));
            if let Some(text) = retry {
                let policy: Value = serde_json::from_str(&text)
                    .map_err(|e| CliError::Usage(format!("--retry is not JSON: {e}")))?;
                body.insert("retry".to_owned(), policy);
            }
            if job.is_given() {
                return make(body.into(), &job, &session).await;
            }
            let text = |done: &Value| selection.result(&done["replayed"], "replayed");
            let body = body.into();
            with_spinner("replaying", session.post("/v1/dead-letters/replay", &body, text)).await
        }
        DeadCommand::Discard { selection, reason_text, job } => {
            if job.is_given() || reason_text.is_some() {
                let mut body = selection.job("discard")?;
                body.extend(reason_text.map(|text| ("reason".to_owned(), text.into())));
                return make(body.into(), &job, &session).await;
            }
            let body = selection.body()?.into();
            let text = |done: &Value| selection.result(&done["discarded"], "discarded");
            with_spinner("discarding", session.post("/v1/dead-letters/discard", &body, text)).await
        }
        DeadCommand::Export { filter, out } => export(&session.client, &filter, out).await,
    }
}

async fn export(client: &Client, filter: &DeadFilterArgs, file: Option<PathBuf>) -> CliResult {
    let mut sink: Box<dyn std::io::Write> = match &file {
        Some(path) => Box::new(std::io::BufWriter::new(std::fs::File::create(path)?)),
        None => Box::new(std::io::stdout().lock()),
    };
    let bar = spinner("exported");
    let mut cursor = None;
    loop {
        let page = client.get(&filter.path(cursor, PAGE)).await?;
        for item in items(&page, "items") {
            writeln!(sink, "{item}")?;
            bar.inc(1);
        }
        cursor = page["next"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    sink.flush()?;
    bar.finish();
    Ok(())
}

fn spinner(what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {pos} {msg} ({per_sec})");
    let bar = ProgressBar::new_spinner().with_message(what);
    match style {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

async fn with_spinner<T>(what: &'static str, work: impl Future<Output = T>) -> T {
    let bar = ProgressBar::new_spinner().with_message(what);
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    let result = work.await;
    bar.finish_and_clear();
    result
}
