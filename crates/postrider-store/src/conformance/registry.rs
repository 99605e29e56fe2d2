//! Promises of the registry.

use postrider_core::policy::strikes::NewStrike;

use super::fixture::*;

fn address(tenant: &str, recipient: &str, number: u32) -> NewAddress {
    NewAddress {
        tenant: TenantId::new(tenant),
        recipient: Some(recipient.into()),
        target: webhook(number),
        hash: hash(number),
    }
}

pub async fn an_address_keeps_its_id(fixture: &StoreFixture<'_>) {
    let (first, new) = fixture.store.put_address(address("acme", "ann", 1)).await.unwrap();
    assert!(new);
    fixture.clock.advance(secs(5));
    let (again, new) = fixture.store.put_address(address("acme", "bob", 1)).await.unwrap();
    assert!(!new);
    assert_eq!((again.id, again.created_at), (first.id, first.created_at));
    assert_eq!(again.recipient.as_deref(), Some("bob"));
    let (other, new) = fixture.store.put_address(address("other", "ann", 1)).await.unwrap();
    assert!(new && other.id != first.id, "tenants do not share addresses");
    assert_eq!(fixture.store.address(&acme(), other.id).await.unwrap(), None);
    let fixture = &fixture.after_crash().await;
    assert_eq!(fixture.store.address(&acme(), first.id).await.unwrap(), Some(again));
    assert!(!fixture.store.delete_address(&acme(), other.id, true).await.unwrap());
    assert!(fixture.store.delete_address(&acme(), first.id, true).await.unwrap());
    assert_eq!(fixture.store.address(&acme(), first.id).await.unwrap(), None);
}

pub async fn an_address_gets_another_hash_and_stays_itself(fixture: &StoreFixture<'_>) {
    let store = &fixture.store;
    let (known, _) = store.put_address(address("acme", "ann", 1)).await.unwrap();
    let (other, _) = store.put_address(address("acme", "ben", 2)).await.unwrap();
    let known_hash =
        async |hashes: &[AddressHash]| store.known_hash(&acme(), hashes).await.unwrap();
    assert_eq!(known_hash(&[hash(9), hash(1), hash(2)]).await, Some(hash(1)));
    assert_eq!(known_hash(&[hash(9)]).await, None);
    assert!(!store.rehash_address(&acme(), known.id, hash(2)).await.unwrap(), "it is taken");
    let stranger = TenantId::new("other");
    assert!(!store.rehash_address(&stranger, known.id, hash(9)).await.unwrap());
    assert!(store.rehash_address(&acme(), known.id, hash(9)).await.unwrap());
    assert_eq!(known_hash(&[hash(1)]).await, None);
    assert_eq!(known_hash(&[hash(1), hash(9)]).await, Some(hash(9)));
    let expected = Address { hash: hash(9), ..known.clone() };
    assert_eq!(store.address(&acme(), known.id).await.unwrap(), Some(expected.clone()));
    let listed = store.addresses(&acme(), None, None, 10).await.unwrap().items;
    assert_eq!(listed, [expected, other]);
    let again = NewAddress { hash: hash(9), ..address("acme", "ann", 1) };
    let (again, is_new) = store.put_address(again).await.unwrap();
    assert_eq!((again.id, is_new), (known.id, false));
    assert!(store.delete_address(&acme(), known.id, true).await.unwrap());
    assert_eq!(store.address(&acme(), known.id).await.unwrap(), None);
    assert_eq!(known_hash(&[hash(9)]).await, Some(hash(9)), "the mark of its deletion");
}

