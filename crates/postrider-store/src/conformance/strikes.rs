//! Promises about what addresses are blamed for.

use std::sync::Arc;

use postrider_core::model::decision::Decision;
use postrider_core::policy::strikes::{KEPT, NewStrike};
use postrider_core::ports::store::{Learned, NewAddress, StrikeFilter, StruckAddress};
use postrider_core::{AddressStatus, DeadReason, Strike, StrikeKind, Target, TenantId, Timestamp};

use super::kit::{Bench, hash, message, secs, webhook};

const DEAD: Decision = Decision::DeadLetter(DeadReason::Permanent);

/// A message to that address of acme's which ends so.
async fn one(
    bench: &Bench<'_>,
    number: u32,
    decision: Decision,
    strike: Option<(StrikeKind, bool)>,
) {
    bench.accept(message("acme", number)).await;
    let leased = bench.lease_one().await;
    let strike = strike.map(|(kind, suspect)| NewStrike { kind, suspect });
    let learned = Learned { strike, target: None };
    bench.settle_learned(&leased, decision, Vec::new(), learned).await;
}

async fn struck(bench: &Bench<'_>, which: StrikeFilter) -> Vec<StruckAddress> {
    let filter = StrikeFilter { limit: 100, ..which };
    bench.store.strikes(&TenantId::new("acme"), filter).await.unwrap().items
}

async fn of(bench: &Bench<'_>, number: u32) -> Vec<Strike> {
    let which = StrikeFilter { hash: Some(hash(number)), ..StrikeFilter::default() };
    struck(bench, which).await.into_iter().flat_map(|struck| struck.strikes).collect()
}

async fn register(bench: &Bench<'_>, number: u32) -> postrider_core::Address {
    let tenant = TenantId::new("acme");
    let new = NewAddress { tenant, recipient: None, target: webhook(number), hash: hash(number) };
    bench.store.put_address(new).await.unwrap().0
}

async fn status(bench: &Bench<'_>, number: u32) -> AddressStatus {
    let tenant = TenantId::new("acme");
    let all = bench.store.addresses(&tenant, None, None, 10).await.unwrap().items;
    all.into_iter().find(|address| address.hash == hash(number)).unwrap().status
}

pub async fn strikes_are_counted_by_kind_and_come_with_the_lease(bench: &Bench<'_>) {
    let first_at: Timestamp = bench.now();
    one(bench, 1, DEAD, Some((StrikeKind::Endpoint, false))).await;
    bench.clock.advance(secs(100));
    one(bench, 1, DEAD, Some((StrikeKind::Endpoint, false))).await;
    one(bench, 1, DEAD, Some((StrikeKind::Host, false))).await;
    let expected = [
        Strike {
            kind: StrikeKind::Endpoint,
            count: 2,
            first_at,
            last_at: first_at + secs(100),
            suspect: false,
        },
        Strike {
            kind: StrikeKind::Host,
            count: 1,
            first_at: first_at + secs(100),
            last_at: first_at + secs(100),
            suspect: false,
        },
    ];
    assert_eq!(of(bench, 1).await, expected);
    bench.accept(message("acme", 1)).await;
    assert_eq!(bench.lease_one().await.strikes, expected, "whoever attempts it knows");
    bench.accept(message("acme", 2)).await;
    assert!(bench.lease_one().await.strikes.is_empty(), "another address");
    bench.accept(message("other", 1)).await;
    assert!(bench.lease_one().await.strikes.is_empty(), "another tenant's");
}

pub async fn a_success_clears_what_an_address_is_blamed_for(bench: &Bench<'_>) {
    register(bench, 1).await;
    one(bench, 1, DEAD, Some((StrikeKind::Unreachable, true))).await;
    assert_eq!(status(bench, 1).await, AddressStatus::Suspect);
    one(bench, 1, DEAD, None).await;
    assert_eq!(of(bench, 1).await.len(), 1, "a refusal that blames nobody changes nothing");
    one(bench, 1, Decision::Done, None).await;
    assert!(of(bench, 1).await.is_empty());
    assert_eq!(status(bench, 1).await, AddressStatus::Active);
}

pub async fn a_fenced_settlement_strikes_nobody(bench: &Bench<'_>) {
    bench.accept(message("acme", 1)).await;
    let late = bench.lease_one().await;
    bench.clock.advance(secs(3600));
    bench.lease_one().await;
    let strike = Some(NewStrike { kind: StrikeKind::Number, suspect: true });
    bench.settle_learned(&late, DEAD, Vec::new(), Learned { strike, target: None }).await;
    assert!(of(bench, 1).await.is_empty());
}

