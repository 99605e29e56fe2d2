//! Messages whose writing was interrupted: a server that refuses some of the keys stands for a node that died in
//! between.

use std::time::Duration;

use postrider_core::ports::store::*;
use postrider_core::{DeliveryId, State};
use postrider_store::conformance::batch;
use postrider_store::{RedisOptions, RedisStore};
use postrider_testkit::redis::RedisServer;

use crate::fixture::{clock, done, lease_all, options};

const LANES: [u32; 4] = [1, 2, 3, 4];
const KEPT: Duration = Duration::from_secs(86_400);

fn shard_of(id: DeliveryId) -> u128 {
    (id.0 & 1_023) % 64
}

/// Options of a user who may still write everything.
fn options_of_another(server: &RedisServer, prefix: &str) -> RedisOptions {
    let words = ["ACL", "SETUSER", "partial", "reset", "on", "nopass", "&*", "+@all", "~*"];
    server.run(&words).unwrap();
    let url = server.url(&format!("prefix={prefix}")).replace("redis://", "redis://partial@");
    RedisOptions::parse(&url).unwrap()
}

/// From now on that user may write everything but the deliveries of one shard.
fn take_away(server: &RedisServer, prefix: &str, shard: u128) {
    let others = (0..64).filter(|each| *each != shard).map(|each| each.to_string());
    let mut rule: Vec<_> = others.map(|each| format!("~{prefix}:{{{each}}}:*")).collect();
    rule.push(format!("~{prefix}:{{d}}:*"));
    // What a message needs, but not the inbox.
    rule.extend(
        ["m*", "f:*", "t", "tb", "g", "k*"].map(|of| format!("~{prefix}:{{{shard}}}:{of}")),
    );
    let mut words = vec!["ACL", "SETUSER", "partial", "reset", "on", "nopass", "&*", "+@all"];
    words.extend(rule.iter().map(String::as_str));
    server.run(&words).unwrap();
}

/// A shard that has one of the deliveries, and no other of them.
async fn lonely_shard(server: &RedisServer) -> u128 {
    let store = RedisStore::open(options(server, "measured")).await.unwrap();
    let answer = store.accept(vec![batch("acme", &LANES)]).await.remove(0).unwrap();
    let Admission::Accepted { deliveries, .. } = answer else { panic!("{answer:?}") };
    let shards: Vec<_> = deliveries.iter().map(|id| shard_of(*id)).collect();
    let is_lonely = |shard: &&u128| shards.iter().filter(|each| each == shard).count() == 1;
    *shards.iter().find(is_lonely).expect("lanes in different shards")
}

fn retention() -> Retention {
    let times = RetentionTimes { deliveries: KEPT, dead_letters: Some(KEPT) };
    Retention { default: times, tenants: Default::default() }
}

#[tokio::test]
async fn a_message_whose_writing_was_interrupted_ends_with_the_deliveries_that_are_there() {
    let server = RedisServer::start().unwrap();
    let shard = lonely_shard(&server).await;
    let clock = clock();
    let partial = options_of_another(&server, "cut");
    let dying = RedisStore::open_on(options(&server, "cut"), clock.clone()).await.unwrap();
    dying.close().await;
    let dying = RedisStore::open_on(partial, clock.clone()).await.unwrap();
    take_away(&server, "cut", shard);
    let refused = dying.accept(vec![batch("acme", &LANES)]).await.remove(0).unwrap_err();
    assert!(refused.to_string().contains("NOPERM"), "{refused}");
    drop(dying);
    let store = RedisStore::open_on(options(&server, "cut"), clock.clone()).await.unwrap();
    let worker = store.consumer("a").await.unwrap();
    let leased = lease_all(&*worker).await;
    assert_eq!(leased.len(), LANES.len() - 1, "what was written is sent");
    worker.settle(leased.iter().map(done).collect()).await.into_iter().for_each(|answer| {
        assert_eq!(answer.unwrap(), SettleResult::Done);
    });
    store.prune(&retention()).await.unwrap();
    let message = leased[0].message.id;
    assert!(store.content(None, message).await.unwrap().is_some(), "the rest may still be written");
    clock.advance(Duration::from_secs(7_200));
    store.prune(&retention()).await.unwrap();
    assert!(store.content(None, message).await.unwrap().is_none(), "nobody needs it any more");
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.states.get(&State::Sent), Some(&3), "{counts:?}");
    clock.advance(2 * KEPT);
    while store.prune(&retention()).await.unwrap().has_more {}
    assert_eq!(
        store.counts(None).await.unwrap().messages,
        0,
        "it is forgotten with its deliveries"
    );
}

#[tokio::test]
async fn a_message_with_a_key_is_written_whole_by_a_repeat_hours_later() {
    let server = RedisServer::start().unwrap();
    let shard = lonely_shard(&server).await;
    let clock = clock();
    let store = RedisStore::open_on(options(&server, "late"), clock.clone()).await.unwrap();
    let partial = options_of_another(&server, "late");
    let dying = RedisStore::open_on(partial, clock.clone()).await.unwrap();
    take_away(&server, "late", shard);
    let mut new = batch("acme", &LANES);
    new.ttl_s = 86_400;
    new.dedup = Some(DedupKey { key: [7; 16], fingerprint: [9; 16], window: KEPT });
    dying.accept(vec![new.clone()]).await.remove(0).unwrap_err();
    drop(dying);
    let worker = store.consumer("a").await.unwrap();
    let first = lease_all(&*worker).await;
    assert_eq!(first.len(), LANES.len() - 1);
    worker.settle(first.iter().map(done).collect()).await;
    clock.advance(Duration::from_secs(3 * 3_600));
    store.prune(&retention()).await.unwrap();
    let answer = store.accept(vec![new]).await.remove(0).unwrap();
    let Admission::Duplicate { deliveries, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(deliveries.len(), LANES.len());
    let rest = lease_all(&*worker).await;
    assert_eq!(rest.len(), 1, "only what was missing");
    assert!(!rest[0].message.content.is_empty(), "with its content");
    assert_eq!(worker.settle(vec![done(&rest[0])]).await.remove(0).unwrap(), SettleResult::Done);
    assert!(store.content(None, rest[0].message.id).await.unwrap().is_none());
}
