//! Sends the events of each subscription in pages through Postrider's own queue, one page at a time: the next one goes
//! when the receiver has the one before. So a receiver that fails has one delivery in the queue and costs others
//! nothing. Of several workers, the one that leads does it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use postrider_core::ports::store::{Consumer, RollupOwner, Selection, StoreResult};
use postrider_core::{DeliveryId, State, Timestamp};
use postrider_dispatch::{IntakeRefusal, RefusalKind, Submission};
use serde_json::json;

use super::log::EventPage;
use super::relay_state::SendingPage;
use super::{EventPageLimits, EventPosition, EventSubscription, LoggedEvent, RelayState};
use crate::api::SharedState;

/// Without news, subscriptions are looked at this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// News gather for this time.
const GATHER: Duration = Duration::from_millis(20);
/// A page under way is looked at this often, even if nothing was heard of it.
const LOOK_AT_PAGE_EVERY: Duration = Duration::from_secs(5);
/// Subscriptions that are looked at together.
const AT_ONCE: usize = 8;
const PAGE_BYTES: usize = 200 << 10;
const PRUNE_EVERY: Duration = Duration::from_secs(600);
/// How far a position without events moves before it is written.
const WRITTEN_EVERY_MICROS: i64 = 600_000_000;
/// The queue refused a page.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);
/// The pause after a page that was given up, for each of them in a row.
const FAILED_PAUSE_MS: i64 = 60_000;
const FAILED_PAUSE_MS_MAX: i64 = 600_000;
/// How long Postrider tries to send one page before it is given up.
const PAGE_TTL_S: u32 = 3_600;
const PAGE_RETRIES: u32 = 12;

/// What is known of a subscription in memory.
#[derive(Default)]
struct SubscriptionLook {
    state: Option<RelayState>,
    /// The position that was written last.
    written: EventPosition,
    /// Its log was read to the end since this server looks.
    is_up_to_date: bool,
    looked_at_page: Option<Instant>,
}

/// Looks at the subscriptions again and again. A server that sends nothing does it only if it has its store alone.
pub(crate) async fn relay(app: SharedState, consumer: Option<Arc<dyn Consumer>>, is_shared: bool) {
    let mut looks = HashMap::new();
    let mut pruned = None;
    let mut news = app.events.log.news();
    loop {
        let heard = async {
            tokio::select! {
                () = app.events.subscriptions.changed.notified() => {}
                _ = news.changed() => {}
            }
            tokio::time::sleep(GATHER).await;
        };
        let _ = tokio::time::timeout(LOOK_EVERY, heard).await;
        if consumer.as_ref().map_or(is_shared, |consumer| !consumer.leads()) {
            looks.clear();
            continue;
        }
        let is_due = pruned.is_none_or(|at: Instant| at.elapsed() >= PRUNE_EVERY);
        if is_due {
            pruned = Some(Instant::now());
            prune(&app).await;
        }
        look_at_all(&app, &mut looks, is_shared).await;
    }
}

async fn prune(app: &SharedState) {
    match app.events.log.prune(oldest(app)).await {
        Ok(0) => {}
        Ok(parts) => tracing::debug!(parts, "old events were deleted"),
        Err(error) => tracing::warn!(%error, "old events could not be deleted"),
    }
}

/// Events before this time are forgotten.
pub(crate) fn oldest(app: &SharedState) -> Timestamp {
    app.clock.now() - Duration::from_secs(u64::from(app.config().events.kept_h) * 3_600)
}

async fn look_at_all(
    app: &SharedState,
    looks: &mut HashMap<String, SubscriptionLook>,
    is_shared: bool,
) {
    let all = app.events.subscriptions.all();
    let finished = app.events.take_finished();
    looks.retain(|id, _| all.contains_key(id));
    let work = all.values().map(|subscription| {
        let look = looks.remove(&subscription.id).unwrap_or_default();
        (subscription.clone(), look)
    });
    let work: Vec<_> = work.collect();
    let looked = work.into_iter().map(async |(subscription, mut look)| {
        let step =
            SubscriptionStep { app, subscription: &subscription, finished: &finished, is_shared };
        if let Err(error) = step.run(&mut look).await {
            tracing::warn!(%subscription, %error, "events could not be sent");
            // What is written is read again.
            look = SubscriptionLook::default();
        }
        (subscription, look)
    });
    let looked: Vec<_> =
        futures_util::stream::iter(looked).buffer_unordered(AT_ONCE).collect().await;
    show(app, &looked);
    looks.extend(looked.into_iter().map(|(subscription, look)| (subscription.id.clone(), look)));
}

