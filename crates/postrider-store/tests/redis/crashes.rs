//! Servers that crash or are full, answers that are lost, and workers that fall behind.

use std::collections::HashSet;
use std::time::Duration;

use postrider_core::State;
use postrider_core::ports::store::*;
use postrider_store::conformance::{batch, message};
use postrider_store::{RedisOptions, RedisStore};
use postrider_testkit::redis::RedisServer;

use crate::fixture::{SERVER, accept, clock, done, lease_all, options, prefix, settle, until};
use crate::lost_answers::LossyProxy;

#[tokio::test]
async fn what_was_accepted_and_settled_survives_a_kill_of_the_server() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::open(options(&server, "crashing")).await.unwrap();
    let worker = store.consumer("a").await.unwrap();
    let sent = accept(&store, message("acme", 1)).await[0];
    let leased = lease_all(&*worker).await;
    assert_eq!(settle(&*worker, &leased[0]).await, SettleResult::Done);
    let answer = store.accept(vec![message("acme", 2)]).await.remove(0).unwrap();
    let Admission::Accepted { message: in_flight, .. } = answer else { panic!("{answer:?}") };
    let leased = lease_all(&*worker).await;
    assert_eq!(leased.len(), 1);
    server.crash().unwrap();
    assert!(store.counts(None).await.is_err(), "an error, not a wait without an end");
    server.start_again().unwrap();
    until("the store answers again", async || store.counts(None).await.is_ok()).await;
    assert_eq!(store.delivery(None, sent).await.unwrap().unwrap().state, State::Sent);
    let cancelled = store.cancel(None, in_flight).await.unwrap().unwrap();
    assert_eq!((cancelled.cancelled, cancelled.in_flight), (0, 1), "the lease is known");
    until("a late settlement is written", async || {
        worker.settle(vec![done(&leased[0])]).await.remove(0).is_ok_and(|r| r == SettleResult::Done)
    })
    .await;
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.states.get(&State::Sent), Some(&2));
    let again = accept(&store, message("acme", 3)).await;
    until("work goes on", async || {
        let leased = lease_all(&*worker).await;
        leased.iter().any(|leased| leased.delivery == again[0])
    })
    .await;
}

#[tokio::test]
async fn new_work_is_refused_while_the_server_is_down() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::open(options(&server, "down")).await.unwrap();
    store.takes_work().unwrap();
    server.crash().unwrap();
    until("it is noticed", async || store.takes_work().is_err()).await;
    let refused = store.accept(vec![message("acme", 1)]).await.remove(0).unwrap_err();
    assert!(matches!(&refused, StoreError::Io { what, .. } if what.contains("Redis")), "{refused}");
    server.start_again().unwrap();
    until("it is noticed", async || store.takes_work().is_ok()).await;
    accept(&store, message("acme", 1)).await;
    assert_eq!(store.counts(None).await.unwrap().messages, 1, "the refused one is not there");
}

#[tokio::test]
async fn new_work_is_refused_while_the_server_is_nearly_full() {
    let server = RedisServer::start().unwrap();
    let store = RedisStore::open(options(&server, "full")).await.unwrap();
    let worker = store.consumer("a").await.unwrap();
    accept(&store, message("acme", 1)).await;
    let leased = lease_all(&*worker).await;
    let used = server.run(&["INFO", "memory"]).unwrap();
    let used = used.lines().find_map(|line| line.strip_prefix("used_memory:")).unwrap();
    let used: u64 = used.trim().parse().unwrap();
    let limit =
        |bytes: u64| server.run(&["CONFIG", "SET", "maxmemory", &bytes.to_string()]).unwrap();
    limit(used * 11 / 10);
    until("it is noticed", async || store.takes_work().is_err()).await;
    let error = store.takes_work().unwrap_err();
    assert!(
        matches!(&error, StoreError::Full { what, .. } if what.contains("maxmemory")),
        "{error}"
    );
    limit(used / 2);
    assert_eq!(settle(&*worker, &leased[0]).await, SettleResult::Done, "work goes on");
    let refused = store.accept(vec![message("acme", 1)]).await.remove(0).unwrap_err();
    assert!(matches!(&refused, StoreError::Full { what, .. } if what.contains("OOM")), "{refused}");
    server.run(&["CONFIG", "SET", "maxmemory", "1gb"]).unwrap();
    until("it is noticed", async || store.takes_work().is_ok()).await;
    accept(&store, message("acme", 2)).await;
}

/// The write happens, and its answer does not arrive.
#[tokio::test]
async fn a_write_whose_answer_was_lost_happens_once() {
    let proxy = LossyProxy::start(SERVER.port);
    let url = format!("redis://127.0.0.1:{}/0?prefix={}", proxy.port, prefix());
    let store = RedisStore::open(RedisOptions::parse(&url).unwrap()).await.unwrap();
    let worker = store.consumer("a").await.unwrap();
    for round in 1..=20u64 {
        let tenant = format!("t{round}");
        proxy.lose_next();
        let ids = accept(&store, batch(&tenant, &[1, 2, 3])).await;
        assert_eq!(ids.len(), 3);
        let mut leased = lease_all(&*worker).await;
        while leased.len() < 3 {
            worker.wait_for_work(Duration::from_secs(1)).await;
            leased.extend(lease_all(&*worker).await);
        }
        proxy.lose_next();
        for answer in worker.settle(leased.iter().map(done).collect()).await {
            assert_eq!(answer.unwrap(), SettleResult::Done);
        }
        until("the counts can be read", async || store.counts(None).await.is_ok()).await;
        let counts = store.counts(None).await.unwrap();
        assert_eq!(counts.messages, round, "accepted once each");
        assert_eq!(counts.states.get(&State::Sent), Some(&(3 * round)), "{counts:?}");
    }
    assert!(proxy.losses() >= 30, "answers were lost: {}", proxy.losses());
}

