//! Says that the store cannot go on, because its memory and its disk may disagree. The process then has to end:
//! the next start reads the disk anew.

use std::sync::Arc;

use tokio::sync::watch;

/// Shared by the store and those who end the process.
#[derive(Clone)]
pub struct StoreFailure(Arc<watch::Sender<Option<String>>>);

impl Default for StoreFailure {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl StoreFailure {
    /// The first cause counts.
    pub(crate) fn fail(&self, cause: String) {
        let is_new = self.0.send_if_modified(|known| {
            let is_new = known.is_none();
            known.get_or_insert_with(|| cause.clone());
            is_new
        });
        if is_new {
            tracing::error!(cause, "the store cannot go on");
        }
    }

    /// What the disk has now is not known, and a second try would not tell: the pages may be gone.
    pub(crate) fn fail_sync(&self, error: &dyn std::fmt::Display) {
        self.fail(format!("the disk did not confirm a write: {error}"));
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.0.borrow().is_some()
    }

    pub fn cause(&self) -> Option<String> {
        self.0.borrow().clone()
    }

    /// Returns the cause once the store has failed.
    pub async fn wait(&self) -> String {
        let mut failed = self.0.subscribe();
        match failed.wait_for(Option::is_some).await {
            Ok(cause) => cause.clone().unwrap_or_default(),
            // This value holds the sender.
            Err(_) => std::future::pending().await,
        }
    }
}

/// Runs the work of a thread. A panic is a failure of the store.
pub(crate) fn run_or_fail(failure: &StoreFailure, thread: &str, work: impl FnOnce()) -> bool {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    let Err(panic) = done else { return true };
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    failure.fail(format!("{thread} panicked: {}", text.unwrap_or_default()));
    false
}
