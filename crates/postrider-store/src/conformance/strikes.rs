//! Promises about strikes of addresses.

use postrider_core::policy::strikes::{KEPT, NewStrike};

use super::fixture::*;

const DEAD: Decision = Decision::DeadLetter(DeadReason::Permanent);

/// Settles a message to that address with this decision and strike.
async fn one(
    fixture: &StoreFixture<'_>,
    number: u32,
    decision: Decision,
    strike: Option<(StrikeKind, bool)>,
) {
    let leased = fixture.accept_and_lease(message("acme", number)).await;
    let strike = strike.map(|(kind, suspect)| NewStrike { kind, suspect });
    let learned = AddressLearning { strike, target: None };
    fixture.settle_learned(&leased, decision, Vec::new(), learned).await;
}

async fn struck(fixture: &StoreFixture<'_>, which: StrikeFilter) -> Vec<StruckAddress> {
    let filter = StrikeFilter { limit: 100, ..which };
    fixture.store.strikes(&acme(), filter).await.unwrap().items
}

async fn of(fixture: &StoreFixture<'_>, number: u32) -> Vec<Strike> {
    let which = StrikeFilter { hash: Some(hash(number)), ..StrikeFilter::default() };
    struck(fixture, which).await.into_iter().flat_map(|struck| struck.strikes).collect()
}

async fn register(fixture: &StoreFixture<'_>, number: u32) -> Address {
    let new =
        NewAddress { tenant: acme(), recipient: None, target: webhook(number), hash: hash(number) };
    fixture.store.put_address(new).await.unwrap().0
}

async fn status(fixture: &StoreFixture<'_>, number: u32) -> AddressStatus {
    let all = fixture.store.addresses(&acme(), None, None, 10).await.unwrap().items;
    all.into_iter().find(|address| address.hash == hash(number)).unwrap().status
}

pub async fn strikes_are_counted_by_kind_and_come_with_the_lease(fixture: &StoreFixture<'_>) {
    let first_at = fixture.now();
    one(fixture, 1, DEAD, Some((StrikeKind::Endpoint, false))).await;
    fixture.clock.advance(secs(100));
    one(fixture, 1, DEAD, Some((StrikeKind::Endpoint, false))).await;
    one(fixture, 1, DEAD, Some((StrikeKind::Host, false))).await;
    let last_at = first_at + secs(100);
    let strike = |kind, count, first_at| Strike { kind, count, first_at, last_at, suspect: false };
    let expected =
        [strike(StrikeKind::Endpoint, 2, first_at), strike(StrikeKind::Host, 1, last_at)];
    assert_eq!(of(fixture, 1).await, expected);
    fixture.accept(message("acme", 1)).await;
    assert_eq!(fixture.lease_one().await.strikes, expected, "the lease has the strikes");
    fixture.accept(message("acme", 2)).await;
    assert!(fixture.lease_one().await.strikes.is_empty(), "another address has none");
    fixture.accept(message("other", 1)).await;
    assert!(fixture.lease_one().await.strikes.is_empty(), "the address of another tenant has none");
}

pub async fn a_success_clears_the_strikes_of_its_address(fixture: &StoreFixture<'_>) {
    register(fixture, 1).await;
    one(fixture, 1, DEAD, Some((StrikeKind::Unreachable, true))).await;
    assert_eq!(status(fixture, 1).await, AddressStatus::Suspect);
    one(fixture, 1, DEAD, None).await;
    assert_eq!(of(fixture, 1).await.len(), 1, "a failure without a strike changes nothing");
    one(fixture, 1, Decision::Done, None).await;
    assert!(of(fixture, 1).await.is_empty());
    assert_eq!(status(fixture, 1).await, AddressStatus::Active);
}

pub async fn a_fenced_settlement_adds_no_strike(fixture: &StoreFixture<'_>) {
    let late = fixture.accept_and_lease(message("acme", 1)).await;
    fixture.clock.advance(secs(3600));
    fixture.lease_one().await;
    let strike = Some(NewStrike { kind: StrikeKind::Number, suspect: true });
    fixture.settle_learned(&late, DEAD, Vec::new(), AddressLearning { strike, target: None }).await;
    assert!(of(fixture, 1).await.is_empty());
}

