//! Many recipients at once: one per line, written in groups. Lines that are refused are reported; all others are
//! durable when the answer comes.

use std::collections::VecDeque;
use std::time::Duration;

use axum::extract::Request;
use futures_util::{FutureExt as _, StreamExt as _};
use postrider_core::model::json_fields;
use postrider_core::model::recipient::RecipientProfile;
use postrider_core::ports::store::{EntryKey, EntryKind, EntryResult, EntryVersion, EntryWrite};

use super::bodies::{PreferencesBody, RecipientRequest, check_id};
use super::profiles::{check_room, read, text};
use crate::api::auth::rejected;
use crate::api::batch::{BatchLine, Splitter, TYPES};
use crate::api::extract::require_type;
use crate::api::prelude::*;
use crate::keys::KeyEnd;

/// Recipients that are written at once.
const AT_ONCE: usize = 500;
/// Refused lines that are shown.
const REFUSED_MAX: usize = 100;

/// One line: a recipient with its id, and preferences if they are known.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecipientLine {
    id: String,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default)]
    locale: Option<String>,
    #[serde(default)]
    attributes: Map<String, Value>,
    #[serde(default)]
    quiet_hours: Option<Vec<Value>>,
    #[serde(default)]
    preferences: Option<PreferencesBody>,
}

/// What became of an import.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Imported)]
pub(crate) struct ImportBody {
    pub created: u64,
    pub changed: u64,
    pub refused: u64,
    /// The first hundred refused lines.
    pub errors: Vec<RefusedLineBody>,
    /// The import ended early, for example because a quota is reached or the key was revoked; what was counted is
    /// written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
}

/// A line that was refused.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = RefusedLine)]
pub(crate) struct RefusedLineBody {
    /// From 1.
    pub line: u64,
    pub error: String,
}

/// Import recipients: one per line, NDJSON with `id`, `zone`, `locale`, `attributes`, `quiet_hours` and `preferences`.
/// A recipient that exists is replaced; without `preferences`, its own words stay. Aliases are not imported.
#[utoipa::path(post, path = "/v1/recipients/import", tag = "audience",
    request_body(content = String, content_type = "application/x-ndjson", description = "One recipient per line"),
    responses((status = 200, body = ImportBody), (status = "4XX", body = Problem)))]
pub(crate) async fn import(
    State(app): State<SharedState>,
    access: AddressAccess,
    request: Request,
) -> ApiResult<Json<ImportBody>> {
    require_type(request.headers(), &TYPES)?;
    let idle = Duration::from_secs(app.config().server.batch_idle_timeout_s);
    let mut splitter = Splitter::new(app.config().server.body_bytes_max);
    let mut run = RecipientImport::new(app.clone(), &access);
    let mut body = request.into_body().into_data_stream();
    let mut lines = VecDeque::new();
    let stopped = loop {
        let frame = tokio::select! {
            biased;
            problem = run.key_ended() => break Some(problem),
            frame = tokio::time::timeout(idle, body.next()) => frame,
        };
        let ended = match frame {
            Ok(Some(Ok(bytes))) => {
                splitter.push(bytes, &mut lines);
                false
            }
            // What came is imported, and the sender learns how much that was by sending it again.
            Ok(Some(Err(_)) | None) => {
                splitter.finish(&mut lines);
                true
            }
            Err(_) => break Some(Problem::timeout("no line arrived in time")),
        };
        for line in lines.drain(..) {
            run.add(line);
        }
        match run.write(ended).await {
            Err(problem) => break Some(problem),
            Ok(()) if ended => break None,
            Ok(()) => {}
        }
    };
    run.body.stopped = stopped.map(|problem| problem.detail);
    let written = run.body.created + run.body.changed;
    audit(&access.caller, "recipient.import", &access.tenant, written);
    Ok(Json(run.body))
}

struct RecipientImport {
    app: SharedState,
    tenant: TenantId,
    /// Tells when the caller's key stops working.
    key_end: KeyEnd,
    number: u64,
    waiting: Vec<(String, RecipientProfile, bool)>,
    body: ImportBody,
}

impl RecipientImport {
    fn new(app: SharedState, access: &AddressAccess) -> Self {
        let (tenant, key_end) = (access.tenant.clone(), app.keys.end_of(&access.caller));
        Self { app, tenant, key_end, number: 0, waiting: Vec::new(), body: ImportBody::default() }
    }

