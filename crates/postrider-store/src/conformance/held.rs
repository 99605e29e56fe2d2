//! Promises about deliveries that are held until an operator releases them.

use super::fixture::*;

fn all() -> Selection {
    Selection::Filter(DeliveryFilter::default())
}

/// Held and pending deliveries.
async fn held(fixture: &StoreFixture<'_>) -> (u64, u64) {
    let counts = fixture.counts().await;
    (counts.held, fixture.store.load(None).deliveries)
}

pub async fn held_work_waits_until_it_is_released(fixture: &StoreFixture<'_>) {
    let id = fixture.accept_one().await;
    assert_eq!(fixture.store.hold_pending().await.unwrap(), 1);
    assert_eq!(fixture.store.hold_pending().await.unwrap(), 0, "it is held already");
    let view = fixture.delivery(id).await;
    assert_eq!((view.state, view.held, view.due_at), (State::Parked, true, None));
    assert_eq!(held(fixture).await, (1, 1));
    let listed = DeliveryFilter { held: true, ..DeliveryFilter::default() };
    assert_eq!(fixture.all(listed, false).await, [id]);
    assert_eq!(fixture.store.lanes(None, 10).await.unwrap()[0].next_due, None);
    fixture.clock.advance(secs(1_000));
    let new = fixture.accept_one().await;
    assert_eq!(fixture.lease_one().await.delivery, new, "new work goes on beside it");
    let fixture = &fixture.after_crash().await;
    assert_eq!(held(fixture).await, (1, 2), "a restart releases nothing");
    assert_eq!(fixture.store.release_held(None, all(), None).await.unwrap(), 1);
    assert_eq!(held(fixture).await, (0, 2));
    let view = fixture.delivery(id).await;
    assert_eq!((view.state, view.held), (State::Queued, false));
    let leased = fixture.lease_all().await;
    assert!(leased.iter().any(|leased| leased.delivery == id));
}

pub async fn what_was_scheduled_or_tried_before_is_so_after_a_release(fixture: &StoreFixture<'_>) {
    let tried = fixture.accept_one().await;
    fixture.settle_next(retry(500)).await;
    let at = fixture.now() + secs(900);
    let later = NewMessage { send_at: Some(at), ..message("acme", 1) };
    let later = fixture.accept(later).await.1[0];
    assert_eq!(fixture.store.hold_pending().await.unwrap(), 2);
    assert_eq!(fixture.store.release_held(None, all(), None).await.unwrap(), 2);
    assert_eq!(fixture.delivery(tried).await.due_at, Some(fixture.now() + secs(500)));
    assert_eq!(fixture.state(tried).await, State::Retrying);
    assert_eq!(fixture.delivery(later).await.due_at, Some(at));
    assert!(fixture.lease(10).await.is_empty());
    fixture.clock.advance(secs(500));
    let leased = fixture.lease_one().await;
    assert_eq!((leased.delivery, leased.attempts), (tried, 1));
}

pub async fn held_work_expires_and_can_be_cancelled(fixture: &StoreFixture<'_>) {
    let (cancelled, _) = fixture.accept(batch("acme", &[1, 2])).await;
    let expiring = fixture.accept_one().await;
    fixture.store.hold_pending().await.unwrap();
    let result = fixture.store.cancel(None, cancelled).await.unwrap().unwrap();
    assert_eq!((result.cancelled, held(fixture).await), (2, (1, 1)));
    fixture.clock.advance(secs(3_601));
    let (_, leased) = fixture.store.lease_expired(10, LEASE).await.unwrap().remove(0);
    assert_eq!(leased.delivery, expiring);
    fixture.settle_with(&leased, Decision::Park { after: secs(5) }, Vec::new()).await;
    assert!(fixture.delivery(expiring).await.held, "a doubt about the time releases nothing");
    fixture.clock.advance(secs(10));
    assert!(fixture.lease(10).await.is_empty());
    let (_, leased) = fixture.store.lease_expired(10, LEASE).await.unwrap().remove(0);
    fixture.settle_with(&leased, Decision::Expire, Vec::new()).await;
    assert_eq!(fixture.state(expiring).await, State::Expired);
    assert_eq!(held(fixture).await, (0, 0));
}

pub async fn a_release_chooses_by_tenant_filter_and_id_and_is_paced(fixture: &StoreFixture<'_>) {
    let old = fixture.accept_one().await;
    fixture.clock.advance(secs(10));
    let ids = [fixture.accept_one().await, fixture.accept_one().await];
    let other = fixture.accept(message("umbra", 1)).await.1[0];
    fixture.store.hold_pending().await.unwrap();
    let release = async |tenant: Option<&TenantId>, which, rate| {
        fixture.store.release_held(tenant, which, rate).await.unwrap()
    };
    let umbra = TenantId::new("umbra");
    assert_eq!(release(Some(&umbra), Selection::Ids(vec![old]), None).await, 0, "not its own");
    let until = Some(fixture.now() - secs(5));
    let filter = DeliveryFilter { until, ..DeliveryFilter::default() };
    assert_eq!(release(Some(&acme()), Selection::Filter(filter), None).await, 1);
    assert_eq!(fixture.state(old).await, State::Queued);
    assert_eq!(release(None, Selection::Ids(vec![other, old]), None).await, 1);
    assert_eq!(release(None, all(), Some(0.1)).await, 2);
    assert_eq!(fixture.delivery(ids[0]).await.due_at, Some(fixture.now()));
    assert_eq!(fixture.delivery(ids[1]).await.due_at, Some(fixture.now() + secs(10)));
    assert_eq!(held(fixture).await.0, 0);
}
