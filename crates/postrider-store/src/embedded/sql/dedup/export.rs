//! Reads the keys of a list in order, for another store. Changes nothing.

use std::collections::BTreeMap;

use super::list::DedupKeyList;
use super::record::{DedupHash, KeyRecord};
use super::run::{KeyRun, RunCursor};
use crate::embedded::index::effects::DedupEntry;
use crate::embedded::sql::prelude::*;

impl DedupKeyList {
    /// Adds the first `limit` keys from `from` on. A key that was used again counts once, with its last use.
    pub(super) fn collect(
        &self,
        conn: &Connection,
        from: DedupHash,
        limit: usize,
        over_by: i64,
        all: &mut BTreeMap<DedupHash, DedupEntry>,
    ) -> StoreResult<()> {
        let mut add = |key: DedupHash, entry: DedupEntry| {
            if key >= from && entry.expires > over_by {
                let known = all.entry(key).or_insert(entry);
                if entry.expires > known.expires {
                    *known = entry;
                }
            }
        };
        for (key, entry) in self.new_keys() {
            add(key, entry);
        }
        for run in self.runs() {
            let mut cursor = RunCursor::from_key(conn, run.place, &from)?;
            let mut taken = 0;
            while taken < limit {
                let Some(record) = cursor.peek(conn)? else { break };
                taken += usize::from(record.key() >= from && record.expires() > over_by);
                add(record.key(), record.entry());
                cursor.advance();
            }
        }
        Ok(())
    }

    /// Those that are in no run yet.
    fn new_keys(&self) -> impl Iterator<Item = (DedupHash, DedupEntry)> + '_ {
        let closing = self.closing_keys().iter().map(|bytes| {
            let record = KeyRecord(*bytes);
            (record.key(), record.entry())
        });
        self.open_keys().iter().map(|(key, entry)| (*key, *entry)).chain(closing)
    }

    fn runs(&self) -> &[KeyRun] {
        self.all_runs()
    }
}
