//! Measures one attempt, and how long it waited on our side before its request was written.

use std::cell::Cell;

use tokio::time::Instant;

tokio::task_local! {
    /// When the request of the current attempt was written.
    static WRITTEN: Cell<Option<Instant>>;
}

/// How long an attempt took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallTimes {
    /// From its start to its end.
    pub(crate) latency_ms: u32,
    /// From its start until its request was written; all of it if none was.
    pub(crate) waited_ms: u32,
}

/// Marks the request of the current attempt as written. Only the first request of an attempt counts.
pub(crate) fn mark_written() {
    // Checks of an account make calls that are no attempts.
    let _ = WRITTEN.try_with(|written| {
        written.set(Some(written.get().unwrap_or_else(Instant::now)));
    });
}

/// Runs one attempt and measures it.
pub(crate) async fn measure<T>(attempt: impl Future<Output = T>) -> (T, CallTimes) {
    let start = Instant::now();
    let measured = async {
        let end = attempt.await;
        (end, WRITTEN.with(Cell::get))
    };
    let (end, written) = WRITTEN.scope(Cell::new(None), measured).await;
    let over = Instant::now();
    let since = |moment: Instant| u32::try_from((moment - start).as_millis()).unwrap_or(u32::MAX);
    (end, CallTimes { latency_ms: since(over), waited_ms: since(written.unwrap_or(over)) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    async fn wait_and_call(waits_ms: u64, calls_ms: u64) {
        sleep(Duration::from_millis(waits_ms)).await;
        mark_written();
        sleep(Duration::from_millis(calls_ms)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_when_the_first_request_is_written() {
        let twice = async {
            wait_and_call(20, 300).await;
            wait_and_call(0, 80).await;
        };
        let (_, times) = measure(twice).await;
        assert_eq!(times, CallTimes { latency_ms: 400, waited_ms: 20 });
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_without_a_request_only_waited() {
        let (_, times) = measure(sleep(Duration::from_millis(70))).await;
        assert_eq!(times, CallTimes { latency_ms: 70, waited_ms: 70 });
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_of_one_task_are_measured_apart() {
        let both = futures_util::future::join(
            measure(wait_and_call(10, 0)),
            measure(wait_and_call(500, 500)),
        );
        let ((_, first), (_, second)) = both.await;
        assert_eq!((first.waited_ms, second.waited_ms), (10, 500));
    }
}
