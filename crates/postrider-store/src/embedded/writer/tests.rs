//! Who waits for whom at the one thread that writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use postrider_core::Timestamp;
use postrider_core::ports::store::{Documents as _, NewAddress, NewMessage, Registry as _};
use postrider_core::{AddressHash, TenantId};

use crate::conformance::{WorkingStore, message, webhook};
use crate::{ManualClock, StoreOptions};

const CALLERS: usize = 200;

fn open(dir: &std::path::Path) -> Arc<WorkingStore> {
    let clock = Arc::new(ManualClock::at(Timestamp(1_790_000_000_000)));
    Arc::new(WorkingStore::open(dir, clock, StoreOptions::default()).unwrap())
}

/// Starts all calls, and accepts a message when some are done. Answers how many are done when it is accepted.
async fn accept_among<F: Future<Output = ()> + Send + 'static>(
    store: &Arc<WorkingStore>,
    call: impl Fn(Arc<WorkingStore>, usize) -> F,
) -> usize {
    let done = Arc::new(AtomicUsize::new(0));
    let calls: Vec<_> = (0..CALLERS)
        .map(|n| {
            let (call, done) = (call(store.clone(), n), done.clone());
            tokio::spawn(async move {
                call.await;
                done.fetch_add(1, Ordering::SeqCst);
            })
        })
        .collect();
    // The writer has taken all that wait.
    while done.load(Ordering::SeqCst) < CALLERS / 10 {
        tokio::task::yield_now().await;
    }
    store.accept(vec![message("acme", 1)]).await.unwrap();
    let found = done.load(Ordering::SeqCst);
    for call in calls {
        call.await.unwrap();
    }
    found
}

#[tokio::test]
async fn new_work_does_not_wait_for_all_tasks_that_wait() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let done = accept_among(&store, |store, n| async move {
        store.put_document(&format!("x/{n}"), Some("{}"), None, None).await.unwrap();
    })
    .await;
    assert!(done < CALLERS / 2, "{done} tasks were done before the message was accepted");
}

#[tokio::test]
async fn addresses_that_are_registered_at_once_share_transactions() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let pages = || std::fs::metadata(dir.path().join("postrider.db-wal")).map_or(0, |m| m.len());
    let before = pages();
    accept_among(&store, |store, n| async move {
        let hash = AddressHash([u8::try_from(n).unwrap(); 16]);
        let (tenant, target) = (TenantId::new("acme"), webhook(1));
        let new = NewAddress { tenant, recipient: None, target, hash };
        assert!(store.put_address(new).await.unwrap().1);
    })
    .await;
    // Alone, each writes several pages of 4 KiB into the journal.
    let written = (pages() - before) / 4096;
    assert!(written < 2 * CALLERS as u64, "{written} pages for {CALLERS} addresses");
}

#[tokio::test]
async fn a_small_message_does_not_wait_for_the_large_ones_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let done = accept_among(&store, |store, n| async move {
        let large = format!(r#"{{"title":"{}"}}"#, "x".repeat(300_000));
        let new = NewMessage { content: large.into(), ..message("greedy", n as u32) };
        store.accept(vec![new]).await.unwrap();
    })
    .await;
    assert!(done < CALLERS / 2, "{done} large messages were written before the small one");
}
