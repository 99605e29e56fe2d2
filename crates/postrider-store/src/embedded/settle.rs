//! Writing decisions down. A success is the write of one row.

use std::sync::Arc;

use postrider_core::model::decision::Decision;
use postrider_core::model::id::order_key;
use postrider_core::ports::store::{Settled, Settlement, StoreResult};
use postrider_core::{AddressStatus, DeliveryId, Timestamp};
use rusqlite::params;

use super::accept::texts_of;
use super::board::Landing;
use super::draft::{Draft, Released};
use super::error::{damaged, sql};
use super::job::Job;
use super::rows::{appended, to_json};
use super::writer::Writer;
use crate::progress::{Mark, Progress, overruled};

/// A settlement with its text made: that is done by the caller's thread, not by the writer.
pub(super) struct Verdict {
    pub(super) settlement: Settlement,
    /// JSON, comma between; empty if there was none.
    attempts: String,
}

impl Verdict {
    pub(super) fn prepare(settlement: Settlement) -> StoreResult<Self> {
        let mut attempts = String::new();
        for attempt in &settlement.attempts {
            let text = to_json(attempt)?;
            if attempts.is_empty() {
                attempts = text;
            } else {
                attempts.push(',');
                attempts.push_str(&text);
            }
        }
        Ok(Self { settlement, attempts })
    }

    pub(super) fn seq(&self) -> u64 {
        order_key(self.settlement.delivery.0)
    }
}

/// A job that is being settled, what is marked of it and its address, and its place in the draft.
struct Held {
    job: Arc<Job>,
    mark: Mark,
    struck: bool,
    slot: usize,
}

impl Writer {
    pub(super) fn settle(
        &mut self,
        verdicts: &[Verdict],
        draft: &mut Draft,
    ) -> StoreResult<Vec<Settled>> {
        let now = self.shared.now();
        let held = self.hold(verdicts, draft);
        let mut answers = Vec::with_capacity(verdicts.len());
        for (verdict, held) in verdicts.iter().zip(held) {
            let Some(held) = held else {
                answers.push(Settled::Fenced);
                continue;
            };
            let landing = self.write(verdict, &held, now, draft)?;
            draft.settling[held.slot].1 = Some(landing);
            answers.push(Settled::Done);
        }
        Ok(answers)
    }

    /// Checks the tokens, and keeps what passes from being leased by anyone until the commit.
    fn hold(&self, verdicts: &[Verdict], draft: &mut Draft) -> Vec<Option<Held>> {
        let mut board = self.shared.board();
        let mut hold = |verdict: &Verdict| {
            let (seq, id): (_, DeliveryId) = (verdict.seq(), verdict.settlement.delivery);
            let (job, mark) = board.begin_settling(seq, verdict.settlement.token)?;
            draft.settling.push((seq, None));
            let slot = draft.settling.len() - 1;
            let struck = board.is_struck(&job.message.tenant, job.hash);
            (job.id() == id).then_some(Held { job, mark, struck, slot })
        };
        verdicts.iter().map(&mut hold).collect()
    }

    fn write(
        &mut self,
        verdict: &Verdict,
        &Held { ref job, mark, struck, .. }: &Held,
        now: Timestamp,
        draft: &mut Draft,
    ) -> StoreResult<Landing> {
        let settlement = &verdict.settlement;
        let has_alternative = !job.alternatives.is_empty();
        let decision = &overruled(&settlement.decision, mark.cancelled, has_alternative);
        let old = job.progress;
        let new = old.settled(decision, &settlement.attempts, now);
        let log = match verdict.attempts.as_str() {
            "" => job.log.as_deref().map(str::to_owned),
            attempts => Some(appended(job.log.as_deref(), new.tries, attempts)?),
        };
        draft.rows += 1;
        self.learn(verdict, job, decision, struck, draft)?;
        match decision {
            Decision::DeadLetter(_) => self.bury(job.seq, &new, log.as_deref())?,
            Decision::FallBack => return self.redirect(job, mark, &new, log.as_deref(), draft),
            _ if new.state.is_final() => self.finish(job.seq, &new, log.as_deref())?,
            _ => self.postpone(job.seq, &new, log.as_deref())?,
        }
        let tenant = self.tenants.get(&job.message.tenant).copied();
        let tenant = tenant.ok_or_else(|| damaged("a delivery's tenant"))?;
        let count = draft.count(tenant);
        count.add(old.state, -1);
        count.add(new.state, 1);
        if let Some(reason) = new.reason {
            count.add_dead(reason, 1);
        }
        if *decision == Decision::MarkGone {
            self.mark_gone(job, now, draft)?;
        }
        if !mark.is_empty() {
            self.put_mark(job.seq, mark.settled(decision), draft)?;
        }
        if new.state.is_pending() {
            return Ok(Landing::Due(new.due.0));
        }
        let count = draft.count(tenant);
        count.bytes -= job.target_bytes as i64;
        let bytes = job.message.content.len();
        if job.siblings == 1 {
            count.bytes -= bytes as i64;
        } else {
            let holds = i64::from(new.reason.is_none());
            draft.release(job.message_seq(), Released { tenant, bytes, holds, pending: 1 });
        }
        Ok(Landing::Final)
    }

