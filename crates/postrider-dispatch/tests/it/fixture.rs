//! A dispatcher with the reference store, a manual clock and a channel that answers as scripted.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use postrider_channels::NetworkPolicy;
use postrider_channels::http::{EnvAndFiles, HttpIntake, SecretNames};
use postrider_channels::webhook::{WebhookIntake, WebhookTarget};
use postrider_channels::webpush::WebpushIntake;
use postrider_core::model::content::{Content, PartCheck};
use postrider_core::model::decision::DecisionKind;
use postrider_core::model::outcome::{AnswerTerms, OutcomeKind};
use postrider_core::ports::store::{Consumer, LeasedDelivery, Ledger, Store, StoreError};
use postrider_core::{
    AddressHash, Attempt, AttemptRecord, Channel, ChannelIntake, ChannelKind, ChannelTraits,
    CheckedAddress, Class, Clock, DeadReason, Delivery, DeliveryId, FieldError, Finished, LaneKey,
    Message, Outcome, Report, State, StrikeKind, Target, TenantId, Timestamp,
};
use postrider_dispatch::lanes::OperatorOrder;
use postrider_dispatch::{
    Capacities, DispatchLimits, Dispatcher, DispatcherConfig, IntakeAnswer, Lanes, MessageIntake,
    Observer, Policies, Policy, Submission,
};
use postrider_store::{ManualClock, MemoryStore};
use tokio::sync::{Notify, mpsc};

/// What the observer was told.
#[derive(Debug, PartialEq)]
pub(crate) enum ObservedEvent {
    Attempted(OutcomeKind, DecisionKind),
    Finished(State, Option<DeadReason>),
    /// The store failed.
    Trouble,
    /// A strike; the flag says that it makes the address suspect.
    Struck(StrikeKind, bool),
}

struct EventObserver(mpsc::UnboundedSender<ObservedEvent>, Arc<Mutex<Duration>>);

impl Observer for EventObserver {
    fn taken_up(&self, late: Duration) {
        let mut latest = self.1.lock().unwrap();
        *latest = late.max(*latest);
    }

    fn attempted(&self, _: &LaneKey, _: &LeasedDelivery, attempt: &AttemptRecord) {
        let _ = self.0.send(ObservedEvent::Attempted(attempt.outcome, attempt.decision));
    }

    fn finished(
        &self,
        _: &LaneKey,
        _: DeliveryId,
        _: &Message,
        state: State,
        reason: Option<DeadReason>,
        _: Duration,
    ) {
        let _ = self.0.send(ObservedEvent::Finished(state, reason));
    }

    fn struck(&self, _: &LaneKey, _: AddressHash, kind: StrikeKind, suspected: bool) {
        let _ = self.0.send(ObservedEvent::Struck(kind, suspected));
    }

    fn store_trouble(&self, _: &'static str, _: &StoreError) {
        let _ = self.0.send(ObservedEvent::Trouble);
    }
}

pub(crate) const WEBHOOK: ChannelKind = postrider_channels::webhook::KIND;

/// Answers in the order told, then accepts everything.
#[derive(Default)]
pub(crate) struct ScriptedChannel {
    script: Mutex<VecDeque<Option<Outcome>>>,
    pub(crate) calls: Mutex<Vec<Attempt>>,
    /// What goes with every answer that is no acceptance.
    pub(crate) terms: Mutex<AnswerTerms>,
    /// A `None` in the script waits for this.
    pub(crate) hang: Notify,
}

#[async_trait::async_trait]
impl Channel for ScriptedChannel {
    fn kind(&self) -> ChannelKind {
        WEBHOOK
    }

    fn traits(&self) -> &'static ChannelTraits {
        &ChannelTraits::PLAIN
    }

    async fn deliver(&self, batch: Vec<Attempt>, done: &(dyn Fn(Finished) + Send + Sync)) {
        for attempt in batch {
            let slot = attempt.slot;
            self.calls.lock().unwrap().push(attempt);
            let next = self.script.lock().unwrap().pop_front().unwrap_or(Some(Outcome::Accepted));
            match next {
                Some(Outcome::Accepted) => {
                    let report = Report::new(Outcome::Accepted);
                    done(Finished { slot, report, latency_ms: 1, waited_ms: 0 })
                }
                Some(outcome) => {
                    let report = Report::judged((outcome, *self.terms.lock().unwrap()));
                    done(Finished { slot, report, latency_ms: 1, waited_ms: 0 })
                }
                None => self.hang.notified().await,
            }
        }
    }
}