fn show(app: &SharedState, looked: &[(Arc<EventSubscription>, SubscriptionLook)]) {
    let now = app.clock.now();
    let mut counts: HashMap<&'static str, i64> = HashMap::new();
    let mut lag_ms = 0;
    for (subscription, look) in looked {
        let Some(state) = &look.state else { continue };
        *counts.entry(state.name(subscription)).or_default() += 1;
        if state.sending.is_some() {
            let position: EventPosition = state.position.parse().unwrap_or_default();
            lag_ms = lag_ms.max(now.0.saturating_sub(position.at / 1_000));
        }
    }
    app.metrics.event_subscriptions(&counts, lag_ms as f64 / 1_000.0);
}

/// One look at one subscription.
struct SubscriptionStep<'a> {
    app: &'a SharedState,
    subscription: &'a EventSubscription,
    finished: &'a [DeliveryId],
    is_shared: bool,
}

impl SubscriptionStep<'_> {
    async fn run(&self, look: &mut SubscriptionLook) -> StoreResult<()> {
        let (app, subscription) = (self.app, self.subscription);
        let mut state = match look.state.take() {
            Some(state) => state,
            None => {
                let stored = RelayState::load(&*app.store, &subscription.id).await?;
                stored.unwrap_or_else(|| RelayState::begin(subscription))
            }
        };
        state.apply(subscription);
        if let Some(page) = state.sending.clone() {
            if !self.may_be_over(&page, look) {
                look.state = Some(state);
                return Ok(());
            }
            if !self.ended(&page, &mut state).await? {
                look.state = Some(state);
                return Ok(());
            }
            look.looked_at_page = None;
            look.is_up_to_date = false;
            // With the next page, if there is one.
        }
        let is_resting = state.resume_at.is_some_and(|at| at > app.clock.now());
        let position = state.position.parse().unwrap_or_default();
        let sends = subscription.enabled && subscription.url.is_some() && state.stopped.is_none();
        let tenant = subscription.tenant.as_ref();
        let has_news = !look.is_up_to_date || app.events.log.may_have_news(tenant, position);
        if sends && !is_resting && has_news {
            let page = self.page(position).await?;
            look.is_up_to_date = !page.has_more;
            if page.events.is_empty() {
                state.position = page.upto.to_string();
            } else {
                self.send(page, &mut state).await;
            }
        }
        self.write(look, state).await
    }

    /// Only what changed, and a position without events not each time.
    async fn write(&self, look: &mut SubscriptionLook, state: RelayState) -> StoreResult<()> {
        let position: EventPosition = state.position.parse().unwrap_or_default();
        let is_far = position.at.saturating_sub(look.written.at) >= WRITTEN_EVERY_MICROS;
        if is_far || state.is_changed() {
            state.save(&*self.app.store, &self.subscription.id).await?;
            look.written = position;
        }
        look.state = Some(state.unchanged());
        Ok(())
    }

    /// Whether the delivery of a page is worth a look.
    fn may_be_over(&self, page: &SendingPage, look: &mut SubscriptionLook) -> bool {
        let every = if self.is_shared { LOOK_EVERY } else { LOOK_AT_PAGE_EVERY };
        let is_due = look.looked_at_page.is_none_or(|at| at.elapsed() >= every);
        if is_due || self.finished.contains(&page.delivery) {
            look.looked_at_page = Some(Instant::now());
            return true;
        }
        false
    }

    /// Whether the page is no longer on its way; the state says what follows.
    async fn ended(&self, page: &SendingPage, state: &mut RelayState) -> StoreResult<bool> {
        let (app, now) = (self.app, self.app.clock.now());
        let sender = self.subscription.sender();
        let found = app.store.delivery(Some(&sender), page.delivery).await?;
        let outcome = found.map_or(State::Failed, |delivery| delivery.state);
        if outcome.is_pending() {
            return Ok(false);
        }
        let is_received = matches!(
            outcome,
            State::Sent | State::Delivered | State::Seen | State::Clicked | State::Dismissed
        );
        if is_received {
            app.metrics.events("sent", usize::try_from(page.events).unwrap_or(usize::MAX));
            state.received(page, now);
            return Ok(true);
        }
        app.metrics.event_page_failed();
        let which = Selection::Ids(vec![page.delivery]);
        app.store.discard(Some(&sender), which).await?;
        let give_up = Duration::from_secs(u64::from(app.config().events.give_up_h) * 3_600);
        let pause = FAILED_PAUSE_MS.saturating_mul(i64::from(state.failures) + 1);
        state.failed(now, Duration::from_millis(pause.min(FAILED_PAUSE_MS_MAX) as u64));
        if outcome == State::Gone {
            state.stop("the receiver answered that it is gone (410)");
        } else if state.failing_since.is_some_and(|since| now.since(since) >= give_up) {
            state.stop("the receiver took nothing for events.give_up_h");
        }
        let stopped = state.stopped.as_deref();
        tracing::warn!(
            subscription = %self.subscription, delivery = %page.delivery, stopped,
            "a page of events was not received; it is sent again unless the subscription is stopped"
        );
        Ok(true)
    }

    async fn page(&self, after: EventPosition) -> StoreResult<EventPage> {
        let (app, subscription) = (self.app, self.subscription);
        let of = subscription.tenant.clone().map_or(RollupOwner::Everybody, RollupOwner::Tenant);
        let events = app.config().events.page_events_max;
        let limits = EventPageLimits { events, bytes: PAGE_BYTES };
        let wants = |event: &LoggedEvent| subscription.wants(event);
        app.events.log.page(&of, after, limits, oldest(app), wants).await
    }

    async fn send(&self, page: EventPage, state: &mut RelayState) {
        let count = page.events.len() as u64;
        let events: Vec<_> = page.events.into_iter().map(|(_, event)| event).collect();
        let upto = page.upto.to_string();
        let key = format!("{}/{}/{}", self.subscription.id, state.position, state.failures);
        match submit(self.app, self.subscription, &events, &upto, &key).await {
            Ok(delivery) => {
                state.begin_page(SendingPage { upto, events: count, delivery });
            }
            // The same page was submitted before a crash, and there are more events now.
            Err(refusal) if refusal.kind == RefusalKind::IdempotencyConflict => {
                state.renew_key();
            }
            Err(refusal) if refusal.kind.is_invalid() => {
                state.stop(&format!("its events cannot be sent: {}", refusal.detail));
            }
            Err(refusal) => {
                tracing::debug!(subscription = %self.subscription, why = refusal.detail, "events wait");
                state.rest_until(self.app.clock.now() + REFUSED_PAUSE);
            }
        }
    }
}

