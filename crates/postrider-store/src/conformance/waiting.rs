//! Promises about waking. Real time only limits the wait for a broken store.

use std::time::Duration;

use postrider_core::model::decision::Decision;

use super::fixture::{LEASE, StoreFixture, message, secs};

const FOREVER: Duration = Duration::from_secs(1_000_000);

/// Runs `act` while somebody waits, and tells whether that wakes them.
pub(super) async fn wakes(fixture: &StoreFixture<'_>, act: impl AsyncFnOnce()) -> bool {
    let waiting = fixture.store.wait_for_work(FOREVER);
    tokio::pin!(waiting);
    let asleep = tokio::select! {
        biased;
        () = &mut waiting => false,
        () = yields() => true,
    };
    assert!(asleep, "there is no work yet");
    act().await;
    tokio::time::timeout(Duration::from_secs(20), waiting).await.is_ok()
}

/// Tells whether there is nothing to wake for at this moment.
pub(super) async fn stays_asleep(fixture: &StoreFixture<'_>) -> bool {
    let waiting = fixture.store.wait_for_work(FOREVER);
    tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err()
}

async fn yields() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

pub async fn waiting_ends_when_work_arrives(fixture: &StoreFixture<'_>) {
    fixture.ready().await;
    assert!(wakes(fixture, async || _ = fixture.accept_one().await).await);
    let leased = fixture.lease_one().await;
    let release = async || _ = fixture.settle(&leased, Decision::Release).await;
    assert!(wakes(fixture, release).await, "a released delivery is work, too");
}

pub async fn waiting_ends_when_work_becomes_due(fixture: &StoreFixture<'_>) {
    fixture
        .accept_and_settle(message("acme", 1), Decision::Retry { after: secs(30), counted: true })
        .await;
    fixture.ready().await;
    assert!(wakes(fixture, async || fixture.clock.advance(secs(30))).await);
}

pub async fn waiting_ends_when_a_lease_ends(fixture: &StoreFixture<'_>) {
    fixture.accept_one().await;
    fixture.lease_one().await;
    fixture.ready().await;
    assert!(wakes(fixture, async || fixture.clock.advance(LEASE)).await);
}

pub async fn what_was_already_shown_does_not_wake(fixture: &StoreFixture<'_>) {
    fixture.accept_one().await;
    fixture.ready().await;
    assert!(stays_asleep(fixture).await);
    assert!(wakes(fixture, async || _ = fixture.accept(message("acme", 2)).await).await);
}

pub async fn waiting_ends_in_time(fixture: &StoreFixture<'_>) {
    fixture.ready().await;
    fixture.store.wait_for_work(Duration::from_millis(5)).await;
}
