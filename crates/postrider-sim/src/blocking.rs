//! Waits for other threads without letting virtual time pass. The embedded store has its own writer
//! and readers; their work must take no virtual time and have one place in the order of events.

use std::cell::OnceCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread, ThreadId};

use tokio::runtime::{Builder, Runtime};

thread_local! {
    /// The store's readers run on this runtime. On that of the simulated process they would wake it at
    /// times that no seed decides.
    static STORE_RUNTIME: OnceCell<Option<Runtime>> = const { OnceCell::new() };
}

/// Blocks this thread, so that virtual time stands still meanwhile.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    STORE_RUNTIME.with(|runtime| {
        let runtime = runtime.get_or_init(|| Builder::new_current_thread().build().ok());
        let _entered = runtime.as_ref().map(Runtime::enter);
        // Polls of the store must not use up the task's cooperative budget.
        let mut future = pin!(tokio::task::unconstrained(future));
        let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park(),
            }
        }
    })
}

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Tasks that wait for the store. Other threads only mark them; the owner wakes them.
#[derive(Default)]
pub(crate) struct StoreWaiters(Mutex<Vec<Weak<StoreWaiter>>>);

struct StoreWaiter {
    owner: ThreadId,
    waker: Mutex<Option<Waker>>,
    marked: AtomicBool,
}

impl StoreWaiter {
    fn wake_task(&self) {
        self.marked.store(false, Ordering::SeqCst);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        waker.inspect(Waker::wake_by_ref);
    }
}

impl Wake for StoreWaiter {
    fn wake(self: Arc<Self>) {
        if thread::current().id() == self.owner {
            self.wake_task();
        } else {
            self.marked.store(true, Ordering::SeqCst);
        }
    }
}

impl StoreWaiters {
    /// Wakes the tasks that other threads marked.
    pub(crate) fn wake_marked(&self) {
        let mut waiters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiters.retain(|waiter| {
            let Some(waiter) = waiter.upgrade() else { return false };
            if waiter.marked.load(Ordering::SeqCst) {
                waiter.wake_task();
            }
            true
        });
    }

    /// Awaits `future`; the task is woken only on its own thread.
    pub(crate) async fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let waiter = Arc::new(StoreWaiter {
            owner: thread::current().id(),
            waker: Mutex::default(),
            marked: AtomicBool::new(false),
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&waiter));
        let waker = Waker::from(waiter.clone());
        let mut future = pin!(future);
        poll_fn(|context| {
            *waiter.waker.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(context.waker().clone());
            future.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
}
