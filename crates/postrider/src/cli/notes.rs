//! `notes`: what everybody on call should know, pinned on every page of the dashboard until a time.

use super::keys::seconds;
use super::messages::id_segment;
use super::prelude::*;

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider notes pin 'Their data centre moves until noon; do not force the breaker' --for 4h
  postrider notes pin 'Push to Apple is late; we are on it' --to '*' --for 2h
  postrider notes list
  postrider notes remove note_…")]
pub(super) enum NotesCommand {
    /// List the notes that are pinned now.
    List,
    /// Pin a note on every page of the dashboard.
    Pin {
        text: String,
        /// Who sees it besides the operators: a tenant, or '*' for everybody.
        #[arg(long, value_name = "TENANT")]
        to: Option<String>,
        /// It ends by itself after so long, e.g. `30m`, `4h`; a day if absent.
        #[arg(long = "for", value_name = "TIME", value_parser = seconds)]
        for_s: Option<u64>,
    },
    /// Take a note away.
    Remove { id: String },
}

pub(super) async fn run(command: NotesCommand, session: ServerSession) -> CliResult {
    match command {
        NotesCommand::List => session.get("/v1/notes", |found| list(items(found, "notes"))).await,
        NotesCommand::Pin { text, to, for_s } => {
            let mut body = json!({"text": text});
            if let Some(to) = to {
                body["to"] = to.into();
            }
            if let Some(for_s) = for_s {
                body["for_s"] = for_s.into();
            }
            session.post("/v1/notes", &body, |note| list(std::slice::from_ref(note))).await
        }
        NotesCommand::Remove { id } => {
            let path = format!("/v1/notes/{}", id_segment(&id)?);
            session.delete(&path, "removed", &id).await
        }
    }
}

fn list(notes: &[Value]) -> String {
    if notes.is_empty() {
        return "no note is pinned".to_owned();
    }
    let columns =
        [("NOTE", "/id"), ("UNTIL", "/until"), ("BY", "/by"), ("TO", "/to"), ("TEXT", "/text")];
    table(notes, &columns)
}
