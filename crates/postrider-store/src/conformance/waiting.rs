//! Promises about waking, and about suspended lanes. Real time only limits the wait for a broken store.

use super::fixture::*;

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
    fixture.accept_and_settle(message("acme", 1), retry(30)).await;
    fixture.ready().await;
    assert!(wakes(fixture, async || fixture.clock.advance(secs(30))).await);
}

pub async fn waiting_ends_when_a_lease_ends(fixture: &StoreFixture<'_>) {
    fixture.accept_one().await;
    fixture.lease_one().await;
    fixture.ready().await;
    assert!(wakes(fixture, async || fixture.clock.advance(LEASE)).await);
}

pub async fn work_that_was_listed_already_does_not_wake(fixture: &StoreFixture<'_>) {
    fixture.accept_one().await;
    fixture.ready().await;
    assert!(stays_asleep(fixture).await);
    assert!(wakes(fixture, async || _ = fixture.accept(message("acme", 2)).await).await);
}

pub async fn waiting_ends_in_time(fixture: &StoreFixture<'_>) {
    fixture.ready().await;
    fixture.store.wait_for_work(Duration::from_millis(5)).await;
}

pub async fn a_suspended_lane_is_not_ready_until_its_time(fixture: &StoreFixture<'_>) {
    fixture.accept(message("acme", 1)).await;
    fixture.accept(message("acme", 2)).await;
    let lanes = fixture.ready().await;
    fixture.store.suspend(lanes[0], fixture.now() + secs(10));
    assert_eq!(fixture.ready().await, lanes[1..]);
    fixture.accept(message("acme", 1)).await;
    fixture.clock.advance(secs(9));
    assert_eq!(fixture.ready().await, lanes[1..], "an arrival does not end the suspension");
    assert_eq!(
        fixture.store.lease(lanes[0], 1, LEASE).await.unwrap().len(),
        1,
        "it can still be leased"
    );
    fixture.clock.advance(secs(1));
    assert_eq!(fixture.ready().await.len(), 2);
}

pub async fn a_lane_suspended_again_has_the_newer_end(fixture: &StoreFixture<'_>) {
    fixture.accept_one().await;
    let lane = fixture.ready().await[0];
    fixture.store.suspend(lane, fixture.now() + secs(100));
    fixture.store.suspend(lane, fixture.now() + secs(10));
    fixture.clock.advance(secs(10));
    assert_eq!(fixture.ready().await, [lane]);
    fixture.store.suspend(lane, fixture.now() + secs(10));
    fixture.store.suspend(lane, fixture.now() + secs(100));
    fixture.clock.advance(secs(10));
    assert!(fixture.ready().await.is_empty());
}

pub async fn work_in_a_suspended_lane_wakes_nobody(fixture: &StoreFixture<'_>) {
    let leased = fixture.accept_and_lease(message("acme", 1)).await;
    let lane = fixture.store.lanes(None, 1).await.unwrap()[0].id;
    fixture.store.suspend(lane, fixture.now() + secs(1000));
    fixture.ready().await;
    fixture.accept_one().await;
    assert!(stays_asleep(fixture).await, "a new delivery wakes nobody");
    fixture.settle(&leased, retry(5)).await;
    fixture.clock.advance(secs(5));
    assert!(stays_asleep(fixture).await, "a delivery that becomes due wakes nobody");
    assert!(
        wakes(fixture, async || _ = fixture.accept(message("acme", 2)).await).await,
        "other lanes wake"
    );
}

pub async fn waiting_ends_when_a_lane_is_resumed(fixture: &StoreFixture<'_>) {
    fixture.accept_one().await;
    let lane = fixture.ready().await[0];
    fixture.store.suspend(lane, fixture.now() + secs(30));
    fixture.ready().await;
    assert!(
        wakes(fixture, async || fixture.clock.advance(secs(30))).await,
        "at the end of the suspension"
    );
    assert_eq!(fixture.ready().await, [lane]);
    for which in [Some(lane), None] {
        fixture.store.suspend(lane, fixture.now() + secs(30));
        fixture.ready().await;
        assert!(
            wakes(fixture, async || fixture.store.resume(which)).await,
            "when the lane is resumed"
        );
        assert_eq!(fixture.ready().await, [lane]);
    }
}

pub async fn a_resumed_lane_waits_for_work_that_is_due_later(fixture: &StoreFixture<'_>) {
    let leased = fixture.accept_and_lease(message("acme", 1)).await;
    let lane = fixture.store.lanes(None, 1).await.unwrap()[0].id;
    fixture.settle(&leased, retry(20)).await;
    fixture.store.suspend(lane, fixture.now() + secs(10));
    fixture.ready().await;
    fixture.clock.advance(secs(10));
    assert!(stays_asleep(fixture).await, "nothing is due yet");
    assert!(wakes(fixture, async || fixture.clock.advance(secs(10))).await);
    assert_eq!(fixture.ready().await, [lane]);
}
