//! Admits a batch: checks each message, takes room, makes it durable, answers. A refused message can still be
//! a repeat; a repeat gets its first answer, whatever has changed since.

use postrider_core::ports::store::{Admission, DedupKey, Load, NewMessage, StoreResult};
use postrider_core::{DeliveryId, MessageId, TenantId};

use super::quota::TenantOverQuota;
use super::refusal::{IntakeRefusal, RefusalKind};
use super::{MessageIntake, Submission};

/// The answer to a message that is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntakeAnswer {
    pub message: MessageId,
    pub deliveries: Vec<DeliveryId>,
    /// The message was accepted before: this repeats the first answer.
    pub duplicate: bool,
}

/// A message that is refused, and the key by which it may be a repeat.
pub(super) struct RefusedMessage {
    pub(super) refusal: IntakeRefusal,
    pub(super) key: Option<DedupKey>,
}

impl From<IntakeRefusal> for RefusedMessage {
    fn from(refusal: IntakeRefusal) -> Self {
        Self { refusal, key: None }
    }
}

impl MessageIntake {
    /// Takes a batch in. One answer each, in order; what is accepted is durable.
    pub async fn admit(
        &self,
        tenant: &TenantId,
        batch: Vec<Submission>,
    ) -> Vec<Result<IntakeAnswer, IntakeRefusal>> {
        let policy = self.policies.now();
        let mut prepared = Vec::with_capacity(batch.len());
        for submission in &batch {
            prepared.push(self.prepare(&policy, tenant, submission).await);
        }
        if let Some(over) = self.quotas.check(tenant) {
            prepared = prepared.into_iter().map(|message| within_quota(&over, message)).collect();
        }
        let weights: Vec<_> = prepared.iter().flatten().map(weight).collect();
        let now = self.clock.now();
        let (verdicts, taken) =
            self.room.take(&*self.store, &policy.capacities, tenant, &weights, now);
        let mut verdicts = verdicts.into_iter().zip(weights);
        let (mut messages, mut sizes) = (Vec::new(), Vec::new());
        let mut admitted = |message: NewMessage| {
            let (verdict, size) = verdicts.next().unwrap_or((Ok(()), Load::default()));
            if let Err(refusal) = verdict {
                return Some(RefusedMessage { refusal, key: message.dedup });
            }
            messages.push(message);
            sizes.push(size);
            None
        };
        let refused = prepared.into_iter().map(|m| m.map_or_else(Some, &mut admitted)).collect();
        let admissions = match messages.is_empty() {
            true => Vec::new(),
            false => self.store.accept(messages).await,
        };
        taken.used(accepted(&admissions, &sizes));
        self.answers(refused, admissions).await
    }

    async fn answers(
        &self,
        refused: Vec<Option<RefusedMessage>>,
        admissions: Vec<StoreResult<Admission>>,
    ) -> Vec<Result<IntakeAnswer, IntakeRefusal>> {
        let keys: Vec<_> = refused.iter().flatten().filter_map(|r| r.key.clone()).collect();
        let repeats = if keys.is_empty() { Ok(Vec::new()) } else { self.store.repeats(keys).await };
        let mut repeats = repeats.unwrap_or_default().into_iter();
        let mut admissions = admissions.into_iter();
        let answer = |refused: Option<RefusedMessage>| match refused {
            Some(RefusedMessage { refusal, key }) => {
                match key.and_then(|_| repeats.next().flatten()) {
                    Some(admission) => answer_to(admission),
                    None => Err(refusal),
                }
            }
            None => match admissions.next() {
                Some(Ok(admission)) => answer_to(admission),
                Some(Err(error)) => Err(error.into()),
                None => Err(IntakeRefusal::new(
                    RefusalKind::Internal,
                    "the store gave no answer; please report this",
                )),
            },
        };
        refused.into_iter().map(answer).collect()
    }
}

fn within_quota(
    over: &TenantOverQuota,
    message: Result<NewMessage, RefusedMessage>,
) -> Result<NewMessage, RefusedMessage> {
    let message = message?;
    match over.refuse(&message) {
        Some(refusal) => Err(RefusedMessage { refusal, key: message.dedup }),
        None => Ok(message),
    }
}

/// A conflict is a refusal.
fn answer_to(admission: Admission) -> Result<IntakeAnswer, IntakeRefusal> {
    let (message, deliveries, duplicate) = match admission {
        Admission::Accepted { message, deliveries } => (message, deliveries, false),
        Admission::Duplicate { message, deliveries } => (message, deliveries, true),
        Admission::Conflict { message } => return Err(IntakeRefusal::conflict(message)),
    };
    Ok(IntakeAnswer { message, deliveries, duplicate })
}

fn weight(message: &NewMessage) -> Load {
    let address = |bytes: usize, delivery: &postrider_core::ports::store::NewDelivery| {
        bytes + delivery.target.as_json().len()
    };
    let addresses = message.deliveries.iter().fold(0, address);
    Load {
        deliveries: message.deliveries.len() as u64,
        bytes: (message.content.len() + addresses) as u64,
    }
}

fn accepted(admissions: &[StoreResult<Admission>], sizes: &[Load]) -> Load {
    let mut sum = Load::default();
    for (admission, size) in admissions.iter().zip(sizes) {
        if matches!(admission, Ok(Admission::Accepted { .. })) {
            sum.deliveries += size.deliveries;
            sum.bytes += size.bytes;
        }
    }
    sum
}