/// Puts one page into the queue. The same page is taken once, however often this is tried.
async fn submit(
    app: &SharedState,
    subscription: &EventSubscription,
    events: &[LoggedEvent],
    upto: &str,
    key: &str,
) -> Result<DeliveryId, IntakeRefusal> {
    let sender = subscription.sender();
    app.signing
        .ensure(&sender)
        .await
        .map_err(|error| IntakeRefusal::new(RefusalKind::StoreUnavailable, error.to_string()))?;
    let payload = json!({
        "type": "events",
        "subscription": subscription.id,
        "events": events,
        "next": upto,
    });
    let message = json!({
        "to": {"address": {"channel": "webhook", "url": subscription.url}},
        "class": "transactional",
        "ttl_s": PAGE_TTL_S,
        "retry": {"retries": PAGE_RETRIES, "base_ms": 1_000, "cap_ms": 300_000},
        "content": {"webhook": {"payload": payload}},
    });
    let submission = Submission {
        body: message.to_string().into(),
        idempotency_key: Some(key.to_owned()),
        traceparent: None,
    };
    let none = |what: &str| IntakeRefusal::new(RefusalKind::Internal, what.to_owned());
    let answer = app.intake.admit(&sender, vec![submission]).await.pop();
    let answer = answer.ok_or_else(|| none("the intake gave no answer"))??;
    answer.deliveries.first().copied().ok_or_else(|| none("the message has no delivery"))
}

/// Sends a test event to the receiver of a subscription.
pub(crate) async fn send_test(
    app: &SharedState,
    subscription: &EventSubscription,
) -> Result<DeliveryId, IntakeRefusal> {
    let now = app.clock.now();
    let event = LoggedEvent::test(subscription.tenant.as_ref(), now);
    let state = RelayState::load(&*app.store, &subscription.id).await?;
    let position = state.map_or_else(|| subscription.start.clone(), |state| state.position);
    let key = format!("{}/test/{}", subscription.id, now.0);
    submit(app, subscription, &[event], &position, &key).await
}