/// A node dies after it reserved a key, before it wrote the message.
#[tokio::test]
async fn a_reserved_key_is_taken_up_by_the_repeat() {
    let prefix = prefix();
    let store = RedisStore::open(options(&SERVER, &prefix)).await.unwrap();
    let worker = store.consumer("a").await.unwrap();
    let mut new = message("acme", 1);
    let key = [7; 16];
    new.dedup = Some(DedupKey { key, fingerprint: [9; 16], window: Duration::from_secs(86_400) });
    let Admission::Accepted { message: first, deliveries } =
        store.accept(vec![new.clone()]).await.remove(0).unwrap()
    else {
        panic!("not accepted");
    };
    // The key as it was before the message was written: without its seal, and the delivery gone.
    let script = "for _, k in ipairs(redis.call('KEYS', ARGV[1])) do \
                  for _, f in ipairs(redis.call('HKEYS', k)) do \
                  local v = redis.call('HGET', k, f) redis.call('HSET', k, f, string.sub(v, 1, 44) .. '\\0') end end \
                  for _, k in ipairs(redis.call('KEYS', ARGV[2])) do redis.call('DEL', k) end return 'done'";
    until("the seal is written", async || {
        let sealed = store.repeats(new.dedup.iter().cloned().collect()).await.unwrap();
        sealed[0].is_some()
    })
    .await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (keys, rows) = (format!("{prefix}:*:k:*"), format!("{prefix}:*:q:*"));
    SERVER.run(&["EVAL", script, "0", &keys, &rows]).unwrap();
    assert_eq!(
        store.repeats(new.dedup.iter().cloned().collect()).await.unwrap(),
        [None],
        "not written"
    );
    let again = store.accept(vec![new.clone()]).await.remove(0).unwrap();
    assert_eq!(
        again,
        Admission::Duplicate { message: first, deliveries: deliveries.clone() },
        "the same ids"
    );
    let leased = lease_all(&*worker).await;
    assert_eq!(leased.iter().map(|l| l.delivery).collect::<Vec<_>>(), deliveries, "written once");
    let again = store.accept(vec![new]).await.remove(0).unwrap();
    assert_eq!(again, Admission::Duplicate { message: first, deliveries });
    assert!(lease_all(&*worker).await.is_empty());
}

#[tokio::test]
async fn a_worker_that_fell_behind_writes_nothing() {
    let (prefix, slow, fast) = (prefix(), clock(), clock());
    let a_store = RedisStore::open_on(options(&SERVER, &prefix), slow.clone()).await.unwrap();
    let b_store = RedisStore::open_on(options(&SERVER, &prefix), fast.clone()).await.unwrap();
    let a = a_store.consumer("a").await.unwrap();
    let b = b_store.consumer("b").await.unwrap();
    let ids = accept(&a_store, batch("acme", &[1, 2])).await;
    let stale = lease_all(&*a).await;
    assert_eq!(stale.len(), 2);
    // To the other one, the first is silent for longer than its term.
    fast.advance(Duration::from_secs(10));
    let taken = lease_all(&*b).await;
    assert_eq!(taken.len(), 2);
    assert!(taken.iter().all(|leased| leased.crashes == 1));
    assert_eq!(settle(&*a, &stale[0]).await, SettleResult::Fenced);
    let start = vec![(stale[1].delivery, stale[1].token)];
    assert_eq!(a.start(start).await.unwrap(), [false]);
    accept(&a_store, message("acme", 1)).await;
    assert!(lease_all(&*a).await.is_empty(), "it holds nothing any more");
    assert_eq!(settle(&*b, &taken[0]).await, SettleResult::Done);
    let view = b_store.delivery(None, ids[1]).await.unwrap().unwrap();
    assert!(matches!(view.state, State::Sending | State::Sent));
}

#[tokio::test]
async fn two_nodes_share_the_shards_and_hear_of_each_others_work() {
    let (prefix, clock) = (prefix(), clock());
    let open =
        async || RedisStore::open_on(options(&SERVER, &prefix), clock.clone()).await.unwrap();
    let (a_store, b_store) = (open().await, open().await);
    let a = a_store.consumer("a").await.unwrap();
    let b = b_store.consumer("b").await.unwrap();
    for _ in 0..5 {
        clock.advance(Duration::from_secs(1));
        assert!(a.ready_lanes(1).await.unwrap().is_empty());
        assert!(b.ready_lanes(1).await.unwrap().is_empty());
    }
    let lanes: Vec<u32> = (0..200).collect();
    let accepted: HashSet<_> = accept(&b_store, batch("acme", &lanes)).await.into_iter().collect();
    tokio::time::timeout(Duration::from_secs(5), a.wait_for_work(Duration::from_secs(60)))
        .await
        .expect("it hears of the other node's work");
    let (ours, theirs) = (lease_all(&*a).await, lease_all(&*b).await);
    assert!(ours.len() > 50 && theirs.len() > 50, "{} and {}", ours.len(), theirs.len());
    let both: HashSet<_> = ours.iter().chain(&theirs).map(|leased| leased.delivery).collect();
    assert_eq!((both.len(), ours.len() + theirs.len()), (200, 200));
    assert_eq!(both, accepted);
    assert!(a.leads() && !b.leads());
    a.close().await;
    clock.advance(Duration::from_secs(1));
    let rest = lease_all(&*b).await;
    assert_eq!(rest.len(), ours.len(), "handed over in order, at once");
    assert!(rest.iter().all(|leased| leased.crashes == 0) && b.leads());
}
