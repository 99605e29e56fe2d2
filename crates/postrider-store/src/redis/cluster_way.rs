//! The connections to a cluster, which all callers share. The client looks after them by itself, but it can come to a
//! stand when many of them end at once, and then never answers again: a client that answers nobody is replaced.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use redis::cluster_async::ClusterConnection;
use tokio::time::Instant;

use super::failure::{RedisFailure, RedisResult};
use super::link::{RedisLink, SILENT_AFTER};

/// A client that answered nobody for so long stands still. Longer than writes wait for replicas, and shorter than a
/// worker without heartbeats keeps its shards.
const STANDS_STILL_AFTER: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct ClusterWay {
    held: tokio::sync::Mutex<HeldCluster>,
    /// When anybody last got an answer, or an error.
    answered: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct HeldCluster {
    connection: Option<ClusterConnection>,
    /// Counts the clients.
    number: u64,
}

impl ClusterWay {
    /// Sends a command to the cluster.
    pub(super) async fn send(
        &self,
        link: &RedisLink,
        command: impl AsyncFnOnce(ClusterConnection) -> redis::RedisResult<Value>,
    ) -> RedisResult<Value> {
        let (connection, number) = self.connection(link).await?;
        let began = Instant::now();
        let sending = command(connection);
        tokio::pin!(sending);
        loop {
            let Ok(done) = tokio::time::timeout(STANDS_STILL_AFTER, &mut sending).await else {
                if self.stands_still() || began.elapsed() >= SILENT_AFTER {
                    self.replace(number).await;
                    return Err(RedisFailure::Silent(began.elapsed()));
                }
                continue;
            };
            self.note_answer();
            return match done {
                Err(error) if error.is_timeout() => {
                    self.replace(number).await;
                    Err(RedisFailure::Silent(began.elapsed()))
                }
                done => Ok(done?),
            };
        }
    }

    async fn connection(&self, link: &RedisLink) -> RedisResult<(ClusterConnection, u64)> {
        let mut held = self.held.lock().await;
        if let Some(connection) = &held.connection {
            return Ok((connection.clone(), held.number));
        }
        let connection = link.connect_to_cluster().await?;
        held.connection = Some(connection.clone());
        held.number += 1;
        self.note_answer();
        Ok((connection, held.number))
    }

    /// The next caller gets a new client, unless it has one already.
    async fn replace(&self, number: u64) {
        let mut held = self.held.lock().await;
        if held.number == number && held.connection.take().is_some() {
            tracing::warn!("the cluster does not answer; connecting again");
        }
    }

    fn note_answer(&self) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    fn stands_still(&self) -> bool {
        let answered = *self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        answered.is_none_or(|at| at.elapsed() >= STANDS_STILL_AFTER)
    }
}
