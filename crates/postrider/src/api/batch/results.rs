//! A channel for the results of a batch, bounded in bytes. A caller may send that much before it reads.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream;
use tokio::sync::{Semaphore, mpsc};

pub(super) struct ResultsSender {
    chunks: mpsc::UnboundedSender<Bytes>,
    room: Arc<Semaphore>,
    max: usize,
}

/// The caller stopped reading.
#[derive(Debug)]
pub(super) struct Hangup;

struct ResultsReader {
    chunks: mpsc::UnboundedReceiver<Bytes>,
    room: Arc<Semaphore>,
    max: usize,
}

pub(super) fn channel(
    max: usize,
) -> (ResultsSender, impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(max));
    let reading = ResultsReader { chunks: receiver, room: room.clone(), max };
    let stream = stream::unfold(reading, |mut reading| async {
        let chunk = reading.chunks.recv().await?;
        reading.room.add_permits(cost(&chunk, reading.max));
        Some((Ok(chunk), reading))
    });
    (ResultsSender { chunks: sender, room, max }, stream)
}

impl ResultsSender {
    pub(super) async fn send(&self, chunk: Bytes) -> Result<(), Hangup> {
        let cost = u32::try_from(cost(&chunk, self.max)).unwrap_or(u32::MAX);
        self.room.acquire_many(cost).await.map_err(|_| Hangup)?.forget();
        self.chunks.send(chunk).map_err(|_| Hangup)
    }
}

impl Drop for ResultsReader {
    fn drop(&mut self) {
        self.room.close();
    }
}

/// A chunk that is larger than the bound passes alone.
fn cost(chunk: &Bytes, max: usize) -> usize {
    chunk.len().min(max)
}