impl ScriptedChannel {
    /// Whom was called, in order.
    pub(crate) fn urls(&self) -> Vec<String> {
        self.calls
            .lock()
            .unwrap()
            .iter()
            .map(|call| {
                let target: WebhookTarget<'_> = call.target.read().unwrap();
                target.url.into_owned()
            })
            .collect()
    }

    /// What it answers next.
    pub(crate) fn then(&self, script: Vec<Option<Outcome>>) {
        self.script.lock().unwrap().extend(script);
    }

    /// Forgets the rest of the script.
    pub(crate) fn answer_well(&self) {
        self.script.lock().unwrap().clear();
    }
}

/// Lets everything run that can.
pub(crate) async fn settle_down() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// What somebody says to a lane.
pub(crate) fn order() -> OperatorOrder {
    OperatorOrder::new("an operator", Timestamp::default())
}

pub(crate) struct DispatchFixture {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) intake: MessageIntake,
    pub(crate) channel: Arc<ScriptedChannel>,
    pub(crate) tenant: TenantId,
    events: mpsc::UnboundedReceiver<ObservedEvent>,
    ear: mpsc::UnboundedSender<ObservedEvent>,
    latest: Arc<Mutex<Duration>>,
    dispatcher: Option<Dispatcher>,
    pub(crate) lanes: Arc<Lanes>,
    classes: Vec<Class>,
    policies: Arc<Policies>,
}

/// A channel for which there is no account.
struct WithoutAccounts(ChannelKind);

impl ChannelIntake for WithoutAccounts {
    fn kind(&self) -> ChannelKind {
        self.0
    }

    fn traits(&self) -> &'static ChannelTraits {
        &ChannelTraits { has_accounts: true, ..ChannelTraits::PLAIN }
    }

    fn serves(&self, _: &TenantId) -> bool {
        false
    }

    fn address(&self, _: &str) -> Result<CheckedAddress, Vec<FieldError>> {
        Err(Vec::new())
    }

    fn locator<'a>(&self, target: &'a Target) -> Cow<'a, str> {
        target.as_json().into()
    }

    fn provider(&self, _: &Target) -> Arc<str> {
        self.0.name().into()
    }

    fn part_check(&self) -> PartCheck {
        |_| Ok(())
    }

    fn check(&self, _: &Content<'_>) -> Result<(), Vec<FieldError>> {
        Ok(())
    }

    fn method<'a>(&self, _: &'a Target) -> Cow<'a, str> {
        self.0.to_string().into()
    }
}

fn intake(store: &Arc<MemoryStore>, policies: &Arc<Policies>) -> MessageIntake {
    let policy = NetworkPolicy::default();
    let mut intakes: Vec<Arc<dyn ChannelIntake>> = vec![
        Arc::new(WebpushIntake { policy, receipts: None }),
        Arc::new(WebhookIntake { policy }),
        Arc::new(HttpIntake {
            policy,
            credentials: Arc::new(EnvAndFiles::default()),
            names: SecretNames::default(),
        }),
    ];
    for kind in ["fcm", "apns", "email", "sms"] {
        intakes.push(Arc::new(WithoutAccounts(ChannelKind::new(kind))));
    }
    MessageIntake::new(store.clone(), intakes, policies.clone(), &[b"hash key".to_vec()])
}

