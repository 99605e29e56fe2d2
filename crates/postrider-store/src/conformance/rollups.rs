//! Promises about rollups.

use postrider_core::ports::store::{
    RollupFilter, RollupName, RollupOwner, RollupPart, RollupSpan, Store,
};
use postrider_core::{TenantId, Timestamp};

use super::fixture::*;

fn part(minute: i64, tenant: Option<&str>, writer: u64, text: &str) -> RollupPart {
    let name = RollupName {
        span: RollupSpan::Minute,
        at: Timestamp(minute * 60_000),
        tenant: tenant.map(TenantId::new),
        writer,
    };
    RollupPart { name, text: text.to_owned() }
}

fn filter(from: i64, until: i64, of: RollupOwner) -> RollupFilter {
    let at = |minute: i64| Timestamp(minute * 60_000);
    RollupFilter { span: RollupSpan::Minute, from: at(from), until: at(until), of }
}

async fn found(store: &dyn Store, filter: RollupFilter) -> Vec<RollupPart> {
    let mut parts = store.rollups(filter).await.unwrap();
    assert!(parts.is_sorted_by_key(|part| part.name.at));
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    parts
}

pub async fn a_part_of_a_rollup_replaces_the_one_before(fixture: &StoreFixture<'_>) {
    let store = fixture.store.store();
    store.put_rollups(Vec::new()).await.unwrap();
    let all = filter(0, 100, RollupOwner::Everybody);
    assert!(found(&**store, all.clone()).await.is_empty());
    store.put_rollups(vec![part(5, None, 1, "one"), part(5, None, 2, "two")]).await.unwrap();
    for _ in 0..2 {
        store.put_rollups(vec![part(5, None, 1, "more \u{fc}")]).await.unwrap();
    }
    let expected = [part(5, None, 1, "more \u{fc}"), part(5, None, 2, "two")];
    assert_eq!(found(&**store, all).await, expected, "each writer has its own");
}

pub async fn rollups_are_shown_by_time_and_tenant(fixture: &StoreFixture<'_>) {
    let store = fixture.store.store();
    let mut parts = Vec::new();
    for minute in 1..=4 {
        parts.extend([None, Some("acme"), Some("shop")].map(|of| part(minute, of, 7, "text")));
    }
    let mut hour = part(0, None, 7, "hour");
    hour.name.span = RollupSpan::Hour;
    parts.push(hour.clone());
    store.put_rollups(parts).await.unwrap();
    let acme = RollupOwner::Tenant(TenantId::new("acme"));
    let of = |minute, tenant| part(minute, tenant, 7, "text");
    let expected = [of(2, Some("acme")), of(3, Some("acme"))];
    assert_eq!(found(&**store, filter(2, 4, acme)).await, expected);
    assert_eq!(found(&**store, filter(4, 9, RollupOwner::Server)).await, [of(4, None)]);
    assert_eq!(found(&**store, filter(1, 5, RollupOwner::Everybody)).await.len(), 12);
    let nobody = RollupOwner::Tenant(TenantId::new("nobody"));
    assert!(found(&**store, filter(0, 9, nobody)).await.is_empty());
    let hours = RollupFilter { span: RollupSpan::Hour, ..filter(0, 9, RollupOwner::Everybody) };
    assert_eq!(found(&**store, hours).await, [hour]);
}

pub async fn old_rollups_are_deleted(fixture: &StoreFixture<'_>) {
    let store = fixture.store.store();
    let mut hour = part(0, None, 1, "hour");
    hour.name.span = RollupSpan::Hour;
    let parts = (0..10).map(|minute| part(minute, Some("acme"), 1, "text"));
    store.put_rollups(parts.chain([hour.clone()]).collect()).await.unwrap();
    let before = Timestamp(8 * 60_000);
    assert_eq!(store.prune_rollups(RollupSpan::Minute, before).await.unwrap(), 8);
    assert_eq!(store.prune_rollups(RollupSpan::Minute, before).await.unwrap(), 0);
    assert_eq!(found(&**store, filter(0, 99, RollupOwner::Everybody)).await.len(), 2);
    assert_eq!(store.rollups_behind(None, 9).await.unwrap().last(), Some(&hour));
    assert_eq!(store.prune_rollups(RollupSpan::Hour, before).await.unwrap(), 1);
}

pub async fn rollups_are_listed_in_pages(fixture: &StoreFixture<'_>) {
    let store = fixture.store.store();
    let mut parts = Vec::new();
    for minute in [3, 1, 2] {
        for tenant in [Some("b"), None, Some("a"), Some("B")] {
            parts.extend([9, 10].map(|writer| part(minute, tenant, writer, "text")));
        }
    }
    let mut hour = part(0, Some("a"), 1, "hour");
    hour.name.span = RollupSpan::Hour;
    parts.push(hour);
    store.put_rollups(parts.clone()).await.unwrap();
    parts.sort_by(|a, b| a.name.cmp(&b.name));
    let (mut listed, mut after) = (Vec::new(), None);
    loop {
        let page = store.rollups_behind(after, 4).await.unwrap();
        assert!(page.len() <= 4);
        let Some(last) = page.last() else { break };
        after = Some(last.name.clone());
        listed.extend(page);
    }
    assert_eq!(listed, parts);
}

pub async fn rollups_survive_a_restart(fixture: &StoreFixture<'_>) {
    let some = vec![part(1, None, 1, "one"), part(1, Some("acme"), 1, "two")];
    fixture.store.store().put_rollups(some.clone()).await.unwrap();
    let fixture = fixture.after_crash().await;
    let all = filter(0, 9, RollupOwner::Everybody);
    assert_eq!(found(&**fixture.store.store(), all).await, some);
}
