//! Renders templates beside the threads that serve requests: few at once, each for a short time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

/// A rendering has so much time.
pub const RENDER_TIME: Duration = Duration::from_millis(100);
/// How long one waits until others are done.
const WAIT: Duration = Duration::from_secs(2);
/// How much later than its time a rendering may notice it.
const GRACE: Duration = Duration::from_millis(50);

/// Why nothing was rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderTimeout;

#[derive(Debug)]
pub struct RenderPool {
    permits: Arc<Semaphore>,
}

impl Default for RenderPool {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self { permits: Arc::new(Semaphore::new(threads)) }
    }
}

impl RenderPool {
    /// Runs `work`, which ends by its deadline.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(Instant) -> T + Send + 'static,
    ) -> Result<T, RenderTimeout> {
        let permit = tokio::time::timeout(WAIT, self.permits.clone().acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok).ok_or(RenderTimeout)?;
        let job = tokio::task::spawn_blocking(move || {
            let made = work(Instant::now() + RENDER_TIME);
            drop(permit);
            made
        });
        let done = tokio::time::timeout(RENDER_TIME + GRACE + WAIT, job).await;
        done.ok().and_then(Result::ok).ok_or(RenderTimeout)
    }
}
