//! `recipients`, `categories`, `suppressions`, `audience`: whom to reach, and whom not.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use hyper::Method;

use super::prelude::*;
use super::settings::detail;
use crate::client::{complete, whole};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider recipients put u-42 '{\"zone\":\"Europe/Berlin\",\"aliases\":[\"anon-7f3a\"]}'
  postrider recipients prefer u-42 '{\"categories\":{\"news\":{\"choice\":\"no\"}}}'
  postrider recipients would-send u-42 --category news
  postrider recipients import people.ndjson")]
pub(super) enum RecipientsCommand {
    /// List recipients, by id.
    List {
        #[arg(long)]
        cursor: Option<String>,
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Show one recipient, with preferences and addresses.
    Show {
        /// Its id, or an alias.
        id: String,
    },
    /// Create a recipient, or replace what is known of it. Preferences stay.
    Put {
        id: String,
        /// {"zone":…,"locale":…,"attributes":…,"quiet_hours":…,"aliases":…}
        recipient: String,
    },
    /// Change some of what is known; null removes.
    Patch {
        id: String,
        /// Only what changes.
        changes: String,
    },
    /// Change some preferences; null removes.
    Prefer {
        id: String,
        /// {"all":…,"channels":…,"categories":…,"snooze_until":…}
        changes: String,
    },
    /// Say for each address whether a message would be sent now, and if not, why.
    WouldSend {
        id: String,
        #[arg(long)]
        class: Option<String>,
        #[arg(long)]
        category: Option<String>,
    },
    /// Import recipients from NDJSON, one per line.
    Import {
        /// A file, or - for standard input.
        file: PathBuf,
    },
    /// Delete a recipient with preferences, aliases and addresses; cancels what is queued for them.
    Delete { id: String },
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  postrider categories set news '{\"purpose\":\"marketing\",\"titles\":{\"en\":\"News\"}}'")]
pub(super) enum CategoriesCommand {
    /// List the categories of the tenant.
    List,
    /// Define a category, or replace its definition.
    Set {
        name: String,
        /// {"purpose":…,"default":…,"mandatory":…,"titles":…}
        category: String,
    },
    /// Delete a category. What people said about it stays.
    Delete { name: String },
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider suppressions add adr_… --kind unsubscribe --category news
  postrider suppressions add '{\"channel\":\"email\",\"email\":\"a@example.com\"}' --kind complaint")]
pub(super) enum SuppressionsCommand {
    /// List suppressions, by the hash of the address.
    List {
        #[arg(long)]
        cursor: Option<String>,
        #[arg(long, default_value_t = 50)]
        limit: usize,
    },
    /// Suppress an address.
    Add {
        /// adr_…, an address hash, or an address as JSON
        address: String,
        /// undeliverable, complaint or unsubscribe
        #[arg(long)]
        kind: String,
        /// With unsubscribe: only this category.
        #[arg(long)]
        category: Option<String>,
    },
    /// Lift every suppression of an address.
    Delete {
        /// The hash of the address.
        hash: String,
    },
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  postrider audience set '{\"zone\":\"Europe/Berlin\",\"quiet_hours\":[{\"from\":\"22:00\",\"to\":\"07:00\"}]}'")]
pub(super) enum AudienceCommand {
    /// Show zone, quiet hours and default of the tenant.
    Show,
    /// Set them, all at once.
    Set {
        /// {"zone":…,"quiet_hours":…,"default":…}
        rules: String,
    },
}

const RECIPIENTS: [(&str, &str); 5] = [
    ("RECIPIENT", "/id"),
    ("ZONE", "/zone"),
    ("LOCALE", "/locale"),
    ("CREATED", "/created_at"),
    ("UPDATED", "/updated_at"),
];

pub(super) async fn recipients(command: RecipientsCommand, session: ServerSession) -> CliResult {
    const VERDICTS: [(&str, &str); 5] = [
        ("ADDRESS", "/address"),
        ("CHANNEL", "/channel"),
        ("VERDICT", "/verdict"),
        ("REASON", "/reason"),
        ("UNTIL", "/until"),
    ];
    let one = |id: &str| format!("/v1/recipients/{}", encoded(id));
    match command {
        RecipientsCommand::List { cursor, limit } => {
            let query = [("cursor", cursor), ("limit", Some(limit.to_string()))];
            let path = with_query("/v1/recipients", &query);
            session.get(&path, |page| table(items(page, "items"), &RECIPIENTS)).await
        }
        RecipientsCommand::Show { id } => session.get(&one(&id), detail).await,
        RecipientsCommand::Put { id, recipient } => {
            session.put(&one(&id), &json_of("the recipient", &recipient)?, detail).await
        }
        RecipientsCommand::Patch { id, changes } => {
            let body = json_of("the changes", &changes)?;
            let done = session.client.json(Method::PATCH, &one(&id), Some(&body)).await?;
            session.out.show(&done, detail)
        }
        RecipientsCommand::Prefer { id, changes } => {
            let (path, body) = (one(&id) + "/preferences", json_of("the changes", &changes)?);
            let done = session.client.json(Method::PATCH, &path, Some(&body)).await?;
            session.out.show(&done, detail)
        }
        RecipientsCommand::WouldSend { id, class, category } => {
            let query = [("class", class), ("category", category)];
            let path = with_query(&(one(&id) + "/would-send"), &query);
            session.get(&path, |answer| table(items(answer, "addresses"), &VERDICTS)).await
        }
        RecipientsCommand::Import { file } => {
            let source = if file == Path::new("-") { Path::new("/dev/stdin") } else { &file };
            let bytes = std::fs::read(source)
                .map_err(|error| CliError::Usage(format!("{}: {error}", file.display())))?;
            let (path, kind) = ("/v1/recipients/import", "application/x-ndjson");
            let answer = session.client.send(Method::POST, path, kind, whole(Bytes::from(bytes)));
            let done: Value = serde_json::from_slice(&complete(answer.await?).await?)
                .map_err(|error| CliError::Usage(format!("the answer is not JSON: {error}")))?;
            session.out.show(&done, detail)?;
            let is_whole = done["refused"] == 0 && done["stopped"].is_null();
            if is_whole { Ok(()) } else { Err(CliError::Silent) }
        }
        RecipientsCommand::Delete { id } => session.delete(&one(&id), "deleted", &id).await,
    }
}

pub(super) async fn categories(command: CategoriesCommand, session: ServerSession) -> CliResult {
    const COLUMNS: [(&str, &str); 4] = [
        ("CATEGORY", "/name"),
        ("PURPOSE", "/purpose"),
        ("DEFAULT", "/default"),
        ("MANDATORY", "/mandatory"),
    ];
    let one = |name: &str| Ok::<_, CliError>(format!("/v1/categories/{}", path_segment(name)?));
    match command {
        CategoriesCommand::List => {
            session.get("/v1/categories", |list| table(items(list, "categories"), &COLUMNS)).await
        }
        CategoriesCommand::Set { name, category } => {
            session.put(&one(&name)?, &json_of("the category", &category)?, detail).await
        }
        CategoriesCommand::Delete { name } => session.delete(&one(&name)?, "deleted", &name).await,
    }
}

pub(super) async fn suppressions(
    command: SuppressionsCommand,
    session: ServerSession,
) -> CliResult {
    const COLUMNS: [(&str, &str); 5] = [
        ("ADDRESS HASH", "/hash"),
        ("UNDELIVERABLE", "/undeliverable/at"),
        ("COMPLAINT", "/complaint/at"),
        ("UNSUBSCRIBED", "/unsubscribed/at"),
        ("CATEGORIES", "/categories"),
    ];
    match command {
        SuppressionsCommand::List { cursor, limit } => {
            let query = [("cursor", cursor), ("limit", Some(limit.to_string()))];
            let path = with_query("/v1/suppressions", &query);
            session.get(&path, |page| table(items(page, "items"), &COLUMNS)).await
        }
        SuppressionsCommand::Add { address, kind, category } => {
            let address = match address.trim_start().starts_with('{') {
                true => json_of("the address", &address)?,
                false => Value::from(address),
            };
            let body = serde_json::json!({"address": address, "kind": kind, "category": category});
            session.post("/v1/suppressions", &body, detail).await
        }
        SuppressionsCommand::Delete { hash } => {
            let path = format!("/v1/suppressions/{}", path_segment(&hash)?);
            session.delete(&path, "deleted", &hash).await
        }
    }
}

pub(super) async fn audience(command: AudienceCommand, session: ServerSession) -> CliResult {
    match command {
        AudienceCommand::Show => session.get("/v1/audience", detail).await,
        AudienceCommand::Set { rules } => {
            session.put("/v1/audience", &json_of("the rules", &rules)?, detail).await
        }
    }
}

fn json_of(what: &str, text: &str) -> Result<Value, CliError> {
    serde_json::from_str(text).map_err(|e| CliError::Usage(format!("{what}: not JSON: {e}")))
}

/// An id as a part of a path: it may have any character.
fn encoded(id: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte);
    let one = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    id.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_one_part_of_a_path() {
        assert_eq!(encoded("u-42"), "u-42");
        assert_eq!(encoded("a/../b?c ü"), "a%2F%2E%2E%2Fb%3Fc%20%C3%BC");
    }
}
