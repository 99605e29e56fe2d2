//! Notes to the holders of shards: what arrived, came back or ended without them.

use tokio_postgres::Row;

use super::failure::PgResult;
use super::session::PgSession;
use super::shared::PgShared;
use super::value::{PgId, get};
use crate::sharded::{HeldShard, NoteEntry, NoteKind, QueueNote, shard_of};

/// Shards and their nonces as two arrays.
pub(super) fn fences(shards: &[HeldShard]) -> (Vec<i16>, Vec<i64>) {
    (
        shards.iter().map(|held| held.shard as i16).collect(),
        shards.iter().map(|held| held.nonce).collect(),
    )
}

const READ: &str = "SELECT i.number, i.kind, i.ids, i.lanes, i.dues, i.expires \
    FROM unnest($1::smallint[]) AS s (id) CROSS JOIN LATERAL \
    (SELECT * FROM inbox WHERE shard = s.id ORDER BY number LIMIT 16) AS i";

/// `shard + 0`, so that notes are found by their numbers, and not by looking through all of the shard.
const CONFIRM: &str = "WITH h AS (SELECT s.id FROM shard s JOIN unnest($2::smallint[], $3::bigint[]) AS u (id, nonce) \
      ON s.id = u.id AND s.nonce = u.nonce FOR SHARE OF s), \
    g AS (DELETE FROM inbox i USING h WHERE i.number = ANY($1) AND i.shard + 0 = h.id \
      RETURNING i.shard, i.kind, i.lanes, i.bytes, i.firsts), \
    a AS (SELECT u.lane, count(*) AS n, count(*) FILTER (WHERE u.first) AS firsts, sum(u.bytes) AS bytes \
      FROM g CROSS JOIN LATERAL unnest(g.lanes, g.bytes, g.firsts) AS u (lane, bytes, first) \
      WHERE g.kind = 0 GROUP BY u.lane) \
    INSERT INTO tally AS t (shard, tenant, s0, messages, bytes) \
    SELECT (SELECT max(shard) FROM g), l.tenant, sum(a.n), sum(a.firsts), sum(a.bytes) \
    FROM a JOIN lane l ON l.id = a.lane GROUP BY 2 ORDER BY 2 \
    ON CONFLICT (shard, tenant) DO UPDATE SET s0 = t.s0 + excluded.s0, \
      messages = t.messages + excluded.messages, bytes = t.bytes + excluded.bytes";

impl PgShared {
    pub(super) async fn read_notes(&self, shards: &[HeldShard]) -> PgResult<Vec<QueueNote>> {
        let mut session = self.pool.relaxed().await?;
        let rows = session.rows(READ, &[&fences(shards).0]).await?;
        rows.iter().map(note).collect()
    }

    pub(super) async fn confirm_notes(
        &self,
        shards: &[HeldShard],
        notes: &[QueueNote],
    ) -> PgResult<()> {
        let mut session = self.pool.relaxed().await?;
        let numbers: Vec<_> = notes.iter().map(|note| note.number).collect();
        let (ids, nonces) = fences(shards);
        // Arrivals become counts here, and the sum of both never changes. All are counted in one shard: only sums over
        // all shards count. It is the last one, so that settlements, which take the first, do not wait for this.
        session.run(CONFIRM, &[&numbers, &ids, &nonces]).await?;
        Ok(())
    }
}

fn note(row: &Row) -> PgResult<QueueNote> {
    let ids: Vec<PgId> = get(row, "ids")?;
    let lanes: Vec<i32> = get(row, "lanes")?;
    let dues: Vec<i64> = get(row, "dues")?;
    let expires: Vec<i64> = get(row, "expires")?;
    let kind = match get::<i16>(row, "kind")? {
        0 => NoteKind::Arrived,
        1 => NoteKind::Returned,
        _ => NoteKind::Removed,
    };
    let entries =
        ids.into_iter().zip(lanes).zip(dues).zip(expires).map(|(((id, lane), due), expires)| {
            NoteEntry { id: id.0, lane: lane as u32, due, expires }
        });
    Ok(QueueNote { number: get(row, "number")?, kind, entries: entries.collect() })
}

/// Notes for the holders, which an operator's transaction writes.
#[derive(Debug, Default)]
pub(super) struct NewNotes {
    returned: Vec<NoteEntry>,
    removed: Vec<NoteEntry>,
}

impl NewNotes {
    pub(super) fn returned(&mut self, entry: NoteEntry) {
        self.returned.push(entry);
    }

    pub(super) fn removed(&mut self, entry: NoteEntry) {
        self.removed.push(entry);
    }

    /// What was removed comes first: a delivery may come back at another time.
    pub(super) async fn write(&self, session: &mut PgSession) -> PgResult<()> {
        for (kind, entries) in [(2i16, &self.removed), (1, &self.returned)] {
            if entries.is_empty() {
                continue;
            }
            let shards: Vec<_> = entries.iter().map(|entry| shard_of(entry.id) as i16).collect();
            let ids: Vec<_> = entries.iter().map(|entry| PgId(entry.id)).collect();
            let lanes: Vec<_> = entries.iter().map(|entry| entry.lane as i32).collect();
            let dues: Vec<_> = entries.iter().map(|entry| entry.due).collect();
            let expires: Vec<_> = entries.iter().map(|entry| entry.expires).collect();
            let insert = "INSERT INTO inbox (shard, kind, ids, lanes, dues, expires, bytes, firsts) \
                          SELECT shard, $1, array_agg(id), array_agg(lane), array_agg(due), \
                          array_agg(expires), '{}', '{}' FROM \
                          unnest($2::smallint[], $3::uuid[], $4::integer[], $5::bigint[], $6::bigint[]) \
                          AS u (shard, id, lane, due, expires) GROUP BY shard ORDER BY shard";
            session.run(insert, &[&kind, &shards, &ids, &lanes, &dues, &expires]).await?;
        }
        Ok(())
    }
}
