//! What all parts of the store share, and what it does by itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use postrider_core::ports::store::{
    DocumentVersion, EngineStatus, StoreError, StoreHealth, StoreProblem, StoreResult,
};
use postrider_core::{Clock, TenantId};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_postgres::AsyncMessage;

use super::durability::{PostgresSettings, settings};
use super::failure::PgResult;
use super::lanes::KnownLaneTable;
use super::session::{Commits, PgSession, SessionPool};
use super::tally::LOADS;
use super::value::get;
use crate::documents::DocumentSignal;
use crate::ids::IdGenerator;
use crate::sharded::ShardNews;
use crate::sharded::load::{LoadChange, PendingLoad};
use crate::sharded::server_time::ServerTime;

/// The server's time, the load and the newest document are asked for so often.
const REFRESH: Duration = Duration::from_secs(1);
/// Others are told at most so often, on a connection of its own: inside a commit, telling would make commits wait for
/// each other.
const TELL_EVERY: Duration = Duration::from_millis(10);
const RECONNECT: Duration = Duration::from_millis(500);
/// The question about the load is not asked again for so many times its own duration: while no worker runs, it reads
/// everything that arrived.
const LOAD_PAUSE: u32 = 20;
/// So often the load is asked for again, if something was written meanwhile.
const QUIET_TRIES: usize = 5;

pub(super) struct PgShared {
    pub(super) pool: Arc<SessionPool>,
    pub(super) clock: Arc<dyn Clock>,
    /// Absent if a clock was given.
    pub(super) time: Option<ServerTime>,
    pub(super) lanes: KnownLaneTable,
    pub(super) ids: Mutex<IdGenerator>,
    pub(super) news: ShardNews,
    pub(super) load: PendingLoad,
    pub(super) documents: DocumentSignal,
    pub(super) notes_to_tell: Notify,
    /// When the load is asked for again.
    pub(super) load_due: Mutex<Option<Instant>>,
    /// Whether the server answered last.
    pub(super) is_reached: AtomicBool,
    /// The server's settings as they were last, and the problems that they are, each since when.
    pub(super) settings: Mutex<KnownSettings>,
}

/// What is known of the server's settings.
#[derive(Default)]
pub(super) struct KnownSettings {
    engine: Option<EngineStatus>,
    problems: Vec<StoreProblem>,
}

