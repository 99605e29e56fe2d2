//! Waiting for other threads such that nobody can tell how long it took: the embedded store has a
//! writer and readers of its own, and whatever they do must look, from here, as if it took no time
//! and happened at one place in the order of things.

use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};

use tokio::runtime::{Builder, Runtime};

thread_local! {
    /// Whose threads the store's readers run on: those of the simulated process would wake it at
    /// moments that no seed decides.
    static HELPERS: OnceCell<Option<Runtime>> = const { OnceCell::new() };
}

/// Waits on this very thread: what it drives, virtual time included, stands still meanwhile.
pub(crate) fn wait_for<T>(future: impl Future<Output = T>) -> T {
    HELPERS.with(|helpers| {
        let helpers = helpers.get_or_init(|| Builder::new_current_thread().build().ok());
        let _entered = helpers.as_ref().map(Runtime::enter);
        // A task's share of its runtime is spent by polls; those of others are none of its.
        let mut future = pin!(tokio::task::unconstrained(future));
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park(),
            }
        }
    })
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Those who wait for the store. Other threads only leave a note for them.
#[derive(Default)]
pub(crate) struct Bells(Mutex<Vec<Weak<Bell>>>);

struct Bell {
    home: ThreadId,
    waits: Mutex<Option<Waker>>,
    noted: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        self.noted.store(false, Ordering::SeqCst);
        let waker = self.waits.lock().unwrap_or_else(PoisonError::into_inner).take();
        waker.inspect(Waker::wake_by_ref);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if thread::current().id() == self.home {
            self.ring();
        } else {
            self.noted.store(true, Ordering::SeqCst);
        }
    }
}

impl Bells {
    /// Passes on what was noted meanwhile.
    pub(crate) fn ring(&self) {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bells.retain(|bell| {
            let Some(bell) = bell.upgrade() else { return false };
            if bell.noted.load(Ordering::SeqCst) {
                bell.ring();
            }
            true
        });
    }

    /// Waits like `future`, and is woken on its own thread only.
    pub(crate) async fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let bell = Arc::new(Bell {
            home: thread::current().id(),
            waits: Mutex::default(),
            noted: AtomicBool::new(false),
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&bell));
        let waker = Waker::from(bell.clone());
        let mut future = pin!(future);
        poll_fn(|context| {
            *bell.waits.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(context.waker().clone());
            future.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
}
