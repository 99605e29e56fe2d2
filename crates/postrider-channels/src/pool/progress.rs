//! Runs the tasks that hyper starts for an HTTP/2 connection. The first of them reads from the socket; it wakes the
//! connection's driver, because nothing else reports that the peer's settings have arrived.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use futures_util::task::AtomicWaker;

#[derive(Clone, Default)]
pub(super) struct Executor(Arc<Progress>);

#[derive(Default)]
struct Progress {
    reads: AtomicBool,
    listener: AtomicWaker,
}

impl Executor {
    /// Wakes the waker once, after the next bytes are read or written.
    pub(super) fn wake_next(&self, waker: &Waker) {
        self.0.listener.register(waker);
    }
}

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, part: F) {
        if self.0.reads.swap(true, Ordering::Relaxed) {
            tokio::spawn(part);
            return;
        }
        let progress = self.0.clone();
        tokio::spawn(async move {
            let mut reader = pin!(part);
            std::future::poll_fn(|cx| {
                let polled = reader.as_mut().poll(cx);
                progress.listener.wake();
                polled
            })
            .await
        });
    }
}