pub async fn a_returning_address_is_no_longer_gone(fixture: &StoreFixture<'_>) {
    let (known, _) = fixture.store.put_address(address("acme", "ann", 1)).await.unwrap();
    fixture.accept_and_settle(message("acme", 1), Decision::MarkGone).await;
    let gone = fixture.store.address(&acme(), known.id).await.unwrap().unwrap();
    assert_eq!((gone.status, gone.gone_at), (AddressStatus::Gone, Some(fixture.now())));
    assert_eq!(gone.target, None, "endpoint and keys are erased");
    assert_eq!(gone.hash, hash(1), "the hash stays");
    fixture.accept(message("acme", 1)).await;
    let (back, new) = fixture.store.put_address(address("acme", "ann", 1)).await.unwrap();
    assert_eq!((back.id, back.status, new), (known.id, AddressStatus::Active, false));
    assert_eq!((back.gone_at, back.target), (None, Some(webhook(1))));
    let leased = fixture.lease_one().await;
    assert_eq!(leased.halt, None);
    fixture.settle(&leased, Decision::Done).await;
}

pub async fn addresses_are_listed_by_page_and_recipient(fixture: &StoreFixture<'_>) {
    let mut ids = Vec::new();
    for number in 0..7 {
        let recipient = if number % 2 == 0 { "ann" } else { "bob" };
        ids.push(fixture.store.put_address(address("acme", recipient, number)).await.unwrap().0.id);
    }
    fixture.store.put_address(address("other", "ann", 99)).await.unwrap();
    for (recipient, expected) in [
        (None, ids.clone()),
        (Some("bob"), ids.iter().skip(1).step_by(2).copied().collect()),
        (Some("eve"), Vec::new()),
    ] {
        let acme = acme();
        let found =
            all_pages(async |cursor| fixture.store.addresses(&acme, recipient, cursor, 2).await);
        let seen: Vec<_> = found.await.iter().map(|address| address.id).collect();
        assert_eq!(seen, expected);
    }
}

async fn holdings(fixture: &StoreFixture<'_>, tenant: &str) -> Holdings {
    let all = fixture.store.holdings().await.unwrap();
    let own = all.into_iter().find(|each| each.tenant.as_str() == tenant);
    own.map_or_else(Holdings::default, |own| own.holdings)
}

pub async fn what_a_tenant_keeps_is_counted(fixture: &StoreFixture<'_>) {
    assert_eq!(holdings(fixture, "acme").await, Holdings::default());
    let (first, _) = fixture.store.put_address(address("acme", "ann", 1)).await.unwrap();
    fixture.store.put_address(address("acme", "bob", 2)).await.unwrap();
    fixture.store.put_address(address("other", "eve", 3)).await.unwrap();
    fixture.accept_and_settle(message("acme", 9), Decision::MarkGone).await;
    let dead = Decision::DeadLetter(DeadReason::Permanent);
    let leased = fixture.accept_and_lease(message("acme", 1)).await;
    let strike = Some(NewStrike { kind: StrikeKind::Number, suspect: false });
    let learned = AddressLearning { strike, target: None };
    fixture.settle_learned(&leased, dead, Vec::new(), learned).await;
    fixture.accept(message("acme", 4)).await;
    let bytes = webhook(1).as_json().len() + r#"{"title":"hello"}"#.len();
    // An encrypted text is longer.
    let dead_letter_bytes = holdings(fixture, "acme").await.dead_letter_bytes;
    assert!(dead_letter_bytes >= bytes as u64);
    let kept = Holdings {
        addresses: 2,
        dead_letters: 1,
        dead_letter_bytes,
        lanes: 1,
        strikes: 1,
        gone_marks: 1,
        entries: 0,
    };
    assert_eq!(holdings(fixture, "acme").await, kept);
    assert_eq!(holdings(fixture, "other").await, Holdings { addresses: 1, ..Holdings::default() });
    let fixture = &fixture.after_crash().await;
    assert_eq!(holdings(fixture, "acme").await, kept);
    fixture.store.discard(None, Selection::Ids(vec![leased.delivery])).await.unwrap();
    fixture.store.delete_address(&acme(), first.id, false).await.unwrap();
    fixture.store.put_address(address("acme", "zoe", 9)).await.unwrap();
    let left = Holdings { dead_letters: 0, dead_letter_bytes: 0, gone_marks: 0, ..kept };
    assert_eq!(holdings(fixture, "acme").await, left);
}
