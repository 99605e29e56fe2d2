//! Receiving on a plain thread with an end to the waiting, which the channel itself does not offer.

use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Receiver;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The next of what is sent, nothing if nobody can send any more, pending if the time is over.
pub(super) fn receive_within<T>(from: &mut Receiver<T>, at_most: Duration) -> Poll<Option<T>> {
    let end = Instant::now() + at_most;
    let waker = Arc::new(Unpark(thread::current())).into();
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
    fn what_is_sent_meanwhile_ends_the_wait() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let other = thread::spawn(move || sender.blocking_send(7));
        let long = Duration::from_secs(600);
        assert_eq!(receive_within(&mut receiver, long), Poll::Ready(Some(7)));
        assert_eq!(receive_within(&mut receiver, long), Poll::Ready(None));
        other.join().unwrap().unwrap();
    }

    #[test]
    fn the_wait_ends_with_nothing_sent() {
        let (_sender, mut receiver) = tokio::sync::mpsc::channel::<u8>(1);
        assert_eq!(receive_within(&mut receiver, Duration::from_millis(1)), Poll::Pending);
    }
}
