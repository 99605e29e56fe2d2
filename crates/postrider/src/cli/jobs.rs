//! `jobs`: replay, discard, cancel and export by filter, in the background.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::messages::{delivery_table, id_segment};
use super::prelude::*;

/// How often a command that waits looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider dead replay --reason ttl --dry-run
  postrider dead replay --reason ttl --rate 50 --wait
  postrider deliveries export --channel webhook --since 2026-11-01T00:00:00Z --format csv --out sent.csv
  postrider jobs list --state running
  postrider jobs rate job_… 500")]
pub(super) enum JobsCommand {
    /// List jobs, newest first.
    List {
        /// queued, running, paused, done, failed or aborted
        #[arg(long)]
        state: Option<String>,
        /// replay, discard, cancel or export
        #[arg(long)]
        kind: Option<String>,
        #[arg(long)]
        cursor: Option<String>,
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one job.
    Show { id: String },
    /// Stop a job for now.
    Pause { id: String },
    /// Let a paused job go on.
    Resume { id: String },
    /// End a job. What it did stays done.
    Abort { id: String },
    /// Change how many per second it does.
    Rate { id: String, per_second: f64 },
    /// Wait for the end of a job.
    Wait { id: String },
    /// Download the result of an export.
    Result {
        id: String,
        /// A file [default: standard output].
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

/// How a command makes a job.
#[derive(Debug, Clone, Args)]
pub(super) struct JobArgs {
    /// Only say how many there are, and show some
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Do it in the background: make a job, and print it
    #[arg(long)]
    pub(super) job: bool,
    /// Make a job, and wait for its end
    #[arg(long)]
    pub(super) wait: bool,
}

impl JobArgs {
    pub(super) fn is_given(&self) -> bool {
        self.dry_run || self.job || self.wait
    }
}

pub(super) async fn run(command: JobsCommand, session: ServerSession) -> CliResult {
    let act = async |id: &str, verb: &str| {
        let path = format!("/v1/jobs/{}/{verb}", id_segment(id)?);
        session.post(&path, &Value::Null, job_text).await
    };
    match command {
        JobsCommand::List { state, kind, cursor, limit } => {
            let limit = Some(limit.to_string());
            let query = [("state", state), ("kind", kind), ("cursor", cursor), ("limit", limit)];
            session.get(&with_query("/v1/jobs", &query), job_table).await
        }
        JobsCommand::Show { id } => {
            session.get(&format!("/v1/jobs/{}", id_segment(&id)?), job_text).await
        }
        JobsCommand::Pause { id } => act(&id, "pause").await,
        JobsCommand::Resume { id } => act(&id, "resume").await,
        JobsCommand::Abort { id } => act(&id, "abort").await,
        JobsCommand::Rate { id, per_second } => {
            let path = format!("/v1/jobs/{}", id_segment(&id)?);
            let body = json!({"rate_per_s": per_second});
            let job = session.client.json(http::Method::PATCH, &path, Some(&body)).await?;
            output::print(&job_text(&job))
        }
        JobsCommand::Wait { id } => {
            let job = wait_for(&session.client, &id).await?;
            finished(&job)
        }
        JobsCommand::Result { id, out } => download(&session.client, &id, out).await,
    }
}

/// Makes a job of a request, as `args` say.
pub(super) async fn make(mut request: Value, args: &JobArgs, session: &ServerSession) -> CliResult {
    request["dry_run"] = args.dry_run.into();
    let answer = session.client.post("/v1/jobs", &request).await?;
    if args.dry_run {
        return output::print(&dry_run_text(&answer));
    }
    if !args.wait {
        return output::print(&job_text(&answer));
    }
    let job = wait_for(&session.client, &cell(&answer, "/id")).await?;
    finished(&job)
}

/// Makes an export, waits for it, and downloads it.
pub(super) async fn export(
    request: &Value,
    session: &ServerSession,
    out: Option<PathBuf>,
) -> CliResult {
    let job = session.client.post("/v1/jobs", request).await?;
    let job = wait_for(&session.client, &cell(&job, "/id")).await?;
    if job["state"] != "done" {
        return finished(&job);
    }
    download(&session.client, &cell(&job, "/id"), out).await
}

async fn wait_for(client: &Client, id: &str) -> Result<Value, CliError> {
    let path = format!("/v1/jobs/{}", id_segment(id)?);
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec} {eta} {msg}") {
        bar.set_style(style);
    }
    loop {
        let job = client.get(&path).await?;
        bar.set_length(job["total"].as_u64().unwrap_or(0));
        bar.set_position(job["done"].as_u64().unwrap_or(0));
        bar.set_message(cell(&job, "/state"));
        if matches!(job["state"].as_str(), Some("done" | "failed" | "aborted")) {
            bar.finish_and_clear();
            return Ok(job);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Prints a job that ended. An error if it did not do what it was for.
fn finished(job: &Value) -> CliResult {
    output::print(&job_text(job))?;
    if job["state"] == "done" { Ok(()) } else { Err(CliError::Silent) }
}

async fn download(client: &Client, id: &str, out: Option<PathBuf>) -> CliResult {
    use http_body_util::BodyExt as _;
    let path = format!("/v1/jobs/{}/result", id_segment(id)?);
    let mut body = client.stream(&path).await?;
    let mut sink: Box<dyn std::io::Write> = match &out {
        Some(path) => Box::new(std::io::BufWriter::new(std::fs::File::create(path)?)),
        None => Box::new(std::io::stdout().lock()),
    };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| ClientError::Broken(error.to_string()))?;
        if let Some(data) = frame.data_ref() {
            sink.write_all(data)?;
        }
    }
    sink.flush()?;
    Ok(())
}

fn job_table(page: &Value) -> String {
    let columns = [
        ("JOB", "/id"),
        ("KIND", "/kind"),
        ("STATE", "/state"),
        ("DONE", "/done"),
        ("TOTAL", "/total"),
        ("PER SECOND", "/rate_per_s"),
        ("ETA", "/eta_s"),
        ("CREATED", "/created_at"),
        ("BY", "/created_by"),
    ];
    let mut text = table(items(page, "items"), &columns);
    if let Some(next) = page["next"].as_str() {
        text += &format!("\nmore: --cursor {next}");
    }
    text
}

fn job_text(job: &Value) -> String {
    let mut text = String::new();
    for (name, field) in [
        ("job", "/id"),
        ("kind", "/kind"),
        ("state", "/state"),
        ("filter", "/filter"),
        ("reason", "/reason"),
        ("done", "/done"),
        ("failed", "/failed"),
        ("total", "/total"),
        ("per second", "/rate_per_s"),
        ("seconds left", "/eta_s"),
        ("created", "/created_at"),
        ("by", "/created_by"),
        ("started", "/started_at"),
        ("ended", "/ended_at"),
        ("error", "/error"),
        ("result", "/result_url"),
    ] {
        if job.pointer(field).is_some_and(|value| !value.is_null()) {
            text += &format!("{name:<13} {}\n", cell(job, field));
        }
    }
    text
}

fn dry_run_text(answer: &Value) -> String {
    let more = if answer["count_is_at_least"] == true { "at least " } else { "" };
    format!(
        "{more}{} deliveries, {} s at {} per second\n\n{}",
        cell(answer, "/count"),
        cell(answer, "/takes_s"),
        cell(answer, "/rate_per_s"),
        delivery_table(&json!({"items": answer["sample"]}))
    )
}