impl DispatchFixture {
    pub(crate) fn new(script: Vec<Option<Outcome>>) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let classes = Class::built_in();
        let policies = Policies::new(Policy::new(classes.clone(), DispatchLimits::default()));
        let intake = intake(&store, &policies);
        let channel = Arc::new(ScriptedChannel {
            script: Mutex::new(script.into()),
            ..ScriptedChannel::default()
        });
        let (ear, events) = mpsc::unbounded_channel();
        let lanes = Lanes::new(policies.clone(), clock.clone(), 11);
        Self {
            store,
            clock,
            intake,
            channel,
            tenant: TenantId::new("acme"),
            events,
            ear,
            latest: Arc::default(),
            dispatcher: None,
            lanes,
            classes,
            policies,
        }
    }

    pub(crate) async fn start(&mut self) {
        self.start_with(DispatchLimits::default()).await;
    }

    pub(crate) async fn start_with(&mut self, limits: DispatchLimits) {
        self.start_on(self.channel.clone(), limits).await;
    }

    pub(crate) fn start_over(&mut self, consumer: Arc<dyn Consumer>, limits: DispatchLimits) {
        self.run(consumer, self.channel.clone(), limits);
    }

    pub(crate) async fn start_on(&mut self, channel: Arc<dyn Channel>, limits: DispatchLimits) {
        let consumer = self.store.consumer("node").await.unwrap();
        self.run(consumer, channel, limits);
    }

    fn run(
        &mut self,
        consumer: Arc<dyn Consumer>,
        channel: Arc<dyn Channel>,
        limits: DispatchLimits,
    ) {
        self.lanes = Lanes::new(self.policies.clone(), self.clock.clone(), 11);
        self.adopt(limits);
        self.dispatcher = Some(Dispatcher::start(DispatcherConfig {
            consumer,
            channels: vec![channel],
            lanes: self.lanes.clone(),
            clock: self.clock.clone(),
            observer: Arc::new(EventObserver(self.ear.clone(), self.latest.clone())),
            log: None,
            seed: 7,
        }));
    }

    /// How late deliveries were taken up since the last call, at most.
    pub(crate) fn take_lag(&self) -> Duration {
        std::mem::take(&mut self.latest.lock().unwrap())
    }

    pub(crate) fn dispatcher(&mut self) -> &mut Dispatcher {
        self.dispatcher.as_mut().unwrap()
    }

    pub(crate) fn drop_dispatcher(&mut self) {
        self.dispatcher = None;
    }

    pub(crate) fn add_class(&mut self, class: Class) {
        self.classes.push(class);
        self.adopt(DispatchLimits::default());
    }

    /// Changes what holds, also while it runs.
    pub(crate) fn adopt(&self, limits: DispatchLimits) {
        let capacities = self.policies.now().capacities.clone();
        self.lanes.adopt(Policy::new(self.classes.clone(), limits).bounded(capacities));
    }

    /// Sets how much may be pending.
    pub(crate) fn bound(&self, capacities: Capacities) {
        let policy = Policy::new(self.classes.clone(), DispatchLimits::default());
        self.lanes.adopt(policy.bounded(capacities));
    }

    pub(crate) async fn drain(&mut self, deadline: Duration) -> bool {
        self.dispatcher.take().unwrap().drain(deadline).await
    }

    pub(crate) async fn submit(&self, json: &str) -> DeliveryId {
        let body = json.to_owned().into();
        let submission = Submission { body, idempotency_key: None, traceparent: None };
        match self.intake.admit(&self.tenant, vec![submission]).await.pop().unwrap() {
            Ok(IntakeAnswer { deliveries, duplicate: false, .. }) => deliveries[0],
            other => panic!("not accepted: {other:?}"),
        }
    }

    /// Webhooks to so many addresses; `more` goes into each message.
    pub(crate) async fn submit_many(&self, count: usize, more: &str) -> Vec<DeliveryId> {
        let mut ids = Vec::new();
        for n in 0..count {
            let url = format!("https://hooks.example/{n}");
            let to =
                format!(r#"{{"to":{{"address":{{"channel":"webhook","url":"{url}"}}}}{more}}}"#);
            ids.push(self.submit(&to).await);
        }
        ids
    }

    pub(crate) async fn webhook(&self, more: &str) -> DeliveryId {
        self.submit(&format!(
            r#"{{"to":{{"address":{{"channel":"webhook","url":"https://hooks.example/a"}}}}{more}}}"#
        ))
        .await
    }

    pub(crate) async fn event(&mut self) -> ObservedEvent {
        let next = tokio::time::timeout(Duration::from_secs(10), self.events.recv());
        next.await.expect("an event within ten seconds").unwrap()
    }

    /// What was told already, if anything.
    pub(crate) fn heard(&mut self) -> Option<ObservedEvent> {
        self.events.try_recv().ok()
    }

    /// Waits for the end of a delivery, whatever happens before.
    pub(crate) async fn finished(&mut self) -> (State, Option<DeadReason>) {
        loop {
            if let ObservedEvent::Finished(state, reason) = self.event().await {
                return (state, reason);
            }
        }
    }

    pub(crate) fn calls(&self) -> usize {
        self.channel.calls.lock().unwrap().len()
    }

    pub(crate) async fn delivery(&self, id: DeliveryId) -> Delivery {
        self.store.delivery(None, id).await.unwrap().unwrap()
    }

    /// Waits until a delivery is in a state that no event announces.
    pub(crate) async fn becomes(&self, id: DeliveryId, state: State) -> Delivery {
        let patience = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            let delivery = self.delivery(id).await;
            if delivery.state == state {
                return delivery;
            }
            assert!(std::time::Instant::now() < patience, "{delivery:?} never became {state}");
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
