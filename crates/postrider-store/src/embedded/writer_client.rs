//! Requests to the writer, and its answers. Does not keep the writer alive: that is the store's part.

use postrider_core::ports::store::{StoreError, StoreResult};
use tokio::sync::{mpsc, oneshot};

use super::request_queue::NEW_ROWS;
use super::requests::{GroupedWrite, SharedRow, WriterRequest};
use super::writer::Writer;

#[derive(Clone)]
pub(crate) struct WriterClient {
    requests: mpsc::WeakSender<WriterRequest>,
}

impl WriterClient {
    pub(crate) fn new(requests: &mpsc::Sender<WriterRequest>) -> Self {
        Self { requests: requests.downgrade() }
    }

    /// Sends a request and waits for its answer.
    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<StoreResult<T>>) -> WriterRequest,
    ) -> StoreResult<T> {
        let (reply_to, reply) = oneshot::channel();
        self.send(request(reply_to)).await?;
        reply.await.map_err(|_| StoreError::Closed)?
    }

    async fn send(&self, request: WriterRequest) -> StoreResult<()> {
        let requests = self.requests.upgrade().ok_or(StoreError::Closed)?;
        requests.send(request).await.map_err(|_| StoreError::Closed)
    }

    /// Writes rows in a transaction that other callers share. A row that could not be prepared gets its error.
    pub(crate) async fn write<R: SharedRow>(
        &self,
        rows: impl Iterator<Item = StoreResult<R>>,
        request: fn(GroupedWrite<R>) -> WriterRequest,
    ) -> Vec<StoreResult<R::Answer>> {
        let (mut prepared, mut failed) = (Vec::with_capacity(rows.size_hint().0), Vec::new());
        for (place, row) in rows.enumerate() {
            match row {
                Ok(row) => prepared.push(row),
                Err(error) => failed.push((place, error)),
            }
        }
        let mut parts = Vec::new();
        for part in in_parts(prepared) {
            let (count, (reply_to, reply)) = (part.len(), oneshot::channel());
            let sent = self.send(request(GroupedWrite::new(part, reply_to))).await;
            parts.push((count, sent.map(|()| reply)));
        }
        let mut answers = Vec::new();
        for (count, reply) in parts {
            let written = match reply {
                Ok(reply) => reply.await.unwrap_or(Err(StoreError::Closed)),
                Err(error) => Err(error),
            };
            match written {
                Ok((some, _)) => answers.extend(some),
                Err(error) => answers.extend((0..count).map(|_| Err(error.clone()))),
            }
        }
        for (place, error) in failed {
            answers.insert(place.min(answers.len()), Err(error));
        }
        answers
    }

    /// Runs `task` on the writer's thread.
    pub(crate) async fn run_task<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut Writer) -> StoreResult<T> + Send + 'static,
    ) -> StoreResult<T> {
        self.ask(|reply_to| {
            WriterRequest::Task(Box::new(move |writer| drop(reply_to.send(task(writer)))))
        })
        .await
    }

    /// The same without waiting. False if the writer has no room for another request.
    pub(crate) fn run_soon(&self, task: impl FnOnce(&mut Writer) + Send + 'static) -> bool {
        let request = WriterRequest::Task(Box::new(task));
        self.requests.upgrade().is_some_and(|requests| requests.try_send(request).is_ok())
    }
}

/// New work in requests that are small enough for one transaction, so that nobody waits long behind a large one.
/// Everything else, and most new work, stays together.
fn in_parts<R: SharedRow>(rows: Vec<R>) -> Vec<Vec<R>> {
    if rows.is_empty() {
        return Vec::new();
    }
    if !R::IS_NEW_WORK || rows.iter().map(R::rows).sum::<usize>() <= NEW_ROWS {
        return vec![rows];
    }
    let (mut parts, mut part, mut size) = (Vec::new(), Vec::new(), 0);
    for row in rows {
        let more = row.rows();
        if size > 0 && size + more > NEW_ROWS {
            parts.push(std::mem::take(&mut part));
            size = 0;
        }
        size += more;
        part.push(row);
    }
    parts.push(part);
    parts
}