impl PgShared {
    pub(super) fn ids(&self) -> MutexGuard<'_, IdGenerator> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn new_id(&self) -> u128 {
        let now = self.clock.now();
        self.ids().next(now)
    }

    /// An error while the server cannot be reached.
    pub(super) fn takes_work(&self) -> StoreResult<()> {
        if self.pool.is_closed() {
            return Err(StoreError::Closed);
        }
        match self.is_reached.load(Ordering::Relaxed) {
            true => Ok(()),
            false => {
                Err(StoreError::Io { what: "PostgreSQL does not answer".to_owned(), cause: None })
            }
        }
    }

    /// There are new notes in the queue.
    pub(super) fn tell_of_notes(&self) {
        self.news.tell();
        self.notes_to_tell.notify_one();
    }

    pub(super) async fn keep_refreshing(self: Arc<Self>) {
        loop {
            tokio::time::sleep(REFRESH).await;
            let refreshed = self.refresh().await;
            if let Err(error) = &refreshed {
                let error = format!("{error:?}");
                tracing::debug!(error, "PostgreSQL was not asked");
            }
            let reached = refreshed.is_ok();
            if self.is_reached.swap(reached, Ordering::Relaxed) != reached {
                match reached {
                    true => tracing::info!("PostgreSQL answers again"),
                    false => tracing::error!("PostgreSQL does not answer; new work is refused"),
                }
            }
        }
    }

    pub(super) async fn refresh(&self) -> PgResult<()> {
        // Not a relaxed one: the settings of the session are looked at, too.
        let mut session = self.pool.durable().await?;
        let before = ServerTime::monotonic();
        let select = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now, \
                      (SELECT newest FROM document_state) AS newest";
        let row = session.first(select, &[]).await?;
        if let Some(row) = row {
            let now: i64 = get(&row, "now")?;
            if let Some(time) = &self.time {
                time.observe(now, before, ServerTime::monotonic());
            }
            let newest: i64 = get(&row, "newest")?;
            self.documents.changed(DocumentVersion(newest as u64));
        }
        let settings = settings(&mut session).await?;
        self.note_settings(settings);
        self.refresh_load(&mut session).await
    }

    /// What took long is asked less often, so that it never takes more than a small part of the server's time.
    async fn refresh_load(&self, session: &mut PgSession) -> PgResult<()> {
        let asked_at = Instant::now();
        {
            let next = self.load_due.lock().unwrap_or_else(PoisonError::into_inner);
            if next.is_some_and(|next| asked_at < next) {
                return Ok(());
            }
        }
        for attempt in 1..=QUIET_TRIES {
            let question = self.load.begin_question();
            if !question.is_quiet() && attempt < QUIET_TRIES {
                tokio::time::sleep(Duration::from_millis(3)).await;
                continue;
            }
            let mut loads: HashMap<TenantId, LoadChange> = HashMap::new();
            for row in session.rows(*LOADS, &[]).await? {
                let change = LoadChange { deliveries: get(&row, "n")?, bytes: get(&row, "bytes")? };
                loads.insert(TenantId(get::<String>(&row, "tenant")?.into()), change);
            }
            if self.load.was_quiet(&question) || attempt == QUIET_TRIES {
                self.load.answer(loads);
                break;
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        let mut next = self.load_due.lock().unwrap_or_else(PoisonError::into_inner);
        *next = Some(asked_at + asked_at.elapsed() * LOAD_PAUSE);
        Ok(())
    }

    fn note_settings(&self, settings: PostgresSettings) {
        let now = self.clock.now();
        let mut known = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let gaps = settings.gaps();
        known.problems.retain(|problem| gaps.iter().any(|gap| gap.code == problem.code));
        for gap in gaps {
            if !known.problems.iter().any(|problem| problem.code == gap.code) {
                tracing::warn!(code = gap.code, "{}", gap.what);
                let what = format!("{}; {}", gap.what, gap.remedy);
                known.problems.push(StoreProblem { code: gap.code, since: now, what });
            }
        }
        known.engine = Some(settings.status());
    }

    /// What is wrong while the store goes on.
    pub(super) fn health(&self) -> StoreHealth {
        let known = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        StoreHealth {
            engine: known.engine.clone(),
            problems: known.problems.clone(),
            ..StoreHealth::default()
        }
    }

    fn channel(&self) -> String {
        format!("postrider_{}", self.pool.schema())
    }

    /// Tells other nodes of new notes.
    pub(super) async fn keep_telling(self: Arc<Self>) {
        let tell = format!("NOTIFY {}, 'queue'", self.channel());
        loop {
            self.notes_to_tell.notified().await;
            match self.pool.relaxed().await {
                Ok(session) => {
                    // Whoever is not told looks by itself a moment later.
                    if session.script(&tell).await.is_err() {
                        tokio::time::sleep(RECONNECT).await;
                    }
                }
                Err(_) => tokio::time::sleep(RECONNECT).await,
            }
            tokio::time::sleep(TELL_EVERY).await;
        }
    }

    pub(super) async fn tell_of_document(&self) {
        if let Ok(session) = self.pool.relaxed().await {
            // Others look every second by themselves.
            let _ = session.script(&format!("NOTIFY {}, 'document'", self.channel())).await;
        }
    }

    /// Hears what other nodes tell.
    pub(super) async fn keep_listening(self: Arc<Self>) {
        while !self.pool.is_closed() {
            if let Err(error) = self.listen().await {
                let error = format!("{error:?}");
                tracing::debug!(error, "nobody hears what other nodes tell");
            }
            tokio::time::sleep(RECONNECT).await;
        }
    }

    async fn listen(&self) -> PgResult<()> {
        let (client, mut connection) = self.pool.open(Commits::Relaxed).await?;
        let listen = format!("LISTEN {}", self.channel());
        let mut messages = futures_util::stream::poll_fn(move |cx| connection.poll_message(cx));
        let asked = client.batch_execute(&listen);
        tokio::pin!(asked);
        let mut is_listening = false;
        loop {
            tokio::select! {
                done = &mut asked, if !is_listening => {
                    done?;
                    is_listening = true;
                }
                message = messages.next() => match message {
                    Some(Ok(AsyncMessage::Notification(told))) if told.payload() == "document" => {
                        self.read_newest_document().await?;
                    }
                    Some(Ok(AsyncMessage::Notification(_))) => self.news.tell(),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Err(error.into()),
                    None => return Ok(()),
                },
            }
        }
    }

    async fn read_newest_document(&self) -> PgResult<()> {
        let mut session = self.pool.relaxed().await?;
        let row = session.first("SELECT newest FROM document_state", &[]).await?;
        if let Some(row) = row {
            self.documents.changed(DocumentVersion(get::<i64>(&row, "newest")? as u64));
        }
        Ok(())
    }
}
