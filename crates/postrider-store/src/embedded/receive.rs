//! Receives on a plain thread with a timeout, which tokio's channel does not offer.

use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;

struct WriterWaker(Thread);

impl Wake for WriterWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The next value, `None` if nobody can send any more, pending if the time is over.
pub(crate) fn receive_within<T>(from: &mut Receiver<T>, at_most: Duration) -> Poll<Option<T>> {
    let end = Instant::now() + at_most;
    let waker = Arc::new(WriterWaker(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(received) = from.poll_recv(&mut context) {
            return Poll::Ready(received);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Poll::Pending;
        }
        thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_the_wait() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let other = thread::spawn(move || sender.blocking_send(7));
        let long = Duration::from_secs(600);
        assert_eq!(receive_within(&mut receiver, long), Poll::Ready(Some(7)));
        assert_eq!(receive_within(&mut receiver, long), Poll::Ready(None));
        other.join().unwrap().unwrap();
    }

    #[test]
    fn the_wait_ends_without_a_value() {
        let (_sender, mut receiver) = tokio::sync::mpsc::channel::<u8>(1);
        assert_eq!(receive_within(&mut receiver, Duration::from_millis(1)), Poll::Pending);
    }
}
