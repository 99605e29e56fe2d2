//! What the server's settings promise, and what they do not.

use postrider_core::ports::store::{EngineStatus, StoreResult};
use tokio_postgres::Row;

use super::PostgresOptions;
use super::failure::PgResult;
use super::schema::{LAYOUT, found_layout};
use super::session::{PgSession, SessionPool};
use super::value::get;

/// The settings of a server that decide what a crash can lose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresSettings {
    pub version: String,
    pub synchronous_commit: String,
    pub fsync: bool,
    pub full_page_writes: bool,
    /// Replicas that receive changes now, and those of them that commits wait for.
    pub replicas: u32,
    pub synchronous_replicas: u32,
    pub is_read_only: bool,
}

/// What a look at a server finds, without changing anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresReport {
    pub settings: PostgresSettings,
    /// The layout of the tables, and the one that this version knows. Absent if there are none.
    pub layout: Option<u32>,
    pub layout_known: u32,
}

/// A setting that loses what was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurabilityGap {
    /// Such as `fsync_off`.
    pub code: &'static str,
    pub what: &'static str,
    pub remedy: &'static str,
}

/// Looks at a server. Makes no tables.
pub async fn examine(options: PostgresOptions) -> StoreResult<PostgresReport> {
    let tls = super::tls::TlsChoice::new(&options)?;
    let pool = std::sync::Arc::new(SessionPool::new(options, tls));
    let mut session = pool.durable().await?;
    let settings = settings(&mut session).await?;
    let layout = found_layout(&mut session, pool.schema()).await?;
    let layout = Some(layout).filter(|layout| *layout > 0);
    Ok(PostgresReport { settings, layout, layout_known: LAYOUT })
}

pub(super) async fn settings(session: &mut PgSession) -> PgResult<PostgresSettings> {
    // Only a member of pg_monitor sees replicas by name; everybody sees how many there are.
    let select = "SELECT current_setting('server_version') AS version, \
                  current_setting('synchronous_commit') AS synchronous_commit, \
                  current_setting('fsync')::boolean AS fsync, \
                  current_setting('full_page_writes')::boolean AS full_page_writes, \
                  (SELECT count(*) FROM pg_stat_replication) AS replicas, \
                  (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS sync, \
                  pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean AS read_only";
    let row = session.first(select, &[]).await?;
    let row = row.ok_or_else(|| super::failure::PgFailure::damaged("the server's settings"))?;
    read(&row)
}

fn read(row: &Row) -> PgResult<PostgresSettings> {
    let version: String = get(row, "version")?;
    let count = |column: &str| -> PgResult<u32> {
        Ok(u32::try_from(get::<i64>(row, column)?).unwrap_or(u32::MAX))
    };
    Ok(PostgresSettings {
        version: version.split_whitespace().next().unwrap_or_default().to_owned(),
        synchronous_commit: get(row, "synchronous_commit")?,
        fsync: get(row, "fsync")?,
        full_page_writes: get(row, "full_page_writes")?,
        replicas: count("replicas")?,
        synchronous_replicas: count("sync")?,
        is_read_only: get(row, "read_only")?,
    })
}

impl PostgresSettings {
    /// What an acknowledged message survives.
    pub fn promise(&self) -> String {
        let survives = match (self.fsync, self.synchronous_commit.as_str()) {
            (false, _) => "a crash of the server process, but no loss of power",
            (true, "off") => "a crash of Postrider; a crash of the server loses the last moments",
            (true, "local") => {
                "a crash and a loss of power of the server, but not the loss of its disk"
            }
            (true, _) if self.synchronous_replicas > 0 => {
                "a crash, a loss of power and the loss of the server, if a synchronous replica is promoted"
            }
            (true, _) if self.replicas > 0 => {
                "a crash and a loss of power of the server; after the loss of its disk, a replica may lack the \
                 last moments"
            }
            (true, _) => "a crash and a loss of power of the server, but not the loss of its disk",
        };
        format!("an acknowledged message survives {survives}")
    }

    pub fn gaps(&self) -> Vec<DurabilityGap> {
        let mut gaps = Vec::new();
        if !self.fsync {
            gaps.push(DurabilityGap {
                code: "fsync_off",
                what: "fsync is off: a loss of power can damage the database",
                remedy: "set fsync = on in postgresql.conf",
            });
        }
        if self.synchronous_commit == "off" {
            gaps.push(DurabilityGap {
                code: "synchronous_commit_off",
                what: "synchronous_commit is off: a crash of the server loses acknowledged messages",
                remedy: "set synchronous_commit = on for the server, the database or the user",
            });
        }
        if !self.full_page_writes {
            gaps.push(DurabilityGap {
                code: "full_page_writes_off",
                what: "full_page_writes is off: a loss of power can damage pages",
                remedy: "set full_page_writes = on unless the file system writes pages whole",
            });
        }
        gaps
    }

    pub(super) fn status(&self) -> EngineStatus {
        EngineStatus { name: format!("PostgreSQL {}", self.version), promise: self.promise() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> PostgresSettings {
        PostgresSettings {
            version: "15.1".to_owned(),
            synchronous_commit: "on".to_owned(),
            fsync: true,
            full_page_writes: true,
            replicas: 0,
            synchronous_replicas: 0,
            is_read_only: false,
        }
    }

    #[test]
    fn settings_that_lose_messages_are_named() {
        assert!(settings().gaps().is_empty());
        assert!(settings().promise().contains("loss of power of the server"));
        let off = PostgresSettings { synchronous_commit: "off".to_owned(), ..settings() };
        assert_eq!(off.gaps()[0].code, "synchronous_commit_off");
        assert!(off.promise().contains("loses the last moments"));
        let unsafe_ = PostgresSettings { fsync: false, full_page_writes: false, ..settings() };
        assert_eq!(unsafe_.gaps().len(), 2);
        let replicated = PostgresSettings { synchronous_replicas: 1, replicas: 1, ..settings() };
        assert!(replicated.promise().contains("promoted"));
    }
}
