//! Writes decisions down. A success is the write of one row.

use std::sync::Arc;

use postrider_core::ports::store::{SettleResult, Settlement, StoreError};
use postrider_core::{AddressStatus, Decision};
use rusqlite::Params;

use super::prelude::*;
use crate::embedded::index::AfterSettle;
use crate::embedded::index::delivery::StoredDelivery;
use crate::embedded::index::effects::BodyRelease;
use crate::embedded::requests::SharedRow;
use crate::embedded::sql::accept::alternatives_json;
use crate::embedded::sql::rows::appended;
use crate::progress::{DeliveryMark, StoredProgress, effective_decision};

/// A settlement with its JSON text. The caller's thread makes it, not the writer's.
pub(crate) struct SettleRow {
    pub(crate) settlement: Settlement,
    /// JSON, separated by commas; empty if there was no attempt.
    attempts: String,
}

impl SettleRow {
    pub(crate) fn prepare(settlement: Settlement) -> StoreResult<Self> {
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

    pub(crate) fn seq(&self) -> u64 {
        order_key(self.settlement.delivery.0)
    }
}

/// A delivery that is being settled.
struct SettlingDelivery {
    delivery: Arc<StoredDelivery>,
    mark: DeliveryMark,
    /// Whether its address may have strikes.
    struck: bool,
    /// Its index in the effects' list of settlements.
    slot: usize,
}

impl SharedRow for SettleRow {
    type Answer = SettleResult;

    fn write(rows: &[Self], writer: &mut Writer) -> StoreResult<Vec<SettleResult>> {
        let now = writer.shared.now();
        let held = writer.begin_settling(rows);
        let mut answers = Vec::with_capacity(rows.len());
        for (row, held) in rows.iter().zip(held) {
            let held = match held {
                Ok(held) => held,
                Err(answer) => {
                    answers.push(answer);
                    continue;
                }
            };
            let landing = writer.write(row, &held, now)?;
            writer.effects.settling[held.slot].1 = Some(landing);
            answers.push(SettleResult::Done);
        }
        Ok(answers)
    }

    fn write_damaged(&self, writer: &mut Writer, error: StoreError) -> StoreResult<SettleResult> {
        Ok(writer.settle_damaged(self, &error))
    }
}

impl Writer {
    /// Checks the tokens. Nobody can lease the deliveries that pass until the commit. The others have an answer.
    fn begin_settling(
        &mut self,
        rows: &[SettleRow],
    ) -> Vec<Result<SettlingDelivery, SettleResult>> {
        let mut index = self.shared.index();
        let mut hold = |row: &SettleRow| {
            let Settlement { delivery: id, token, .. } = row.settlement;
            let seq = row.seq();
            let Some((delivery, mark)) = index.begin_settling(seq, token) else {
                return Err(index.answer_to_repeat(seq, token));
            };
            self.effects.settling.push((seq, None));
            let slot = self.effects.settling.len() - 1;
            let struck = index.may_be_struck(&delivery.message.tenant, delivery.hash);
            if delivery.id() != id {
                return Err(SettleResult::Fenced);
            }
            Ok(SettlingDelivery { delivery, mark, struck, slot })
        };
        rows.iter().map(&mut hold).collect()
    }

