//! The layout of the tables, and how it is set up. Forward only: a newer layout is refused.

use postrider_core::ports::store::StoreError;

use super::failure::PgResult;
use super::session::PgSession;
use super::value::get;
use crate::sharded::SHARDS;

/// Each step leads from one layout to the next.
const STEPS: &[&str] = &[
    include_str!("layout_1.sql"),
    include_str!("layout_2.sql"),
    include_str!("layout_3.sql"),
    include_str!("layout_4.sql"),
    include_str!("layout_5.sql"),
    include_str!("layout_6.sql"),
    include_str!("layout_7.sql"),
];

pub(super) const LAYOUT: u32 = STEPS.len() as u32;

/// Makes the tables, or brings them to the present layout. Several nodes may try at once.
pub(super) async fn set_up(session: &mut PgSession, schema: &str) -> PgResult<()> {
    if found_layout(session, schema).await? == LAYOUT {
        return Ok(());
    }
    session.begin().await?;
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('postrider ' || $1, 0))";
    session.run(lock, &[&schema]).await?;
    let found = found_layout(session, schema).await?;
    if found > LAYOUT {
        session.roll_back().await?;
        return Err(StoreError::NewerLayout { found, known: LAYOUT }.into());
    }
    if found == 0 {
        let exists = "SELECT 1 FROM pg_namespace WHERE nspname = $1";
        if session.first(exists, &[&schema]).await?.is_none() {
            session.script(&format!("CREATE SCHEMA \"{schema}\"")).await?;
        }
    }
    for step in STEPS.iter().skip(found as usize) {
        session.script(step).await?;
    }
    if found == 0 {
        let shards = "INSERT INTO shard (id) SELECT n FROM generate_series(0, $1::integer - 1) n";
        session.run(shards, &[&i32::from(SHARDS)]).await?;
    }
    let layout = "INSERT INTO meta (key, value) VALUES ('layout', $1) \
                  ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    session.run(layout, &[&i64::from(LAYOUT)]).await?;
    session.commit().await
}

/// 0 if there is none.
pub(super) async fn found_layout(session: &mut PgSession, schema: &str) -> PgResult<u32> {
    let exists = "SELECT to_regclass(quote_ident($1::text) || '.meta') IS NOT NULL AS found";
    let found = session.first(exists, &[&schema]).await?;
    if !found.map(|row| get::<bool>(&row, "found")).transpose()?.unwrap_or(false) {
        return Ok(0);
    }
    let layout = "SELECT value FROM meta WHERE key = 'layout'";
    let row = session.rows_of(layout, &[]).await?;
    let found = row.first().map(|row| get::<i64>(row, "value")).transpose()?.unwrap_or(0);
    if found > i64::from(LAYOUT) {
        let found = u32::try_from(found).unwrap_or(u32::MAX);
        return Err(StoreError::NewerLayout { found, known: LAYOUT }.into());
    }
    Ok(u32::try_from(found).unwrap_or(0))
}
