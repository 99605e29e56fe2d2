//! Records receipts, some in one write: whoever sends one waits for it, and no delivery does. How many may wait is
//! bounded.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::model::receipt::ReceiptStep;
use postrider_core::ports::store::{NewReceipt, ReceiptResult, Store, StoreResult};
use postrider_core::{Delivery, DeliveryId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::events::{EventRecorder, LoggedEvent};
use crate::telemetry::Metrics;

/// Receipts that wait to be written.
const WAITING_MAX: usize = 4_096;
/// Receipts of one write.
const AT_ONCE: usize = 256;
/// The time between two writes, in which receipts gather.
const PAUSE: Duration = Duration::from_millis(20);
/// Receipts that came before the result of their attempt, and how often and when they are tried again.
const EARLY_MAX: usize = 1_024;
const EARLY_TRIES: u32 = 8;
const EARLY_PAUSE: Duration = Duration::from_millis(250);

/// What became of a receipt.
#[derive(Debug)]
pub(crate) enum ReceiptAnswer {
    Stored(StoreResult<ReceiptResult>),
    /// Too many wait.
    Full,
}

struct WaitingReceipt {
    receipt: NewReceipt,
    /// How often it was too early.
    tries: u32,
    answer: oneshot::Sender<StoreResult<ReceiptResult>>,
}

pub(crate) struct ReceiptRecorder {
    waiting: mpsc::Sender<WaitingReceipt>,
}

impl ReceiptRecorder {
    /// Also the task that writes.
    pub(crate) fn start(
        store: Arc<dyn Store>,
        metrics: Arc<Metrics>,
        events: Arc<EventRecorder>,
    ) -> (Self, JoinHandle<()>) {
        let (waiting, receipts) = mpsc::channel(WAITING_MAX);
        let writer = ReceiptWriter { store, metrics, events, early: Vec::new() };
        (Self { waiting }, tokio::spawn(writer.run(receipts)))
    }

    /// Durable on return, if it is recorded.
    pub(crate) async fn record(&self, receipt: NewReceipt) -> ReceiptAnswer {
        let (answer, answered) = oneshot::channel();
        if self.waiting.try_send(WaitingReceipt { receipt, tries: 0, answer }).is_err() {
            return ReceiptAnswer::Full;
        }
        answered.await.map_or(ReceiptAnswer::Full, ReceiptAnswer::Stored)
    }
}

struct ReceiptWriter {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
    events: Arc<EventRecorder>,
    early: Vec<WaitingReceipt>,
}

impl ReceiptWriter {
    async fn run(mut self, mut receipts: mpsc::Receiver<WaitingReceipt>) {
        let mut try_early_at = Instant::now();
        loop {
            let mut batch = Vec::new();
            tokio::select! {
                taken = receipts.recv_many(&mut batch, AT_ONCE) => if taken == 0 { return },
                () = tokio::time::sleep_until(try_early_at), if !self.early.is_empty() => {}
            }
            if Instant::now() >= try_early_at {
                batch.append(&mut self.early);
                try_early_at = Instant::now() + EARLY_PAUSE;
            }
            if batch.is_empty() {
                continue;
            }
            self.write(batch).await;
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn write(&mut self, batch: Vec<WaitingReceipt>) {
        let receipts: Vec<_> = batch.iter().map(|waiting| waiting.receipt).collect();
        if self.events.subscriptions.is_any() {
            self.log_events(&receipts).await;
        }
        let answers = self.store.record_receipts(receipts).await;
        for (mut waiting, answer) in batch.into_iter().zip(answers) {
            if let Ok(ReceiptResult::Recorded { delivery, .. }) = &answer {
                self.metrics.receipt_recorded(delivery, waiting.receipt.kind);
            }
            let is_early = matches!(answer, Ok(ReceiptResult::Early));
            if is_early && waiting.tries < EARLY_TRIES && self.early.len() < EARLY_MAX {
                waiting.tries += 1;
                self.early.push(waiting);
                continue;
            }
            // Whoever sent it may be gone.
            let _ = waiting.answer.send(answer);
        }
    }

    /// Logs what the receipts will change: an event is durable before the state that it tells of.
    async fn log_events(&self, receipts: &[NewReceipt]) {
        let now = self.store.clock().now();
        let mut deliveries: HashMap<DeliveryId, Delivery> = HashMap::new();
        let mut events = Vec::new();
        for receipt in receipts {
            if !deliveries.contains_key(&receipt.delivery)
                && let Ok(Some(found)) = self.store.delivery(None, receipt.delivery).await
            {
                deliveries.insert(found.id, found);
            }
            let found = deliveries.get_mut(&receipt.delivery);
            let Some(delivery) = found.filter(|found| found.state.is_final()) else { continue };
            let step = ReceiptStep::of(delivery.state, &delivery.receipts, receipt.kind);
            let Some(step) = step.filter(|step| step.state != delivery.state) else { continue };
            events.extend(LoggedEvent::of_receipt(delivery, receipt.kind, step.state, now));
            delivery.state = step.state;
        }
        if !events.is_empty() {
            self.events.note(events).await;
        }
    }
}
