//! Creation, rotation and following of signing keys.

use super::*;
use postrider_core::ports::store::Documents as _;
use postrider_store::{ManualClock, MemoryStore};

const MANY: RotationLimits = RotationLimits { keys_max: 0, per_minute: 1_000 };
const DAY: Duration = Duration::from_secs(86_400);

async fn keys(
    store: &Arc<MemoryStore>,
    clock: &Arc<ManualClock>,
    vapid: Option<&str>,
) -> SigningKeys {
    SigningKeys::load(store.clone(), clock.clone(), DAY, vapid).await.unwrap()
}

fn fixture() -> (Arc<MemoryStore>, Arc<ManualClock>, TenantId) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_800_000_000)));
    let store = Arc::new(MemoryStore::new(clock.clone()));
    (store, clock, TenantId::new(DEFAULT_TENANT))
}

#[tokio::test]
async fn a_replaced_webhook_secret_signs_for_one_more_day() {
    let (store, clock, tenant) = fixture();
    let keys = keys(&store, &clock, None).await;
    keys.rotate(&tenant, SigningKind::Webhook, &MANY).await.unwrap();
    assert_eq!(keys.secrets(&tenant).len(), 2);
    clock.advance(DAY);
    assert_eq!(keys.secrets(&tenant).len(), 1);
    assert_eq!(keys.list(&tenant, SigningKind::Webhook).len(), 1);
}

#[tokio::test]
async fn a_replaced_vapid_key_stays_usable_for_its_subscriptions() {
    let (store, clock, tenant) = fixture();
    let keys = keys(&store, &clock, None).await;
    let old = keys.active_vapid(&tenant).unwrap();
    keys.rotate(&tenant, SigningKind::Vapid, &MANY).await.unwrap();
    clock.advance(DAY * 400);
    assert_ne!(keys.active_vapid(&tenant), Some(old));
    assert_eq!(keys.key(&tenant, Some(old)).unwrap().id(), old);
    assert_eq!(keys.key(&tenant, None).unwrap().id(), keys.active_vapid(&tenant).unwrap());
    assert!(keys.key(&TenantId::new("stranger"), Some(old)).is_none());
}

#[tokio::test]
async fn a_given_vapid_key_becomes_the_active_one_and_only_once() {
    let given = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94";
    let (store, clock, tenant) = fixture();
    keys(&store, &clock, None).await;
    for _ in 0..2 {
        let keys = keys(&store, &clock, Some(given)).await;
        let list = keys.list(&tenant, SigningKind::Vapid);
        assert_eq!(list.len(), 2, "the generated and the given one");
        assert!(list[0].active && list[0].text.starts_with("BCVxsr7N"));
    }
    let wrong = SigningKeys::load(store, clock, DAY, Some("AAAA")).await;
    assert!(matches!(wrong, Err(KeyError::BadVapidKey)));
}

#[tokio::test]
async fn keys_are_the_same_after_a_restart() {
    let (store, clock, tenant) = fixture();
    let first = keys(&store, &clock, None).await;
    let second = keys(&store, &clock, None).await;
    assert_eq!(first.hash_key(), second.hash_key());
    assert_eq!(first.active_vapid(&tenant), second.active_vapid(&tenant));
    assert_eq!(first.hash_key().len(), 32);
}

#[tokio::test]
async fn two_nodes_that_need_the_first_key_at_the_same_time_get_the_same_one() {
    let (store, clock, _) = fixture();
    let (first, second) = tokio::join!(keys(&store, &clock, None), keys(&store, &clock, None));
    assert_eq!(first.hash_key(), second.hash_key());
    let tenant = TenantId::new("new");
    // Neither knows of the keys of the other.
    first.ensure(&tenant).await.unwrap();
    second.ensure(&tenant).await.unwrap();
    let lists = |keys: &SigningKeys| {
        let kinds = [SigningKind::Vapid, SigningKind::Webhook];
        kinds.map(|kind| format!("{:?}", keys.list(&tenant, kind)))
    };
    assert_eq!(lists(&first), lists(&second));
    // A rotation keeps what another node rotated.
    first.rotate(&tenant, SigningKind::Webhook, &MANY).await.unwrap();
    second.rotate(&tenant, SigningKind::Webhook, &MANY).await.unwrap();
    assert_eq!(second.secrets(&tenant).len(), 3);
    let active = second.list(&tenant, SigningKind::Webhook).iter().filter(|k| k.active).count();
    assert_eq!(active, 1);
}

#[tokio::test]
async fn the_first_keys_of_a_tenant_leave_those_of_the_others_alone() {
    let (store, clock, tenant) = fixture();
    let loaded = keys(&store, &clock, None).await;
    let before = (loaded.key(&tenant, None).unwrap(), loaded.secrets(&tenant));
    let damaged = r#"{"keys":[]"#;
    store.put_document("key/signing/damaged/vapid", Some(damaged), None, None).await.unwrap();

    let second = TenantId::new("second");
    loaded.ensure(&second).await.expect("the keys of other tenants are not read");
    assert!(Arc::ptr_eq(&before.0, &loaded.key(&tenant, None).unwrap()), "parsed again");
    assert!(Arc::ptr_eq(&before.1[0], &loaded.secrets(&tenant)[0]), "parsed again");
}

#[tokio::test]
async fn the_first_keys_of_a_tenant_are_cached_as_a_restart_reads_them() {
    let (store, clock, _) = fixture();
    let first = keys(&store, &clock, None).await;
    let tenant = TenantId::new("second");
    first.ensure(&tenant).await.unwrap();
    let lists = |keys: &SigningKeys| {
        let kinds = [SigningKind::Vapid, SigningKind::Webhook];
        kinds.map(|kind| format!("{:?}", keys.list(&tenant, kind)))
    };
    assert_eq!(lists(&first), lists(&keys(&store, &clock, None).await));
    first.rotate(&tenant, SigningKind::Vapid, &MANY).await.unwrap();
    first.rotate(&tenant, SigningKind::Webhook, &MANY).await.unwrap();
    assert_eq!(first.list(&tenant, SigningKind::Vapid).len(), 2);
    assert_eq!(first.secrets(&tenant).len(), 2);
    assert_eq!(lists(&first), lists(&keys(&store, &clock, None).await));
}
