//! Requests that wait for the writer. Results come before new work, so that a flood of new work cannot hold up
//! what was sent already, and a transaction takes little new work, so that nobody waits long for it.

use std::collections::VecDeque;

use super::requests::{WriterRequest, WriterTask};

/// Rows of results in one transaction.
const RESULT_ROWS: usize = 8_192;
/// Rows of new work in one transaction, and in one request. A larger message has one for itself.
pub(super) const NEW_ROWS: usize = 1_000;
/// Bytes of content in one transaction, beside its oldest message: small messages do not wait until a disk has written
/// all the large ones of others.
const NEW_BYTES: usize = 512 << 10;
/// Requests that one transaction leaves behind because they do not fit.
const PASSED_OVER: usize = 256;

#[derive(Default)]
pub(crate) struct RequestQueue {
    /// Results and tasks.
    first: VecDeque<WriterRequest>,
    new_work: VecDeque<WriterRequest>,
    /// Deletions of what is old, which are done between transactions.
    prunes: VecDeque<WriterRequest>,
}

impl RequestQueue {
    pub(crate) fn push(&mut self, mut request: WriterRequest) {
        if matches!(request, WriterRequest::Prune(_)) {
            return self.prunes.push_back(request);
        }
        let is_new_work = request.as_shared_write().is_some_and(|write| write.is_new_work());
        if is_new_work { self.new_work.push_back(request) } else { self.first.push_back(request) }
    }

    /// Whether nobody waits for a transaction.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.new_work.is_empty()
    }

    pub(crate) fn next_prune(&mut self) -> Option<WriterRequest> {
        self.prunes.pop_front()
    }

    /// The requests of the next transaction: results up to the next task, and some new work.
    pub(crate) fn next_group(&mut self) -> Vec<WriterRequest> {
        let mut group = Vec::new();
        take_rows(&mut self.first, RESULT_ROWS, &mut group);
        take_new_work(&mut self.new_work, &mut group);
        group
    }

    /// The next task, if no result is before it.
    pub(crate) fn next_task(&mut self) -> Option<WriterTask> {
        match self.first.pop_front()? {
            WriterRequest::Task(task) => Some(task),
            other => {
                self.first.push_front(other);
                None
            }
        }
    }
}

/// Takes the oldest request, however large it is, and those behind it that fit. What does not fit stays in its order,
/// so that its oldest one is the first of the next transaction.
fn take_new_work(from: &mut VecDeque<WriterRequest>, group: &mut Vec<WriterRequest>) {
    take_rows(from, 1, group);
    let mut rows: usize = group.last_mut().map_or(0, |first| size(first).0);
    let (mut bytes, mut left) = (0, Vec::new());
    while rows < NEW_ROWS && left.len() < PASSED_OVER {
        let Some(mut request) = from.pop_front() else { break };
        let (more, long) = size(&mut request);
        if rows + more > NEW_ROWS || bytes + long > NEW_BYTES {
            left.push(request);
            continue;
        }
        (rows, bytes) = (rows + more, bytes + long);
        group.push(request);
    }
    left.into_iter().rev().for_each(|request| from.push_front(request));
}

/// Rows and bytes of content.
fn size(request: &mut WriterRequest) -> (usize, usize) {
    request.as_shared_write().map_or((0, 0), |write| (write.rows(), write.bytes()))
}

/// Takes requests that share a transaction, until they have so many rows; at least one.
fn take_rows(from: &mut VecDeque<WriterRequest>, rows_max: usize, group: &mut Vec<WriterRequest>) {
    let mut rows = 0;
    while let Some(mut request) = from.pop_front() {
        let more = request.as_shared_write().map(|write| write.rows());
        match more {
            Some(more) if rows == 0 || rows + more <= rows_max => {
                rows += more;
                group.push(request);
            }
            _ => return from.push_front(request),
        }
    }
}