    fn write(
        &mut self,
        row: &SettleRow,
        &SettlingDelivery { ref delivery, mark, struck, .. }: &SettlingDelivery,
        now: Timestamp,
    ) -> StoreResult<AfterSettle> {
        let settlement = &row.settlement;
        let has_alternative = !delivery.alternatives.is_empty();
        let decision = &effective_decision(&settlement.decision, mark.cancelled, has_alternative);
        let old = delivery.progress;
        let new = old.settled(decision, &settlement.attempts, now);
        let log = match row.attempts.as_str() {
            "" => delivery.log.as_deref().map(str::to_owned),
            attempts => Some(appended(delivery.log.as_deref(), new.tries, attempts)?),
        };
        self.learn(row, delivery, decision, struck)?;
        match decision {
            Decision::FallBack if self.numbers_only => {
                return Err(damaged("a delivery that goes elsewhere"));
            }
            _ if self.numbers_only => self.write_numbers(delivery, &new)?,
            Decision::DeadLetter(_) => self.bury(delivery, &new, log.as_deref())?,
            Decision::FallBack => {
                return self.redirect(delivery, mark, &new, log.as_deref());
            }
            _ if new.state.is_final() => self.finish(delivery.seq, &new, log.as_deref())?,
            _ => self.postpone(delivery.seq, &new, log.as_deref())?,
        }
        let (seq, listed) = (delivery.seq, (delivery.lane, old.due.0));
        match new.state.is_pending() {
            true => self.relist(seq, listed, Some((delivery.lane, new.due.0)))?,
            // A dead letter may be pending again.
            false if new.reason.is_some() => self.relist(seq, listed, None)?,
            false => self.unlist_later(seq, listed)?,
        }
        let tenant = self.tenant_number(&delivery.message.tenant)?;
        let count = self.effects.counts_of(tenant);
        count.add(old.state, -1);
        count.add(new.state, 1);
        count.held += i64::from(new.is_held()) - i64::from(old.is_held());
        if let Some(reason) = new.reason {
            count.add_dead(reason, 1);
        }
        if *decision == Decision::MarkGone {
            self.mark_gone(delivery, now)?;
        }
        if !mark.is_empty() {
            self.put_mark(delivery.seq, mark.settled(decision))?;
        }
        if new.state.is_pending() {
            return Ok(AfterSettle::Due(new.due.0));
        }
        if new.reason.is_none() {
            self.list_if_passed(delivery.seq, new.changed)?;
        }
        let count = self.effects.counts_of(tenant);
        count.bytes -= delivery.target_bytes as i64;
        let bytes = delivery.message.content.len();
        if delivery.siblings == 1 {
            count.bytes -= bytes as i64;
        } else {
            let holds = i64::from(new.reason.is_none());
            self.effects
                .release(delivery.message_seq(), BodyRelease { tenant, bytes, holds, pending: 1 });
        }
        Ok(AfterSettle::Final)
    }

    /// Moves the delivery to its first alternative.
    fn redirect(
        &mut self,
        delivery: &StoredDelivery,
        mark: DeliveryMark,
        new: &StoredProgress,
        log: Option<&str>,
    ) -> StoreResult<AfterSettle> {
        let Some((place, rest)) = delivery.alternatives.split_first() else {
            return Err(damaged("a delivery's other addresses"));
        };
        let lane = self.lane(&place.lane, delivery.seq)?;
        let target = place.target.as_json();
        let update = "UPDATE delivery SET lane = ?2, target = ?3, hash = ?4, address = ?5, \
                      address_since = ?6, alternatives = ?7, state = ?8, due = ?9, attempts = 0, \
                      tries = ?10, last_delay_ms = 0, changed = ?11, log = ?12 WHERE seq = ?1";
        let row = params![
            delivery.seq as i64,
            lane,
            target,
            place.hash.0,
            place.address.map(|id| id.0.to_be_bytes()),
            place.address_since.map(|at| at.0),
            alternatives_json(rest)?,
            new.state.code(),
            new.due.0,
            new.tries,
            new.changed.0,
            log,
        ];
        self.change_one(update, row)?;
        self.note_lane_change(delivery.seq)?;
        let old = (delivery.lane, delivery.progress.due.0);
        self.relist(delivery.seq, old, Some((lane, new.due.0)))?;
        let tenant = self.tenant_number(&delivery.message.tenant)?;
        let count = self.effects.counts_of(tenant);
        count.add(delivery.progress.state, -1);
        count.add(new.state, 1);
        count.bytes += target.len() as i64 - delivery.target_bytes as i64;
        if !mark.is_empty() {
            self.put_mark(delivery.seq, mark.settled(&Decision::FallBack))?;
        }
        Ok(AfterSettle::Moved { lane, due: new.due.0 })
    }