    /// Writes its first alternative in the place of its own.
    fn redirect(
        &mut self,
        job: &Job,
        mark: Mark,
        new: &Progress,
        log: Option<&str>,
        draft: &mut Draft,
    ) -> StoreResult<Landing> {
        let Some((place, rest)) = job.alternatives.split_first() else {
            return Err(damaged("a delivery's other addresses"));
        };
        let lane = self.lane(&place.lane, draft)?;
        let target = to_json(&*place.target)?;
        let mut update = self
            .conn
            .prepare_cached(
                "UPDATE delivery SET lane = ?2, target = ?3, hash = ?4, address = ?5, \
                 address_since = ?6, alternatives = ?7, state = ?8, due = ?9, attempts = 0, \
                 tries = ?10, last_delay_ms = 0, changed = ?11, log = ?12 WHERE seq = ?1",
            )
            .map_err(sql)?;
        let row = params![
            job.seq as i64,
            lane,
            target,
            place.hash.0,
            place.address.map(|id| id.0.to_be_bytes()),
            place.address_since.map(|at| at.0),
            texts_of(rest)?,
            new.state.code(),
            new.due.0,
            new.tries,
            new.changed.0,
            log,
        ];
        changed_one(update.execute(row).map_err(sql)?)?;
        drop(update);
        let tenant = self.tenants.get(&job.message.tenant).copied();
        let tenant = tenant.ok_or_else(|| damaged("a delivery's tenant"))?;
        let count = draft.count(tenant);
        count.add(job.progress.state, -1);
        count.add(new.state, 1);
        count.bytes += target.len() as i64 - job.target_bytes as i64;
        if !mark.is_empty() {
            self.put_mark(job.seq, mark.settled(&Decision::FallBack), draft)?;
        }
        Ok(Landing::Moved { lane, due: new.due.0 })
    }

    fn finish(&self, seq: u64, new: &Progress, log: Option<&str>) -> StoreResult<()> {
        let mut update = self
            .conn
            .prepare_cached(
                "UPDATE delivery SET state = ?2, due = NULL, attempts = ?3, tries = ?4, \
                 changed = ?5, log = ?6, target = NULL, body = NULL, alternatives = NULL WHERE seq = ?1",
            )
            .map_err(sql)?;
        let row =
            params![seq as i64, new.state.code(), new.attempts, new.tries, new.changed.0, log];
        changed_one(update.execute(row).map_err(sql)?)?;
        Ok(())
    }

    fn bury(&self, seq: u64, new: &Progress, log: Option<&str>) -> StoreResult<()> {
        let mut update = self
            .conn
            .prepare_cached(
                "UPDATE delivery SET state = ?2, reason = ?3, due = NULL, attempts = ?4, \
                 tries = ?5, changed = ?6, log = ?7 WHERE seq = ?1",
            )
            .map_err(sql)?;
        let reason = new.reason.map(|reason| reason.code());
        let row = params![
            seq as i64,
            new.state.code(),
            reason,
            new.attempts,
            new.tries,
            new.changed.0,
            log
        ];
        changed_one(update.execute(row).map_err(sql)?)?;
        self.conn
            .prepare_cached("INSERT OR IGNORE INTO dead_letter (seq) VALUES (?1)")
            .and_then(|mut insert| insert.execute([seq as i64]))
            .map_err(sql)?;
        Ok(())
    }

    fn postpone(&self, seq: u64, new: &Progress, log: Option<&str>) -> StoreResult<()> {
        let mut update = self
            .conn
            .prepare_cached(
                "UPDATE delivery SET state = ?2, due = ?3, attempts = ?4, tries = ?5, \
                 last_delay_ms = ?6, changed = ?7, log = ?8 WHERE seq = ?1",
            )
            .map_err(sql)?;
        let delay = i64::try_from(new.last_delay.as_millis()).unwrap_or(i64::MAX);
        let row = params![
            seq as i64,
            new.state.code(),
            new.due.0,
            new.attempts,
            new.tries,
            delay,
            new.changed.0,
            log
        ];
        changed_one(update.execute(row).map_err(sql)?)?;
        Ok(())
    }

    fn mark_gone(&self, job: &Job, now: Timestamp, draft: &mut Draft) -> StoreResult<()> {
        let tenant = &job.message.tenant;
        let hash = job.hash;
        self.conn
            .prepare_cached("INSERT OR IGNORE INTO gone (tenant, hash) VALUES (?1, ?2)")
            .and_then(|mut insert| insert.execute(params![tenant.as_str(), hash.0]))
            .map_err(sql)?;
        let gone = to_json(&AddressStatus::Gone)?;
        self.conn
            .prepare_cached(
                "UPDATE address SET status = ?3, gone_at = ?4, target = NULL \
                 WHERE tenant = ?1 AND hash = ?2 AND status <> ?3",
            )
            .and_then(|mut update| update.execute(params![tenant.as_str(), hash.0, gone, now.0]))
            .map_err(sql)?;
        draft.gone.push((tenant.clone(), hash));
        draft.rows += 2;
        Ok(())
    }
}

/// A decision about what is not there must not pass for written.
fn changed_one(rows: usize) -> StoreResult<()> {
    if rows == 1 { Ok(()) } else { Err(damaged("the delivery is not in the store")) }
}
