//! Promises of the registry.

use postrider_core::model::decision::Decision;
use postrider_core::ports::store::{ApiKey, KeyScope, NewAddress, SigningKey, SigningKind};
use postrider_core::{AddressStatus, KeyId, TenantId};

use super::kit::{Bench, hash, message, secs, webhook};

fn address(tenant: &str, recipient: &str, number: u32) -> NewAddress {
    NewAddress {
        tenant: TenantId::new(tenant),
        recipient: Some(recipient.into()),
        target: webhook(number),
        hash: hash(number),
    }
}

pub async fn an_address_keeps_its_id(bench: &Bench<'_>) {
    let acme = TenantId::new("acme");
    let (first, new) = bench.store.put_address(address("acme", "ann", 1)).await.unwrap();
    assert!(new);
    bench.clock.advance(secs(5));
    let (again, new) = bench.store.put_address(address("acme", "bob", 1)).await.unwrap();
    assert!(!new);
    assert_eq!((again.id, again.created_at), (first.id, first.created_at));
    assert_eq!(again.recipient.as_deref(), Some("bob"));
    let (other, new) = bench.store.put_address(address("other", "ann", 1)).await.unwrap();
    assert!(new && other.id != first.id, "tenants do not share addresses");
    assert_eq!(bench.store.address(&acme, other.id).await.unwrap(), None);
    let reopened = bench.reopened().await;
    let bench = reopened.as_ref().unwrap_or(bench);
    assert_eq!(bench.store.address(&acme, first.id).await.unwrap(), Some(again));
    assert!(!bench.store.delete_address(&acme, other.id).await.unwrap());
    assert!(bench.store.delete_address(&acme, first.id).await.unwrap());
    assert_eq!(bench.store.address(&acme, first.id).await.unwrap(), None);
}

pub async fn a_returning_address_is_no_longer_gone(bench: &Bench<'_>) {
    let acme = TenantId::new("acme");
    let (known, _) = bench.store.put_address(address("acme", "ann", 1)).await.unwrap();
    bench.accept(message("acme", 1)).await;
    let leased = bench.lease_one().await;
    bench.settle(&leased, Decision::MarkGone).await;
    let gone = bench.store.address(&acme, known.id).await.unwrap().unwrap();
    assert_eq!((gone.status, gone.gone_at), (AddressStatus::Gone, Some(bench.now())));
    assert_eq!(gone.target, None, "endpoint and keys are erased");
    assert_eq!(gone.hash, hash(1), "the hash stays");
    bench.accept(message("acme", 1)).await;
    let (back, new) = bench.store.put_address(address("acme", "ann", 1)).await.unwrap();
    assert_eq!((back.id, back.status, new), (known.id, AddressStatus::Active, false));
    assert_eq!((back.gone_at, back.target), (None, Some(webhook(1))));
    let leased = bench.lease_one().await;
    assert_eq!(leased.halt, None);
    bench.settle(&leased, Decision::Done).await;
}

pub async fn addresses_are_listed_by_page_and_recipient(bench: &Bench<'_>) {
    let acme = TenantId::new("acme");
    let mut ids = Vec::new();
    for number in 0..7 {
        let recipient = if number % 2 == 0 { "ann" } else { "bob" };
        ids.push(bench.store.put_address(address("acme", recipient, number)).await.unwrap().0.id);
    }
    bench.store.put_address(address("other", "ann", 99)).await.unwrap();
    for (recipient, expected) in [
        (None, ids.clone()),
        (Some("bob"), ids.iter().skip(1).step_by(2).copied().collect()),
        (Some("eve"), Vec::new()),
    ] {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = bench.store.addresses(&acme, recipient, cursor, 2).await.unwrap();
            seen.extend(page.items.iter().map(|address| address.id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(seen, expected);
    }
}

pub async fn api_keys_are_kept_and_revoked(bench: &Bench<'_>) {
    let key = |id: KeyId, scope| ApiKey {
        id,
        tenant: TenantId::new("acme"),
        name: "ci".into(),
        scope,
        secret_hash: [7; 32],
        created_at: bench.now(),
        revoked_at: None,
    };
    let (one, two) = (bench.store.new_key_id(), bench.store.new_key_id());
    assert!(two > one);
    bench.store.put_api_key(key(one, KeyScope::Admin)).await.unwrap();
    bench.store.put_api_key(key(two, KeyScope::Read)).await.unwrap();
    assert!(bench.store.revoke_api_key(one).await.unwrap());
    assert!(!bench.store.revoke_api_key(one).await.unwrap());
    let reopened = bench.reopened().await;
    let bench = reopened.as_ref().unwrap_or(bench);
    let revoked = ApiKey { revoked_at: Some(bench.now()), ..key(one, KeyScope::Admin) };
    assert_eq!(bench.store.api_keys().await.unwrap(), [revoked, key(two, KeyScope::Read)]);
}

pub async fn settings_are_kept(bench: &Bench<'_>) {
    let store = &bench.store;
    store.put_setting("pause/2", Some("true")).await.unwrap();
    store.put_setting("pause/1", Some("1")).await.unwrap();
    store.put_setting("pause/1", Some(r#"{"by":"ann"}"#)).await.unwrap();
    store.put_setting("limits", Some("[]")).await.unwrap();
    store.put_setting("limits", None).await.unwrap();
    store.put_setting("nothing", None).await.unwrap();
    let reopened = bench.reopened().await;
    let bench = reopened.as_ref().unwrap_or(bench);
    let kept = [("pause/1", r#"{"by":"ann"}"#), ("pause/2", "true")];
    let kept = kept.map(|(name, json)| (name.to_owned(), json.to_owned()));
    assert_eq!(bench.store.settings().await.unwrap(), kept);
}

pub async fn a_new_signing_key_retires_the_old(bench: &Bench<'_>) {
    let key = |kind, tenant: &str, secret: u8| SigningKey {
        id: bench.store.new_key_id(),
        tenant: TenantId::new(tenant),
        kind,
        secret: vec![secret; 40],
        created_at: bench.now(),
        retired_at: None,
    };
    let old = key(SigningKind::Vapid, "acme", 1);
    let webhook = key(SigningKind::Webhook, "acme", 2);
    let other = key(SigningKind::Vapid, "other", 3);
    let new = key(SigningKind::Vapid, "acme", 4);
    for key in [&old, &webhook, &other, &new] {
        bench.store.put_signing_key(key.clone()).await.unwrap();
    }
    let reopened = bench.reopened().await;
    let bench = reopened.as_ref().unwrap_or(bench);
    let old = SigningKey { retired_at: Some(bench.now()), ..old };
    assert_eq!(bench.store.signing_keys().await.unwrap(), [old, webhook, other, new]);
}
