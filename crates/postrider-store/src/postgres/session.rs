//! Connections to the server: each with its prepared statements, lent to one caller at a time.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use postrider_core::ports::store::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement};

use super::failure::{PgFailure, PgResult, said};
use super::options::PostgresOptions;
use super::tls::TlsChoice;

/// The server ends a statement that takes longer.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// We give up on a connection that is silent for so long.
const SILENT_AFTER: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) type SqlValues<'a> = &'a [&'a (dyn ToSql + Sync)];

/// How its commits reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commits {
    /// As the server is set up.
    Durable,
    /// A little later: a crash of the server may lose the last ones.
    Relaxed,
}

/// A connection.
pub(super) struct PgSession {
    client: Client,
    statements: HashMap<&'static str, Statement>,
    /// A transaction is open, or the connection is not usable any more.
    spoilt: bool,
}

impl PgSession {
    async fn statement(&mut self, sql: &'static str) -> PgResult<Statement> {
        if let Some(known) = self.statements.get(sql) {
            return Ok(known.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }

    /// Runs a statement that is prepared once per connection.
    pub(super) async fn rows(
        &mut self,
        sql: &'static str,
        values: SqlValues<'_>,
    ) -> PgResult<Vec<Row>> {
        let work = async {
            let statement = self.statement(sql).await?;
            Ok(self.client.query(&statement, values).await?)
        };
        match tokio::time::timeout(SILENT_AFTER, work).await {
            Ok(done) => done,
            Err(_) => {
                self.spoilt = true;
                Err(PgFailure::Silent(SILENT_AFTER))
            }
        }
    }

    pub(super) async fn run(&mut self, sql: &'static str, values: SqlValues<'_>) -> PgResult<u64> {
        let work = async {
            let statement = self.statement(sql).await?;
            Ok(self.client.execute(&statement, values).await?)
        };
        match tokio::time::timeout(SILENT_AFTER, work).await {
            Ok(done) => done,
            Err(_) => {
                self.spoilt = true;
                Err(PgFailure::Silent(SILENT_AFTER))
            }
        }
    }

    pub(super) async fn first(
        &mut self,
        sql: &'static str,
        values: SqlValues<'_>,
    ) -> PgResult<Option<Row>> {
        Ok(self.rows(sql, values).await?.into_iter().next())
    }

    /// A statement that is made at run time.
    pub(super) async fn rows_of(&mut self, sql: &str, values: SqlValues<'_>) -> PgResult<Vec<Row>> {
        let work = self.client.query(sql, values);
        match tokio::time::timeout(SILENT_AFTER, work).await {
            Ok(done) => Ok(done?),
            Err(_) => {
                self.spoilt = true;
                Err(PgFailure::Silent(SILENT_AFTER))
            }
        }
    }

    /// Several statements without values.
    pub(super) async fn script(&self, sql: &str) -> PgResult<()> {
        Ok(self.client.batch_execute(sql).await?)
    }

    pub(super) async fn begin(&mut self) -> PgResult<()> {
        self.spoilt = true;
        self.script("BEGIN").await
    }

    pub(super) async fn commit(&mut self) -> PgResult<()> {
        self.script("COMMIT").await?;
        self.spoilt = false;
        Ok(())
    }

    pub(super) async fn roll_back(&mut self) -> PgResult<()> {
        self.script("ROLLBACK").await?;
        self.spoilt = false;
        Ok(())
    }
}

/// The connections of a store.
pub(super) struct SessionPool {
    options: PostgresOptions,
    tls: TlsChoice,
    room: Arc<Semaphore>,
    idle: Mutex<Vec<(Commits, PgSession)>>,
    closed: AtomicBool,
}

/// A connection that goes back to the pool.
pub(super) struct PooledSession {
    session: Option<PgSession>,
    commits: Commits,
    pool: Arc<SessionPool>,
    _room: OwnedSemaphorePermit,
}

impl SessionPool {
    pub(super) fn new(options: PostgresOptions, tls: TlsChoice) -> Self {
        let room = Arc::new(Semaphore::new(options.pool_size));
        Self { options, tls, room, idle: Mutex::default(), closed: AtomicBool::new(false) }
    }

    pub(super) async fn durable(self: &Arc<Self>) -> PgResult<PooledSession> {
        self.get(Commits::Durable).await
    }

    pub(super) async fn relaxed(self: &Arc<Self>) -> PgResult<PooledSession> {
        self.get(Commits::Relaxed).await
    }

    async fn get(self: &Arc<Self>, commits: Commits) -> PgResult<PooledSession> {
        let room = tokio::time::timeout(SILENT_AFTER, self.room.clone().acquire_owned());
        let room = match room.await {
            Ok(Ok(room)) => room,
            Ok(Err(_)) => return Err(StoreError::Closed.into()),
            Err(_) => return Err(PgFailure::Silent(SILENT_AFTER)),
        };
        if self.closed.load(Ordering::Acquire) {
            return Err(StoreError::Closed.into());
        }
        let session = match self.take_idle(commits) {
            Some(session) => session,
            None => self.connect(commits).await?,
        };
        Ok(PooledSession { session: Some(session), commits, pool: self.clone(), _room: room })
    }

    fn take_idle(&self, commits: Commits) -> Option<PgSession> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(_, session)| !session.client.is_closed());
        let place = idle.iter().rposition(|(kind, _)| *kind == commits);
        if let Some(place) = place {
            return Some(idle.remove(place).1);
        }
        // The connections of the other kind count, too.
        if idle.len() > self.room.available_permits() {
            idle.remove(0);
        }
        None
    }

