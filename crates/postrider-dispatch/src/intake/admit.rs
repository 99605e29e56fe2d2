//! Admits a batch: checks each message, takes room, makes it durable, answers. A refused message can still be
//! a repeat; a repeat gets its first answer, whatever has changed since.

use std::collections::HashSet;

use postrider_core::ports::store::{
    Admission, DedupKey, Load, NewMessage, StoreError, StoreResult,
};
use postrider_core::{DeliveryId, MessageId, TenantId};

use super::audience::{Forecast, WithheldMember};
use super::quota::{QuotaTurn, TenantOverQuota};
use super::refusal::{IntakeRefusal, RefusalKind};
use super::{MessageIntake, Submission};

/// The answer to a message that is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntakeAnswer {
    pub message: MessageId,
    pub deliveries: Vec<DeliveryId>,
    /// The message was accepted before: this repeats the first answer.
    pub duplicate: bool,
    /// Addresses of its list that its campaign had reached before.
    pub repeated: usize,
    /// Deliveries that would not be sent as things are. It is asked again just before sending.
    pub withheld: Vec<WithheldMember>,
}

/// The store's answer to a message, and how many of its list the campaign had reached before.
#[derive(Debug, Clone)]
struct ListAdmission {
    admission: Admission,
    repeated: usize,
}

/// A message that is refused, and the key by which it may be a repeat.
pub(super) struct RefusedMessage {
    pub(super) refusal: IntakeRefusal,
    pub(super) key: Option<DedupKey>,
}

