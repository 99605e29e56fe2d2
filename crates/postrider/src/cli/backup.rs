//! `backup` and `restore`: a copy of the store, and a data folder from such a copy.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use postrider_store::backup::{self, BackupManifest, RestoreReport};

use super::data_folder::{DataFolderArgs, byte_bar};
use super::prelude::*;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  postrider backup /backups/postrider --data /var/lib/postrider
  postrider backup \"/backups/$(date +%F)\" --data /var/lib/postrider

Works while a server uses the data folder, and while none does. Everything that was acknowledged before the
backup began is in it. Nobody waits for it, but the journal of a running server cannot be cut until the copy is
done. The folder of the backup is new, empty, or has an older backup, which is then replaced.
The backup has message contents, addresses and signing keys: keep it as safe as the data folder. It does not
have the configuration file.
Exit codes: 0 the backup is complete and checked, 1 it failed, 2 wrong usage.")]
pub(super) struct BackupArgs {
    /// The folder of the backup.
    #[arg(value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    data: DataFolderArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:
  postrider restore /backups/postrider --data /var/lib/postrider-new
  postrider serve --data /var/lib/postrider-new
  postrider deliveries release --all --tenant '*'

The data folder must be new or empty. What was pending when the backup was taken may have been sent since, so
it is held: nothing of it is sent until it is released. Everything else works at once.
DIR is a folder that `postrider backup` made, or one with a file postrider.db that another program restored
(Litestream, a snapshot of the disk).
Exit codes: 0 restored, 1 it failed and the data folder is as before, 2 wrong usage.")]
pub(super) struct RestoreArgs {
    /// The folder of the backup.
    #[arg(value_name = "DIR")]
    from: PathBuf,
    #[command(flatten)]
    data: DataFolderArgs,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn backup(args: BackupArgs) -> CliResult {
    let (data, to, bar) = (args.data.folder()?, args.to.clone(), byte_bar("copying"));
    let shown = bar.clone();
    let copy = move || {
        backup::backup(&data, &to, |progress| {
            shown.set_length(progress.bytes_total);
            shown.set_position(progress.bytes);
        })
    };
    let done = tokio::task::spawn_blocking(copy).await.context("the backup did not finish")?;
    bar.finish_and_clear();
    let manifest = done.context("the backup failed")?;
    output::print(&match args.json {
        true => json!({
            "folder": args.to, "taken_at": manifest.taken_at.to_string(), "layout": manifest.layout,
            "messages": manifest.messages, "pending": manifest.pending, "bytes": manifest.bytes,
            "sha256": manifest.sha256,
        })
        .to_string(),
        false => backup_text(&args.to, &manifest),
    })
}

fn backup_text(to: &Path, manifest: &BackupManifest) -> String {
    format!(
        "backed up to {}: {} messages, {} pending deliveries, {} bytes\n\
         everything that was acknowledged before {} is in it",
        to.display(),
        manifest.messages,
        manifest.pending,
        manifest.bytes,
        manifest.taken_at
    )
}

pub(super) async fn restore(args: RestoreArgs) -> CliResult {
    let (data, bar) = (args.data.folder()?, byte_bar("copying"));
    let shown = bar.clone();
    let done = backup::restore(&args.from, &data, |progress| {
        shown.set_length(progress.bytes_total);
        shown.set_position(progress.bytes);
    });
    let done = done.await;
    bar.finish_and_clear();
    let report = done.context("the backup cannot be restored")?;
    let RestoreReport { taken_at, messages, held } = report;
    let taken = taken_at.map(|at| at.to_string());
    output::print(&match args.json {
        true => json!({
            "data": data, "taken_at": taken, "messages": messages, "held": held,
        })
        .to_string(),
        false => {
            let taken = taken.map_or_else(String::new, |at| format!(", taken at {at}"));
            let mut text = format!("restored to {}: {messages} messages{taken}", data.display());
            if held > 0 {
                text += &format!(
                    "\n{held} deliveries were pending and are held, because they may have been sent since;\n\
                     start the server, then: postrider deliveries release --all --tenant '*'"
                );
            }
            text
        }
    })
}
