//! Starts and ends the tasks that deliver: the [leaser](crate::leaser) and the
//! [settler](crate::settler). Leases and writes nothing itself.

use std::sync::Arc;
use std::time::Duration;

use postrider_core::ports::store::Consumer;
use postrider_core::{Channel, Clock};
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

use crate::context::DispatchContext;
use crate::decision_log::DecisionLog;
use crate::jitter_rng::JitterRng;
use crate::lanes::Lanes;
use crate::leaser::Leaser;
use crate::observer::Observer;
use crate::settler::{SettlementQueue, Settler};
use crate::unsettled_limit::UnsettledLimit;

/// How long a store that fails may delay the end.
const SETTLE_AT_END: Duration = Duration::from_secs(5);

pub struct DispatcherConfig {
    /// The clock has to be that of its store.
    pub consumer: Arc<dyn Consumer>,
    pub channels: Vec<Arc<dyn Channel>>,
    /// Also carries the classes and limits.
    pub lanes: Arc<Lanes>,
    pub clock: Arc<dyn Clock>,
    pub observer: Arc<dyn Observer>,
    /// Told of decisions before they are written.
    pub log: Option<Arc<dyn DecisionLog>>,
    /// For jitter.
    pub seed: u64,
}

/// A running dispatcher. Dropping it stops leasing; [`Dispatcher::drain`] ends it in order.
pub struct Dispatcher {
    stop: watch::Sender<bool>,
    leaser: JoinHandle<JoinSet<()>>,
    settler: JoinHandle<()>,
    consumer: Arc<dyn Consumer>,
}

/// Tells whether a dispatcher still works.
#[derive(Debug, Clone)]
pub struct DispatcherStatus {
    leaser: AbortHandle,
    settler: AbortHandle,
}

impl DispatcherStatus {
    pub fn is_running(&self) -> bool {
        !self.leaser.is_finished() && !self.settler.is_finished()
    }
}

impl Dispatcher {
    pub fn start(config: DispatcherConfig) -> Self {
        let (stop, stopped) = watch::channel(false);
        config.lanes.use_channels(config.channels.iter().cloned());
        let policies = config.lanes.policies().clone();
        let unsettled = Arc::new(UnsettledLimit::new(policies.now().limits.unsettled_max()));
        let (sender, receiver) = mpsc::unbounded_channel();
        let settler = Settler {
            consumer: config.consumer.clone(),
            unsettled: unsettled.clone(),
            observer: config.observer.clone(),
            log: config.log,
            policies,
            clock: config.clock.clone(),
        };
        let context = DispatchContext {
            consumer: config.consumer.clone(),
            clock: config.clock,
            unsettled,
            lanes: config.lanes,
            observer: config.observer,
            settlements: SettlementQueue(sender),
            random: JitterRng::new(config.seed),
            traits: config.channels.iter().map(|c| (c.kind(), c.traits())).collect(),
        };
        let leaser = Leaser::new(Arc::new(context), config.channels);
        Self {
            stop,
            leaser: tokio::spawn(leaser.run(stopped)),
            settler: tokio::spawn(settler.run(receiver)),
            consumer: config.consumer,
        }
    }

    pub fn status(&self) -> DispatcherStatus {
        let (leaser, settler) = (self.leaser.abort_handle(), self.settler.abort_handle());
        DispatcherStatus { leaser, settler }
    }

    /// Returns the cause when one of the tasks ends although nobody asked it to. Nothing is leased any more
    /// then, and the process has to end.
    pub async fn failed(&mut self) -> String {
        let (task, error) = tokio::select! {
            ended = &mut self.leaser => ("leases", ended.err()),
            ended = &mut self.settler => match ended {
                Err(error) => ("writes results", Some(error)),
                // It ends by itself only when the other one is gone.
                Ok(_) => ("leases", (&mut self.leaser).await.err()),
            },
        };
        let _ = self.stop.send(true);
        let how = error.map_or("ended".to_owned(), |error| error.to_string());
        format!("the task that {task} is gone: {how}")
    }

    /// Ends at once, as with a crash: calls under way are cut off, and nothing is given back or written.
    pub async fn kill(self) {
        self.leaser.abort();
        self.settler.abort();
        let _ = (self.leaser.await, self.settler.await);
    }

    /// Leases nothing more, lets calls under way end until the deadline, gives back the leases of those
    /// that did not, writes everything, and hands over to other workers. True if every call ended by itself.
    pub async fn drain(self, deadline: Duration) -> bool {
        let _ = self.stop.send(true);
        let Ok(mut tasks) = self.leaser.await else { return false };
        let all_ended = async { while tasks.join_next().await.is_some() {} };
        let in_time = tokio::time::timeout(deadline, all_ended).await.is_ok();
        tasks.shutdown().await;
        // The last sender went with the tasks: the settler ends when all is written.
        let written = tokio::time::timeout(SETTLE_AT_END, self.settler).await;
        let handed_over = tokio::time::timeout(SETTLE_AT_END, self.consumer.close()).await;
        in_time && written.is_ok() && handed_over.is_ok()
    }
}
