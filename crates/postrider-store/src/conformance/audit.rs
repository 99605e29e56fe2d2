//! Promises about the audit log.

use postrider_core::ports::store::{AuditFilter, AuditRecord, Store};
use postrider_core::{TenantId, Timestamp};

use super::fixture::*;

fn entry(number: u64, tenant: Option<&str>) -> AuditRecord {
    AuditRecord {
        number,
        at: Timestamp(1_000 + number as i64),
        tenant: tenant.map(TenantId::new),
        text: format!("entry {number} \u{fc}"),
    }
}

async fn numbers(store: &dyn Store, filter: AuditFilter) -> Vec<u64> {
    let records = store.audit_records(filter).await.unwrap();
    records.into_iter().map(|record| record.number).collect()
}

fn all() -> AuditFilter {
    AuditFilter::behind(0, 100)
}

pub async fn audit_entries_are_appended_in_one_order(fixture: &StoreFixture<'_>) {
    let store = fixture.store.store();
    assert!(store.audit_records(all()).await.unwrap().is_empty());
    assert!(store.append_audit(Vec::new()).await.unwrap());
    assert!(!store.append_audit(vec![entry(2, None)]).await.unwrap(), "the first one is 1");
    let some = vec![entry(1, Some("acme")), entry(2, None), entry(3, Some("shop"))];
    assert!(store.append_audit(some.clone()).await.unwrap());
    assert!(store.append_audit(some.clone()).await.unwrap(), "a repeat changes nothing");
    for wrong in [entry(1, None), entry(3, None), entry(5, None)] {
        assert!(!store.append_audit(vec![wrong]).await.unwrap());
    }
    assert_eq!(store.audit_records(all()).await.unwrap(), some);
}

pub async fn only_one_of_many_writers_appends_a_number(fixture: &StoreFixture<'_>) {
    let mut tasks = Vec::new();
    for writer in 0..8 {
        let store = fixture.store.store().clone();
        tasks.push(tokio::spawn(async move {
            let new = AuditRecord { text: format!("writer {writer}"), ..entry(1, None) };
            store.append_audit(vec![new]).await.unwrap()
        }));
    }
    let mut written = 0;
    for task in tasks {
        written += usize::from(task.await.unwrap());
    }
    assert_eq!(written, 1);
    assert_eq!(numbers(&**fixture.store.store(), all()).await, [1]);
}

pub async fn audit_entries_are_shown_by_tenant_and_page(fixture: &StoreFixture<'_>) {
    let store = fixture.store.store();
    let tenant = |number: u64| [Some("acme"), Some("shop"), None][number as usize % 3];
    let entries = (1..=12).map(|number| entry(number, tenant(number))).collect();
    assert!(store.append_audit(entries).await.unwrap());
    let of = |name: &str| Some(TenantId::new(name));
    let newest = AuditFilter { newest_first: true, limit: 3, ..all() };
    assert_eq!(numbers(&**store, newest.clone()).await, [12, 11, 10]);
    let next = AuditFilter { before: Some(10), ..newest.clone() };
    assert_eq!(numbers(&**store, next).await, [9, 8, 7]);
    assert_eq!(numbers(&**store, AuditFilter { tenant: of("acme"), ..newest }).await, [12, 9, 6]);
    let oldest = AuditFilter { tenant: of("shop"), after: 1, ..all() };
    assert_eq!(numbers(&**store, oldest).await, [4, 7, 10]);
    assert_eq!(
        numbers(&**store, AuditFilter { tenant: of("nobody"), ..all() }).await,
        [] as [u64; 0]
    );
    assert_eq!(numbers(&**store, AuditFilter::last()).await, [12]);
}

pub async fn old_audit_entries_are_deleted_but_never_the_last(fixture: &StoreFixture<'_>) {
    let store = fixture.store.store();
    let entries = (1..=5).map(|number| entry(number, Some("acme"))).collect();
    assert!(store.append_audit(entries).await.unwrap());
    assert_eq!(store.prune_audit(2).await.unwrap(), 2);
    assert_eq!(store.prune_audit(2).await.unwrap(), 0);
    assert_eq!(numbers(&**store, all()).await, [3, 4, 5]);
    assert_eq!(store.prune_audit(99).await.unwrap(), 2);
    let acme = AuditFilter { tenant: Some(TenantId::new("acme")), ..all() };
    assert_eq!(numbers(&**store, acme).await, [5]);
    assert!(store.append_audit(vec![entry(6, None)]).await.unwrap(), "numbers go on");
}

pub async fn audit_entries_survive_a_restart(fixture: &StoreFixture<'_>) {
    let some = vec![entry(1, Some("acme")), entry(2, None)];
    assert!(fixture.store.store().append_audit(some.clone()).await.unwrap());
    let fixture = fixture.after_crash().await;
    let store = fixture.store.store();
    assert_eq!(store.audit_records(all()).await.unwrap(), some);
    assert!(!store.append_audit(vec![entry(1, None)]).await.unwrap());
}