pub async fn a_forgiven_address_starts_anew(bench: &Bench<'_>) {
    let acme = TenantId::new("acme");
    register(bench, 1).await;
    one(bench, 1, DEAD, Some((StrikeKind::Failing, true))).await;
    assert!(!bench.store.forgive(&TenantId::new("other"), hash(1)).await.unwrap());
    assert!(bench.store.forgive(&acme, hash(1)).await.unwrap());
    assert!(!bench.store.forgive(&acme, hash(1)).await.unwrap());
    assert_eq!(status(bench, 1).await, AddressStatus::Active);
    one(bench, 1, DEAD, Some((StrikeKind::Failing, true))).await;
    assert_eq!(of(bench, 1).await[0].count, 1);
    register(bench, 1).await;
    assert!(of(bench, 1).await.is_empty(), "who registers again is blamed for nothing");
    assert_eq!(status(bench, 1).await, AddressStatus::Active);
}

pub async fn an_address_that_is_gone_by_strikes_keeps_them_as_evidence(bench: &Bench<'_>) {
    register(bench, 1).await;
    one(bench, 1, Decision::MarkGone, Some((StrikeKind::Number, false))).await;
    assert_eq!(of(bench, 1).await[0].count, 1);
    assert_eq!(status(bench, 1).await, AddressStatus::Gone);
    assert!(bench.store.forgive(&TenantId::new("acme"), hash(1)).await.unwrap());
    assert_eq!(status(bench, 1).await, AddressStatus::Gone, "that does not bring it back");
}

pub async fn struck_addresses_are_listed_by_page_and_by_suspicion(bench: &Bench<'_>) {
    for number in 1..=5 {
        one(bench, number, DEAD, Some((StrikeKind::Blocked, number % 2 == 0))).await;
    }
    let mut seen = Vec::new();
    let mut cursor = None;
    loop {
        let which = StrikeFilter { cursor, limit: 2, ..StrikeFilter::default() };
        let page = bench.store.strikes(&TenantId::new("acme"), which).await.unwrap();
        seen.extend(page.items.iter().map(|struck| struck.hash));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let mut all: Vec<_> = (1..=5).map(hash).collect();
    all.sort();
    assert_eq!(seen, all);
    let suspect = StrikeFilter { suspect: true, ..StrikeFilter::default() };
    let mut expected = vec![hash(2), hash(4)];
    expected.sort();
    let found: Vec<_> = struck(bench, suspect).await.iter().map(|struck| struck.hash).collect();
    assert_eq!(found, expected);
}

pub async fn old_strikes_are_forgotten(bench: &Bench<'_>) {
    one(bench, 1, DEAD, Some((StrikeKind::Host, false))).await;
    bench.clock.advance(KEPT / 2);
    one(bench, 1, DEAD, Some((StrikeKind::Endpoint, false))).await;
    one(bench, 2, DEAD, Some((StrikeKind::Endpoint, false))).await;
    bench.clock.advance(KEPT / 2);
    bench.store.prune(KEPT * 2).await.unwrap();
    let kinds: Vec<_> = of(bench, 1).await.iter().map(|strike| strike.kind).collect();
    assert_eq!(kinds, [StrikeKind::Endpoint]);
    bench.clock.advance(KEPT);
    bench.store.prune(KEPT * 2).await.unwrap();
    assert!(struck(bench, StrikeFilter::default()).await.is_empty());
    bench.accept(message("acme", 2)).await;
    assert!(bench.lease_one().await.strikes.is_empty());
}

pub async fn strikes_survive_a_restart(bench: &Bench<'_>) {
    one(bench, 1, DEAD, Some((StrikeKind::Mailbox, true))).await;
    let Some(again) = bench.reopened().await else { return };
    again.accept(message("acme", 1)).await;
    let leased = again.lease_one().await;
    assert_eq!((leased.strikes.len(), leased.strikes[0].suspect), (1, true));
    again.settle(&leased, Decision::Done).await;
    let Some(later) = again.reopened().await else { return };
    assert!(of(&later, 1).await.is_empty());
}

pub async fn what_is_learned_of_a_target_is_kept_with_its_address(bench: &Bench<'_>) {
    let known = register(bench, 1).await;
    bench.accept(message("acme", 1)).await;
    let leased = bench.lease_one().await;
    let secrets = vec!["whsec_learned".into()];
    let better = Target::Webhook { url: leased.target.place().into(), secrets };
    let learned = Learned { strike: None, target: Some(Arc::new(better.clone())) };
    bench.settle_learned(&leased, Decision::Done, Vec::new(), learned.clone()).await;
    let acme = TenantId::new("acme");
    let found = bench.store.address(&acme, known.id).await.unwrap().unwrap();
    assert_eq!(found.target, Some(better));
    bench.accept(message("acme", 2)).await;
    let leased = bench.lease_one().await;
    bench.settle_learned(&leased, Decision::MarkGone, Vec::new(), learned).await;
    let found = bench.store.addresses(&acme, None, None, 10).await.unwrap().items;
    assert_eq!(found.len(), 1, "an address that is not registered stays so");
}