impl RefusedMessage {
    fn is_over_quota(&self) -> bool {
        self.refusal.kind == RefusalKind::QuotaExceeded
    }
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
        match self.quotas.turn(tenant).await {
            Ok(turn) => self.admit_in_turn(tenant, batch, turn).await,
            Err(refusal) => batch.iter().map(|_| Err(refusal.clone())).collect(),
        }
    }

    /// The same for a caller that waited for its turn before it read the batch.
    pub async fn admit_in_turn(
        &self,
        tenant: &TenantId,
        batch: Vec<Submission>,
        turn: Option<QuotaTurn>,
    ) -> Vec<Result<IntakeAnswer, IntakeRefusal>> {
        let policy = self.policies.now();
        let mut prepared = Vec::with_capacity(batch.len());
        for submission in &batch {
            prepared.push(self.prepare(&policy, tenant, submission).await);
        }
        if let Some(over) = self.quotas.check(tenant) {
            prepared = prepared.into_iter().map(|message| within_quota(&over, message)).collect();
            let is_refused = |message: &Result<_, RefusedMessage>| matches!(message, Err(refused) if refused.is_over_quota());
            if let Some(turn) = turn.as_ref().filter(|_| prepared.iter().any(is_refused)) {
                turn.pause(batch.iter().map(|submission| submission.body.len()).sum()).await;
            }
        }
        drop(turn);
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
        let forecasts = self.forecasts(tenant, &policy, &messages).await;
        let admissions = match messages.is_empty() {
            true => Vec::new(),
            false => self.accept_new(messages).await,
        };
        taken.used(accepted(&admissions, &sizes));
        self.answers(refused, admissions, forecasts).await
    }

    /// Accepts messages. Of a list, only those whom its campaign has not reached before: answers how many it had.
    async fn accept_new(&self, messages: Vec<NewMessage>) -> Vec<StoreResult<ListAdmission>> {
        let is_list = |new: &NewMessage| !new.member_keys.is_empty();
        let lists = messages.iter().enumerate().filter(|(_, new)| is_list(new));
        let lists: Vec<_> = lists.map(|(place, new)| (place, new.clone())).collect();
        let admissions = self.store.accept(messages).await;
        let plain = |admission| ListAdmission { admission, repeated: 0 };
        let mut answers: Vec<_> = admissions.into_iter().map(|answer| answer.map(plain)).collect();
        for (place, list) in lists {
            if let Some(Ok(first)) = answers.get(place).cloned() {
                answers[place] = self.accept_rest(list, first.admission).await;
            }
        }
        answers
    }

    /// Takes those whom the campaign had reached out of a list, until the rest is accepted or nobody is left.
    async fn accept_rest(
        &self,
        mut list: NewMessage,
        mut admission: Admission,
    ) -> StoreResult<ListAdmission> {
        let count = list.deliveries.len();
        while let Admission::RepeatedMembers { places, message } = admission {
            let key = places.first().and_then(|place| list.member_keys.get(*place)).cloned();
            let repeats: HashSet<usize> = places.into_iter().collect();
            let is_new = |place: Option<usize>| place.is_none_or(|place| !repeats.contains(&place));
            let mut place = 0..;
            list.deliveries.retain(|_| is_new(place.next()));
            let mut place = 0..;
            list.member_keys.retain(|_| is_new(place.next()));
            if list.deliveries.is_empty() {
                let first = self.store.repeats(key.into_iter().collect()).await?.pop().flatten();
                let gone = Admission::Duplicate { message, deliveries: Vec::new() };
                return Ok(ListAdmission { admission: first.unwrap_or(gone), repeated: count });
            }
            if list.member_keys.len() == 1 {
                list.dedup = list.member_keys.pop();
            }
            admission = match self.store.accept(vec![list.clone()]).await.pop() {
                Some(answer) => answer?,
                None => return Err(StoreError::Closed),
            };
        }
        Ok(ListAdmission { admission, repeated: count - list.deliveries.len() })
    }

    async fn answers(
        &self,
        refused: Vec<Option<RefusedMessage>>,
        admissions: Vec<StoreResult<ListAdmission>>,
        forecasts: Vec<Forecast>,
    ) -> Vec<Result<IntakeAnswer, IntakeRefusal>> {
        let keys: Vec<_> = refused.iter().flatten().filter_map(|r| r.key.clone()).collect();
        let repeats = if keys.is_empty() { Ok(Vec::new()) } else { self.store.repeats(keys).await };
        let mut repeats = repeats.unwrap_or_default().into_iter();
        let (mut admissions, mut forecasts) = (admissions.into_iter(), forecasts.into_iter());
        let answer = |refused: Option<RefusedMessage>| match refused {
            Some(RefusedMessage { refusal, key }) => {
                match key.and_then(|_| repeats.next().flatten()) {
                    Some(admission) => answer_to(ListAdmission { admission, repeated: 0 }),
                    None => Err(refusal),
                }
            }
            None => match (admissions.next(), forecasts.next()) {
                (Some(Ok(admission)), forecast) => {
                    answer_to(admission).map(|answer| with_forecast(answer, forecast))
                }
                (Some(Err(error)), _) => Err(error.into()),
                (None, _) => Err(IntakeRefusal::new(
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
fn answer_to(answer: ListAdmission) -> Result<IntakeAnswer, IntakeRefusal> {
    let ListAdmission { admission, repeated } = answer;
    let (message, deliveries, duplicate) = match admission {
        Admission::Accepted { message, deliveries } => (message, deliveries, false),
        Admission::Duplicate { message, deliveries } => (message, deliveries, true),
        Admission::RepeatedMembers { message, .. } => (message, Vec::new(), true),
        Admission::Conflict { message } => return Err(IntakeRefusal::conflict(message)),
    };
    Ok(IntakeAnswer { message, deliveries, duplicate, repeated, withheld: Vec::new() })
}

/// A repeat gets its first answer, and of a list without some of its members the places are not known.
fn with_forecast(mut answer: IntakeAnswer, forecast: Option<Forecast>) -> IntakeAnswer {
    if !answer.duplicate && answer.repeated == 0 {
        let member = |(place, reason)| {
            let delivery = *answer.deliveries.get(place)?;
            Some(WithheldMember { delivery, reason })
        };
        answer.withheld = forecast.into_iter().flatten().filter_map(member).collect();
    }
    answer
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

fn accepted(admissions: &[StoreResult<ListAdmission>], sizes: &[Load]) -> Load {
    let mut sum = Load::default();
    for (admission, size) in admissions.iter().zip(sizes) {
        let is_new =
            |answer: &ListAdmission| matches!(answer.admission, Admission::Accepted { .. });
        if admission.as_ref().is_ok_and(is_new) {
            sum.deliveries += size.deliveries;
            sum.bytes += size.bytes;
        }
    }
    sum
}
