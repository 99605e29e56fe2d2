//! Promises about entries, and about the recipient that a lease names.

use super::fixture::*;

fn key(tenant: &str, kind: EntryKind, key: &str) -> EntryKey {
    EntryKey::new(&TenantId::new(tenant), kind, key)
}

fn write(key: &EntryKey, json: Option<&str>, expected: Option<u64>) -> EntryWrite {
    let expected = expected.map(EntryVersion);
    EntryWrite { key: key.clone(), json: json.map(Into::into), expected }
}

async fn put(store: &dyn Store, key: &EntryKey, json: &str) -> EntryVersion {
    match store.write_entries(vec![write(key, Some(json), None)]).await.unwrap()[0] {
        EntryResult::Written(version) => version,
        EntryResult::Conflict(found) => panic!("nothing was expected, and {found:?} was found"),
    }
}

async fn texts(store: &dyn Store, keys: &[EntryKey]) -> Vec<Option<String>> {
    let found = store.entries(keys.to_vec()).await.unwrap();
    for (key, entry) in keys.iter().zip(&found) {
        assert!(entry.as_ref().is_none_or(|entry| entry.key == *key));
    }
    found.into_iter().map(|entry| Some(entry?.json.to_string())).collect()
}

pub async fn an_entry_is_read_by_its_key_and_changed_under_its_version(fixture: &StoreFixture<'_>) {
    let store = &**fixture.store.store();
    let ann = key("acme", EntryKind::Recipient, "ann \u{fc}");
    let others = [
        key("acme", EntryKind::Alias, "ann \u{fc}"),
        key("shop", EntryKind::Recipient, "ann \u{fc}"),
        key("acme", EntryKind::Recipient, "ann"),
    ];
    assert!(store.entries(Vec::new()).await.unwrap().is_empty());
    assert!(store.write_entries(Vec::new()).await.unwrap().is_empty());
    let first = put(store, &ann, "{\"a\":1}").await;
    assert!(first > EntryVersion::NONE);
    assert_eq!(texts(store, &others).await, [None, None, None], "all parts of the key count");
    let writes = vec![
        write(&ann, Some("never"), Some(0)),
        write(&ann, Some("{\"a\":2}"), Some(first.0)),
        write(&ann, Some("late"), Some(first.0)),
        write(&others[0], Some("{\"of\":\"x:1\"}"), Some(0)),
    ];
    let results = store.write_entries(writes).await.unwrap();
    let EntryResult::Written(second) = results[1] else { panic!("{results:?}") };
    assert_eq!(results[0], EntryResult::Conflict(first));
    assert_eq!(results[2], EntryResult::Conflict(second));
    assert!(second > first && matches!(results[3], EntryResult::Written(_)));
    let both = [others[0].clone(), ann.clone()];
    let expected = [Some("{\"of\":\"x:1\"}".to_owned()), Some("{\"a\":2}".to_owned())];
    assert_eq!(texts(store, &both).await, expected);
    let gone = EntryResult::Written(EntryVersion::NONE);
    assert_eq!(store.write_entries(vec![write(&ann, None, None)]).await.unwrap(), [gone]);
    assert_eq!(store.write_entries(vec![write(&ann, None, Some(0))]).await.unwrap(), [gone]);
    assert_eq!(texts(store, std::slice::from_ref(&ann)).await, [None]);
    fixture.clock.advance(secs(1));
    assert!(put(store, &ann, "{}").await > second, "a new one has no old version");
}

pub async fn entries_are_listed_in_pages(fixture: &StoreFixture<'_>) {
    let store = &**fixture.store.store();
    let mut expected = Vec::new();
    for tenant in ["acme", "shop"] {
        for kind in [EntryKind::Recipient, EntryKind::Suppression] {
            for number in 0..7 {
                let key = key(tenant, kind, &format!("{:03}-{number}", (number * 5) % 7));
                put(store, &key, &number.to_string()).await;
                expected.push(key);
            }
        }
    }
    let tenant = TenantId::new("acme");
    for kind in [EntryKind::Recipient, EntryKind::Suppression, EntryKind::AddressFacts] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let filter = EntryFilter { tenant: tenant.clone(), kind, after, limit: 3 };
            let page = store.list_entries(filter).await.unwrap();
            assert!(page.items.len() <= 3);
            listed.extend(page.items.into_iter().map(|entry| entry.key));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        listed.sort();
        let own = expected.iter().filter(|key| key.tenant == tenant && key.kind == kind);
        let mut own: Vec<_> = own.cloned().collect();
        own.sort();
        assert_eq!(listed, own, "{kind:?}");
    }
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let some = store.entries_behind(after, 4).await.unwrap();
        let Some(last) = some.last() else { break };
        after = Some(last.key.clone());
        all.extend(some.into_iter().map(|entry| entry.key));
    }
    all.sort();
    expected.sort();
    assert_eq!(all, expected);
}

pub async fn entries_survive_a_restart(fixture: &StoreFixture<'_>) {
    let ann = key("acme", EntryKind::Recipient, "ann");
    let version = put(&**fixture.store.store(), &ann, "{\"zone\":\"UTC\"}").await;
    let fixture = fixture.after_crash().await;
    let found = fixture.store.store().entries(vec![ann]).await.unwrap().remove(0).unwrap();
    assert_eq!((&*found.json, found.version), ("{\"zone\":\"UTC\"}", version));
}

pub async fn entries_count_as_holdings_of_their_tenant(fixture: &StoreFixture<'_>) {
    let store = &**fixture.store.store();
    for number in 0..3 {
        put(store, &key("acme", EntryKind::Recipient, &number.to_string()), "{}").await;
    }
    let first = key("acme", EntryKind::Recipient, "0");
    store.write_entries(vec![write(&first, None, None)]).await.unwrap();
    let held = store.holdings().await.unwrap();
    let of = |tenant: &str| {
        let own = held.iter().find(|each| each.tenant.as_str() == tenant);
        own.map_or(0, |each| each.holdings.entries)
    };
    assert_eq!((of("acme"), of("shop")), (2, 0));
}

pub async fn a_lease_names_the_recipient(fixture: &StoreFixture<'_>) {
    let mut new = message("acme", 1);
    new.deliveries[0].recipient = Some("ann".into());
    let leased = fixture.accept_and_lease(new).await;
    assert_eq!(leased.recipient.as_deref(), Some("ann"));
    drop(leased);
    let fixture = fixture.after_crash().await;
    fixture.clock.advance(LEASE * 2);
    assert_eq!(fixture.lease_one().await.recipient.as_deref(), Some("ann"), "read from the store");
}