    /// Returns when the caller may not write any more.
    async fn key_ended(&mut self) -> Problem {
        let rejection = self.key_end.wait(&self.app.keys).await;
        rejected(&self.app, rejection)
    }

    fn add(&mut self, line: BatchLine) {
        self.number += 1;
        let read = match line {
            BatchLine::Text(text) if text.trim_ascii().is_empty() => return,
            BatchLine::Text(text) => self.read(&text),
            BatchLine::TooLong => Err("the line is longer than server.body_bytes_max".to_owned()),
        };
        match read {
            Ok(recipient) => self.waiting.push(recipient),
            Err(error) => {
                self.body.refused += 1;
                if self.body.errors.len() < REFUSED_MAX {
                    self.body.errors.push(RefusedLineBody { line: self.number, error });
                }
            }
        }
    }

    fn read(&self, line: &[u8]) -> Result<(String, RecipientProfile, bool), String> {
        let text = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8".to_owned())?;
        let line: RecipientLine = json_fields::read(text, "").map_err(|error| {
            format!("{}: found {}, allowed: {}", error.field, error.found, error.allowed)
        })?;
        let RecipientLine { id, zone, locale, attributes, quiet_hours, preferences } = line;
        check_id("id", &id).map_err(|problem| problem.detail)?;
        let new = RecipientRequest { zone, locale, attributes, quiet_hours, aliases: Vec::new() };
        let mut profile = new.checked(&id).map_err(|problem| problem.detail)?;
        let has_words = preferences.is_some();
        if let Some(said) = preferences {
            let rules = self.app.audience.rules(&self.tenant);
            let known = |name: &str| rules.categories.contains_key(name);
            profile.preferences = said.checked(known).map_err(|problem| problem.detail)?;
        }
        Ok((id, profile, has_words))
    }

    /// Writes what waits, if that is enough or `all` of it.
    async fn write(&mut self, all: bool) -> ApiResult<()> {
        while self.waiting.len() >= AT_ONCE || (all && !self.waiting.is_empty()) {
            if let Some(problem) = self.key_ended().now_or_never() {
                return Err(problem);
            }
            let some = self.waiting.len().min(AT_ONCE);
            let mut group: Vec<_> = self.waiting.drain(..some).collect();
            // The last line about a recipient counts.
            let mut seen = std::collections::HashSet::new();
            group.reverse();
            group.retain(|(id, ..)| seen.insert(id.clone()));
            group.reverse();
            while !group.is_empty() {
                group = self.write_group(group).await?;
            }
        }
        Ok(())
    }

    /// Answers those that somebody else changed meanwhile.
    async fn write_group(
        &mut self,
        group: Vec<(String, RecipientProfile, bool)>,
    ) -> ApiResult<Vec<(String, RecipientProfile, bool)>> {
        let (app, tenant) = (&self.app, &self.tenant);
        let key = |(id, ..): &(String, RecipientProfile, bool)| {
            EntryKey::new(tenant, EntryKind::Recipient, id)
        };
        let keys: Vec<_> = group.iter().map(key).collect();
        let found = app.store.entries(keys.clone()).await?;
        let new = found.iter().filter(|entry| entry.is_none()).count() as u64;
        check_room(app, tenant, new)?;
        app.audience.note_kind(tenant, EntryKind::Recipient).await?;
        let now = app.clock.now();
        let mut writes = Vec::with_capacity(group.len());
        for (((_, profile, has_words), key), found) in group.iter().zip(keys).zip(&found) {
            let mut profile =
                RecipientProfile { created_at: now, updated_at: now, ..profile.clone() };
            if let Some(found) = found {
                let known: RecipientProfile = read(found)?;
                profile.created_at = known.created_at;
                profile.aliases = known.aliases;
                if !has_words {
                    profile.preferences = known.preferences;
                }
            }
            let expected = found.as_ref().map_or(EntryVersion::NONE, |found| found.version);
            writes.push(EntryWrite { key, json: Some(text(&profile)?), expected: Some(expected) });
        }
        let results = app.store.write_entries(writes).await?;
        let mut again = Vec::new();
        let mut created = 0;
        for ((recipient, found), result) in group.into_iter().zip(found).zip(results) {
            match result {
                EntryResult::Conflict(_) => again.push(recipient),
                EntryResult::Written(_) if found.is_none() => created += 1,
                EntryResult::Written(_) => self.body.changed += 1,
            }
        }
        self.body.created += created;
        app.quotas.note_entries(tenant, created as i64);
        Ok(again)
    }
}
