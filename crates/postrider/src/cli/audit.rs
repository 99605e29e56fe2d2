//! `audit`: lists, exports and verifies the audit log.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;

use http::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::prelude::*;
use crate::audit::{ChainCheck, ChainLink, ChainedEntry};

/// Entries per call of an export.
const PAGE: usize = 1_000;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider audit list --action key.create
  postrider audit export --out audit.ndjson
  postrider audit verify                             checks the hash chain of the whole log
  postrider audit verify --expect 4711:5f3c…         also that it still has what an earlier check printed
  postrider audit verify audit.ndjson                checks an exported log, without a server")]
pub(super) enum AuditCommand {
    /// List entries, newest first.
    List {
        #[command(flatten)]
        filter: AuditFilterArgs,
        #[arg(long)]
        cursor: Option<String>,
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Print all entries as lines of JSON with their hashes, oldest first.
    Export {
        #[command(flatten)]
        filter: AuditFilterArgs,
        /// Write to this file instead of standard output.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Check that no entry was changed, removed or added in between. Prints the last entry and its hash: keep that
    /// elsewhere, and give it with --expect the next time.
    Verify {
        /// An exported log; without it, the log of the server.
        file: Option<PathBuf>,
        /// An entry that the log must still have, as an earlier check printed it. Can be given several times.
        #[arg(long, value_name = "NUMBER:HASH")]
        expect: Vec<ChainLink>,
    },
}

#[derive(Debug, Args)]
pub(super) struct AuditFilterArgs {
    /// Such as key.create
    #[arg(long)]
    action: Option<String>,
    /// The id of the acting key.
    #[arg(long = "by", value_name = "KEY")]
    by: Option<String>,
    /// Not older than this, e.g. 2026-11-15T06:00:00Z
    #[arg(long)]
    since: Option<String>,
    /// Older than this.
    #[arg(long)]
    until: Option<String>,
}

impl AuditFilterArgs {
    fn fields(&self) -> Vec<(&'static str, Option<String>)> {
        vec![
            ("action", self.action.clone()),
            ("key", self.by.clone()),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
        ]
    }
}

/// A page whose entries keep their exact text.
#[derive(Deserialize)]
struct RawAuditPage {
    items: Vec<Box<RawValue>>,
    next: Option<String>,
}

pub(super) async fn run(command: AuditCommand, session: ServerSession) -> CliResult {
    match command {
        AuditCommand::List { filter, cursor, limit } => {
            let mut query = filter.fields();
            query.extend([("cursor", cursor), ("limit", Some(limit.to_string()))]);
            session.get(&with_query("/v1/audit", &query), list).await
        }
        AuditCommand::Export { filter, out } => {
            let mut sink: Box<dyn std::io::Write> = match out {
                Some(path) => Box::new(std::io::BufWriter::new(std::fs::File::create(path)?)),
                None => Box::new(std::io::stdout()),
            };
            each(&session.client, &filter.fields(), |line| Ok(writeln!(sink, "{line}")?)).await?;
            Ok(sink.flush()?)
        }
        AuditCommand::Verify { file, expect } => {
            let mut check = ChainCheck::expecting(expect);
            match file {
                Some(file) => {
                    let file = std::io::BufReader::new(std::fs::File::open(file)?);
                    for line in file.lines() {
                        add(&mut check, &line?)?;
                    }
                }
                None => each(&session.client, &[], |line| add(&mut check, line)).await?,
            }
            let entries = check.entries;
            let last = check.finish().map_err(broken)?;
            let text = match &last {
                Some(last) => format!("{entries} entries, none changed; the last one is {last}"),
                None => "the log is empty".to_owned(),
            };
            let last = last.map(|last| last.to_string());
            session.out.show(&json!({"entries": entries, "last": last}), |_| text)
        }
    }
}

fn list(page: &Value) -> String {
    let columns = [
        ("NUMBER", "/entry/number"),
        ("AT", "/entry/at"),
        ("KEY", "/entry/key"),
        ("FROM", "/entry/address"),
        ("TENANT", "/entry/tenant"),
        ("ACTION", "/entry/action"),
        ("SUBJECT", "/entry/subject"),
        ("COUNT", "/entry/count"),
        ("OUTCOME", "/entry/outcome"),
    ];
    let mut text = table(items(page, "items"), &columns);
    if let Some(next) = page["next"].as_str() {
        text += &format!("more: --cursor {next}");
    }
    text
}

fn add(check: &mut ChainCheck, line: &str) -> CliResult {
    let entry = ChainedEntry::parse(line)
        .map_err(|error| broken(format!("a line is not an entry: {error}")))?;
    check.add(&entry).map_err(broken)
}

fn broken(what: String) -> CliError {
    CliError::Other(anyhow::anyhow!("the audit log is not whole: {what}"))
}

/// Every entry of the server's log, oldest first.
async fn each(
    client: &Client,
    filter: &[(&'static str, Option<String>)],
    mut take: impl FnMut(&str) -> CliResult,
) -> CliResult {
    let mut cursor = None;
    loop {
        let mut query = filter.to_vec();
        query.extend([
            ("oldest_first", Some("true".to_owned())),
            ("limit", Some(PAGE.to_string())),
            ("cursor", cursor),
        ]);
        let bytes = client.bytes(Method::GET, &with_query("/v1/audit", &query), None).await?;
        let page: RawAuditPage = serde_json::from_slice(&bytes)
            .map_err(|error| ClientError::Unexpected(error.to_string()))?;
        page.items.iter().try_for_each(|item| take(item.get()))?;
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
}