    async fn connect(&self, commits: Commits) -> PgResult<PgSession> {
        let (client, connection) = self.open(commits).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = said(&error), "a connection to PostgreSQL ended");
            }
        });
        Ok(PgSession { client, statements: HashMap::new(), spoilt: false })
    }

    /// A connection that somebody else drives.
    pub(super) async fn open(
        &self,
        commits: Commits,
    ) -> PgResult<(Client, super::tls::PgConnection)> {
        let mut config = self.options.config.clone();
        // A queue is mostly empty, and plans made then are bad later: looks by key always take their index.
        let relaxed = if commits == Commits::Relaxed { " -c synchronous_commit=off" } else { "" };
        config.options(format!(
            "-c search_path=\"{}\" -c statement_timeout={} -c lock_timeout=5000 \
             -c idle_in_transaction_session_timeout=20000 -c plan_cache_mode=force_generic_plan \
             -c enable_seqscan=off -c enable_mergejoin=off -c jit=off -c timezone=UTC{relaxed}",
            self.options.schema,
            STATEMENT_TIMEOUT.as_millis(),
        ));
        config.application_name("postrider");
        config.connect_timeout(CONNECT_TIMEOUT);
        let connected = tokio::time::timeout(2 * CONNECT_TIMEOUT, self.tls.connect(&config));
        match connected.await {
            Ok(Ok(connected)) => Ok(connected),
            Ok(Err(error)) => Err(self.refused(&error)),
            Err(_) => Err(PgFailure::Connect(
                format!("no connection to {} in time", self.options.shown),
                None,
            )),
        }
    }

    fn refused(&self, error: &tokio_postgres::Error) -> PgFailure {
        let what = format!("cannot connect to {}: {}", self.options.shown, said(error));
        PgFailure::Connect(what, error.code().cloned())
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn schema(&self) -> &str {
        &self.options.schema
    }
}

impl Deref for PooledSession {
    type Target = PgSession;

    fn deref(&self) -> &PgSession {
        // It is taken out only when this value is dropped.
        self.session.as_ref().unwrap_or_else(|| unreachable!("a session is there until the end"))
    }
}

impl DerefMut for PooledSession {
    fn deref_mut(&mut self) -> &mut PgSession {
        self.session.as_mut().unwrap_or_else(|| unreachable!("a session is there until the end"))
    }
}

impl Drop for PooledSession {
    fn drop(&mut self) {
        let Some(session) = self.session.take() else { return };
        if session.spoilt || session.client.is_closed() || self.pool.is_closed() {
            return;
        }
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push((self.commits, session));
    }
}
