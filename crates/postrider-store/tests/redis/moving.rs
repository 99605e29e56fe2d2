//! A store that moves to Redis and back, and what it keeps of lanes.

use std::time::Duration;

use postrider_core::ports::store::*;
use postrider_core::{Clock as _, Decision};
use postrider_store::conformance::{batch, message};
use postrider_store::migrate::migrate;
use postrider_store::{EmbeddedStore, RedisStore, StoreOptions};

use crate::fixture::{SERVER, clock, done, lease_all, options, prefix};

#[tokio::test]
async fn a_store_moves_to_redis_and_back() {
    let (from, back) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let clock = clock();
    let open = |dir: &std::path::Path| {
        EmbeddedStore::open(dir, clock.clone(), StoreOptions::default()).unwrap()
    };
    let old = open(from.path());
    let worker = old.consumer("a").await.unwrap();
    let mut tagged = batch("acme", &[1, 2, 3]);
    tagged.envelope.tags = vec!["sale".into()];
    for new in [tagged, message("acme", 1), batch("other", &[4, 5]), message("acme", 6)] {
        old.accept(vec![new]).await.remove(0).unwrap();
    }
    let decisions = [
        Decision::Done,
        Decision::DeadLetter(postrider_core::DeadReason::Permanent),
        Decision::Retry { after: Duration::from_secs(500), counted: true },
        Decision::MarkGone,
    ];
    for (leased, decision) in lease_all(&*worker).await.iter().zip(decisions) {
        let settlement = Settlement { decision, ..done(leased) };
        worker.settle(vec![settlement]).await.remove(0).unwrap();
    }
    worker.close().await;
    old.put_document("key/signing/-/hash", Some("{\"keys\":[]}"), None, None).await.unwrap();
    let new = RedisStore::open_on(options(&SERVER, &prefix()), clock.clone()).await.unwrap();
    let moved = migrate(&old, &new, "new", clock.now(), &mut |_| {}).await.unwrap();
    assert_eq!(new.counts(None).await.unwrap(), old.counts(None).await.unwrap());
    // A server knows the load of the others up to a second later.
    let is_known = async {
        while new.load(None) != old.load(None) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), is_known).await.expect("the same load");
    let by_tag = DeliveryFilter { tag: Some("sale".into()), ..DeliveryFilter::default() };
    assert_eq!(new.deliveries(by_tag).await.unwrap().items.len(), 3);
    let worker = new.consumer("a").await.unwrap();
    assert_eq!(lease_all(&*worker).await.len(), 3, "what was pending is sent from here");
    worker.close().await;
    let last = open(back.path());
    let returned = migrate(&new, &last, "back", clock.now(), &mut |_| {}).await.unwrap();
    assert_eq!(returned.totals, moved.totals);
    assert_eq!(last.counts(None).await.unwrap(), old.counts(None).await.unwrap());
}

/// Their numbers stay for ever.
#[tokio::test]
async fn lanes_of_which_nothing_is_pending_count_in_tens() {
    let store = RedisStore::open_on(options(&SERVER, &prefix()), clock()).await.unwrap();
    let worker = store.consumer("a").await.unwrap();
    let kept = async || {
        let all = store.holdings().await.unwrap();
        all.iter().find(|own| own.tenant.as_str() == "acme").map(|own| own.holdings.lanes)
    };
    for (lanes, then) in [(0..30, 3), (30..50, 5), (20..40, 5)] {
        let lanes: Vec<_> = lanes.collect();
        store.accept(vec![batch("acme", &lanes)]).await.remove(0).unwrap();
        assert_eq!(kept().await, Some(lanes.len() as u64));
        for leased in lease_all(&*worker).await {
            worker.settle(vec![done(&leased)]).await.remove(0).unwrap();
        }
        assert_eq!(kept().await, Some(then));
    }
    worker.close().await;
}