    /// Writes the result, and neither history nor payload: a row of the same size needs no other page.
    fn write_numbers(
        &mut self,
        delivery: &StoredDelivery,
        new: &StoredProgress,
    ) -> StoreResult<()> {
        let seq = delivery.seq;
        let (state, reason) = (new.state.code(), new.reason.map(|reason| reason.code()));
        let due = new.state.is_pending().then_some(new.due.0);
        self.change_one(
            "UPDATE delivery SET state = ?2, reason = ?3, due = ?4, attempts = ?5, tries = ?6, \
             changed = ?7 WHERE seq = ?1",
            params![seq as i64, state, reason, due, new.attempts, new.tries, new.changed.0],
        )?;
        if let Some(reason) = new.reason {
            let tenant = self.tenant_number(&delivery.message.tenant)?;
            self.add_dead_letter(seq, (tenant, delivery.lane), reason)?;
        }
        Ok(())
    }

    fn finish(&self, seq: u64, new: &StoredProgress, log: Option<&str>) -> StoreResult<()> {
        self.change_one(
            "UPDATE delivery SET state = ?2, due = NULL, attempts = ?3, tries = ?4, \
             changed = ?5, log = ?6, target = NULL, body = NULL, alternatives = NULL WHERE seq = ?1",
            params![seq as i64, new.state.code(), new.attempts, new.tries, new.changed.0, log],
        )
    }

    fn bury(
        &mut self,
        delivery: &StoredDelivery,
        new: &StoredProgress,
        log: Option<&str>,
    ) -> StoreResult<()> {
        let seq = delivery.seq;
        let (state, reason) = (new.state.code(), new.reason.map(|reason| reason.code()));
        self.change_one(
            "UPDATE delivery SET state = ?2, reason = ?3, due = NULL, attempts = ?4, \
             tries = ?5, changed = ?6, log = ?7 WHERE seq = ?1",
            params![seq as i64, state, reason, new.attempts, new.tries, new.changed.0, log],
        )?;
        let tenant = self.tenant_number(&delivery.message.tenant)?;
        let reason = new.reason.ok_or_else(|| damaged("the reason of a dead letter"))?;
        self.add_dead_letter(seq, (tenant, delivery.lane), reason)
    }

    fn postpone(&self, seq: u64, new: &StoredProgress, log: Option<&str>) -> StoreResult<()> {
        let update = "UPDATE delivery SET state = ?2, due = ?3, attempts = ?4, tries = ?5, \
                      last_delay_ms = ?6, changed = ?7, log = ?8 WHERE seq = ?1";
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
        self.change_one(update, row)
    }

    /// Changes one delivery. An error if it is not in the store.
    fn change_one(&self, update: &str, row: impl Params) -> StoreResult<()> {
        let found = run(&self.conn, update, row)? == 1;
        if found { Ok(()) } else { Err(damaged("the delivery is not in the store")) }
    }

    fn mark_gone(&mut self, delivery: &StoredDelivery, now: Timestamp) -> StoreResult<()> {
        let tenant = &delivery.message.tenant;
        let hash = delivery.hash;
        run(
            &self.conn,
            "INSERT OR REPLACE INTO gone (tenant, hash) VALUES (?1, ?2)",
            params![tenant.as_str(), hash.0],
        )?;
        let gone = to_json(&AddressStatus::Gone)?;
        run(
            &self.conn,
            "UPDATE address SET status = ?3, gone_at = ?4, target = NULL \
             WHERE tenant = ?1 AND hash = ?2 AND status <> ?3",
            params![tenant.as_str(), hash.0, gone, now.0],
        )?;
        self.effects.gone.push((tenant.clone(), hash, true));
        Ok(())
    }
}