pub async fn a_forgiven_address_starts_again_without_strikes(fixture: &StoreFixture<'_>) {
    register(fixture, 1).await;
    one(fixture, 1, DEAD, Some((StrikeKind::Failing, true))).await;
    assert!(!fixture.store.forgive(&TenantId::new("other"), hash(1)).await.unwrap());
    assert!(fixture.store.forgive(&acme(), hash(1)).await.unwrap());
    assert!(!fixture.store.forgive(&acme(), hash(1)).await.unwrap());
    assert_eq!(status(fixture, 1).await, AddressStatus::Active);
    one(fixture, 1, DEAD, Some((StrikeKind::Failing, true))).await;
    assert_eq!(of(fixture, 1).await[0].count, 1);
    register(fixture, 1).await;
    assert!(of(fixture, 1).await.is_empty(), "a registration clears the strikes");
    assert_eq!(status(fixture, 1).await, AddressStatus::Active);
}

pub async fn an_address_that_is_gone_by_strikes_keeps_them_as_evidence(fixture: &StoreFixture<'_>) {
    register(fixture, 1).await;
    one(fixture, 1, Decision::MarkGone, Some((StrikeKind::Number, false))).await;
    assert_eq!(of(fixture, 1).await[0].count, 1);
    assert_eq!(status(fixture, 1).await, AddressStatus::Gone);
    assert!(fixture.store.forgive(&acme(), hash(1)).await.unwrap());
    assert_eq!(status(fixture, 1).await, AddressStatus::Gone, "the address stays gone");
}

pub async fn struck_addresses_are_listed_by_page_and_by_suspicion(fixture: &StoreFixture<'_>) {
    for number in 1..=5 {
        one(fixture, number, DEAD, Some((StrikeKind::Blocked, number % 2 == 0))).await;
    }
    let found = all_pages(async |cursor| {
        let which = StrikeFilter { cursor, limit: 2, ..StrikeFilter::default() };
        fixture.store.strikes(&acme(), which).await
    });
    let seen: Vec<_> = found.await.iter().map(|struck| struck.hash).collect();
    let mut all: Vec<_> = (1..=5).map(hash).collect();
    all.sort();
    assert_eq!(seen, all);
    let suspect = StrikeFilter { suspect: true, ..StrikeFilter::default() };
    let mut expected = vec![hash(2), hash(4)];
    expected.sort();
    let found: Vec<_> = struck(fixture, suspect).await.iter().map(|struck| struck.hash).collect();
    assert_eq!(found, expected);
}

pub async fn old_strikes_are_deleted(fixture: &StoreFixture<'_>) {
    one(fixture, 1, DEAD, Some((StrikeKind::Host, false))).await;
    fixture.clock.advance(KEPT / 2);
    one(fixture, 1, DEAD, Some((StrikeKind::Endpoint, false))).await;
    one(fixture, 2, DEAD, Some((StrikeKind::Endpoint, false))).await;
    fixture.clock.advance(KEPT / 2);
    fixture.store.prune(&Retention::of(KEPT * 2)).await.unwrap();
    let kinds: Vec<_> = of(fixture, 1).await.iter().map(|strike| strike.kind).collect();
    assert_eq!(kinds, [StrikeKind::Endpoint]);
    fixture.clock.advance(KEPT);
    fixture.store.prune(&Retention::of(KEPT * 2)).await.unwrap();
    assert!(struck(fixture, StrikeFilter::default()).await.is_empty());
    fixture.accept(message("acme", 2)).await;
    assert!(fixture.lease_one().await.strikes.is_empty());
}

pub async fn strikes_survive_a_restart(fixture: &StoreFixture<'_>) {
    one(fixture, 1, DEAD, Some((StrikeKind::Mailbox, true))).await;
    let Some(again) = fixture.reopened().await else { return };
    again.accept(message("acme", 1)).await;
    let leased = again.lease_one().await;
    assert_eq!((leased.strikes.len(), leased.strikes[0].suspect), (1, true));
    again.settle(&leased, Decision::Done).await;
    let Some(later) = again.reopened().await else { return };
    assert!(of(&later, 1).await.is_empty());
}

pub async fn what_is_learned_about_a_target_is_stored_with_its_address(fixture: &StoreFixture<'_>) {
    let known = register(fixture, 1).await;
    let leased = fixture.accept_and_lease(message("acme", 1)).await;
    let better = target(&format!("{}?learned", url(&leased.target)));
    let learned = AddressLearning { strike: None, target: Some(Arc::new(better.clone())) };
    fixture.settle_learned(&leased, Decision::Done, Vec::new(), learned.clone()).await;
    let found = fixture.store.address(&acme(), known.id).await.unwrap().unwrap();
    assert_eq!(found.target, Some(better));
    let leased = fixture.accept_and_lease(message("acme", 2)).await;
    fixture.settle_learned(&leased, Decision::MarkGone, Vec::new(), learned).await;
    let found = fixture.store.addresses(&acme(), None, None, 10).await.unwrap().items;
    assert_eq!(found.len(), 1, "an address that is not registered is not added");
}
