//! `fsck`: checks a data folder that no server uses, and repairs it.

use std::fmt::Display;

use anyhow::Context as _;
use postrider_store::fsck::{self, RepairReport};

use super::data_folder::DataFolderArgs;
use super::prelude::*;

/// Ids that are listed as text; `--json` lists all.
const SHOWN: usize = 50;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  postrider fsck --data /var/lib/postrider
  postrider fsck --data /var/lib/postrider --repair

Stop the server first. Without --repair, nothing is changed. A repair keeps the old files in the folder
damaged-TIME of the data folder, saves what can be saved and lists what cannot.
Exit codes: 0 the folder is good or repaired, 1 it is damaged, 2 wrong usage.")]
pub(super) struct FsckArgs {
    #[command(flatten)]
    data: DataFolderArgs,
    /// Repair what is damaged.
    #[arg(long)]
    repair: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: FsckArgs) -> CliResult {
    let data = args.data.folder()?;
    let work = move || if args.repair { repair(&data, args.json) } else { check(&data, args.json) };
    tokio::task::spawn_blocking(work).await.context("the check did not finish")?
}

fn check(data: &std::path::Path, json: bool) -> CliResult {
    let found = fsck::check(data).context("the data folder cannot be checked")?;
    let good = found.is_empty();
    output::print(&match (json, good) {
        (true, _) => json!({"ok": good, "findings": found}).to_string(),
        (false, true) => "the data folder is good".to_owned(),
        (false, false) => format!(
            "{}\nthe data folder is damaged; `postrider fsck --repair` saves what can be saved",
            found.join("\n")
        ),
    })?;
    if good { Ok(()) } else { Err(CliError::Silent) }
}

fn repair(data: &std::path::Path, json: bool) -> CliResult {
    let report = fsck::repair(data).context("the data folder cannot be repaired")?;
    let Some(report) = report else {
        return output::print(if json {
            r#"{"ok":true,"repaired":false}"#
        } else {
            "the data folder is good; nothing was changed"
        });
    };
    output::print(&if json { as_json(&report).to_string() } else { as_text(&report) })
}

fn as_json(report: &RepairReport) -> Value {
    let journal = report.journal.as_ref().map(|journal| {
        json!({
            "frames": journal.frames, "corrected": journal.corrected, "lost": journal.lost,
            "stale_pages": journal.stale_pages,
        })
    });
    let lost = report.lost.iter();
    json!({
        "ok": true,
        "repaired": true,
        "complete": report.is_complete(),
        "kept": report.kept,
        "journal": journal,
        "rebuilt": report.rebuilt,
        "saved": report.saved.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "unreadable": report.unreadable,
        "lost": lost.map(|(id, n)| json!({"message": id.to_string(), "deliveries": n})).collect::<Vec<_>>(),
        "deleted": names(&report.orphans),
        "in_doubt": names(&report.in_doubt),
    })
}

fn names(ids: &[impl Display]) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

fn as_text(report: &RepairReport) -> String {
    let mut text = format!("the old files are in {}\n", report.kept.display());
    if let Some(journal) = &report.journal {
        text += &format!(
            "the journal had {} frames: {} were corrected, {} are lost\n",
            journal.frames, journal.corrected, journal.lost
        );
    }
    if report.rebuilt {
        text += "the database was written anew\n";
        let saved: Vec<_> = report.saved.iter().map(|(table, n)| format!("{table} {n}")).collect();
        text += &format!("rows saved: {}\n", saved.join(", "));
    }
    text += &listed("could not be read", &report.unreadable);
    let lost: Vec<_> =
        report.lost.iter().map(|(id, n)| format!("{id}: {n} of its deliveries")).collect();
    text += &listed("messages with lost deliveries; send them again", &lost);
    text += &listed("deliveries deleted because their message is lost", &names(&report.orphans));
    text += &listed(
        "deliveries that may have been sent; their class decides",
        &names(&report.in_doubt),
    );
    let complete = if report.is_complete() { "nothing is lost" } else { "the rest is lost" };
    format!("{text}repaired; {complete}")
}

fn listed(heading: &str, lines: &[String]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let mut text = format!("{heading} ({}):\n", lines.len());
    for line in lines.iter().take(SHOWN) {
        text += &format!("  {line}\n");
    }
    if lines.len() > SHOWN {
        text += "  … (--json lists all)\n";
    }
    text
}
