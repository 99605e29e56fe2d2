//! What only the Redis engine can do wrong: servers that crash, answers that are lost, slots that move, workers that
//! fall behind, and set-ups that cannot work.

#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod lost_answers;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use lost_answers::LossyProxy;
use postrider_core::ports::store::*;
use postrider_core::{Clock as _, Decision, DeliveryId, State, Timestamp};
use postrider_store::conformance::{batch, message};
use postrider_store::migrate::migrate;
use postrider_store::{EmbeddedStore, ManualClock, RedisOptions, RedisStore, StoreOptions};
use postrider_testkit::redis::{RedisClusterServers, RedisServer};

/// For tests that leave it running.
static SERVER: LazyLock<RedisServer> = LazyLock::new(|| RedisServer::start().unwrap());
static PREFIXES: AtomicU32 = AtomicU32::new(0);

const LEASE: Duration = Duration::from_secs(60);
const START: Timestamp = Timestamp(1_790_000_000_000);

fn prefix() -> String {
    format!("own_{}", PREFIXES.fetch_add(1, Ordering::Relaxed))
}

fn options(server: &RedisServer, prefix: &str) -> RedisOptions {
    RedisOptions::parse(&server.url(&format!("prefix={prefix}"))).unwrap()
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

async fn accept(store: &RedisStore, new: NewMessage) -> Vec<DeliveryId> {
    match store.accept(vec![new]).await.remove(0).unwrap() {
        Admission::Accepted { deliveries, .. } => deliveries,
        other => panic!("{other:?}"),
    }
}

async fn lease_all(consumer: &dyn Consumer) -> Vec<LeasedDelivery> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        for lane in consumer.ready_lanes(1_000).await.unwrap() {
            all.extend(consumer.lease(lane.id, 100, LEASE).await.unwrap());
        }
        if all.len() == before {
            return all;
        }
    }
}

fn done(leased: &LeasedDelivery) -> Settlement {
    Settlement {
        delivery: leased.delivery,
        token: leased.token,
        attempts: Vec::new(),
        decision: Decision::Done,
        learned: AddressLearning::default(),
    }
}

async fn settle(consumer: &dyn Consumer, leased: &LeasedDelivery) -> SettleResult {
    consumer.settle(vec![done(leased)]).await.remove(0).unwrap()
}

/// Waits until something holds, because servers take their time to start.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

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

async fn error(options: RedisOptions) -> String {
    match RedisStore::open(options).await {
        Ok(_) => panic!("it should be refused"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_setup_that_cannot_work_is_refused_with_words() {
    let server = RedisServer::start().unwrap();
    let url = |user: &str, query: &str| {
        RedisOptions::parse(&format!(
            "redis://{user}127.0.0.1:{}/0?prefix=refused&{query}",
            server.port
        ))
        .unwrap()
    };
    let set = |name: &str, value: &str| server.run(&["CONFIG", "SET", name, value]).unwrap();
    server.run(&["ACL", "SETUSER", "guarded", "on", ">right", "~other:*", "+@all"]).unwrap();
    let wrong = error(url("guarded:wrong@", "")).await;
    assert!(wrong.contains("store.password") && !wrong.contains("wrong@"), "{wrong}");
    let denied = error(url("guarded@", "").with_password("right")).await;
    assert!(denied.contains("NOPERM") && denied.contains("ACL SETUSER"), "{denied}");
    set("maxmemory-policy", "allkeys-lru");
    let evicts = error(url("", "")).await;
    assert!(evicts.contains("noeviction") && evicts.contains("risk=eviction"), "{evicts}");
    set("maxmemory-policy", "noeviction");
    set("maxmemory", "0");
    let unlimited = error(url("", "")).await;
    assert!(unlimited.contains("risk=no_maxmemory"), "{unlimited}");
    set("maxmemory", "1gb");
    set("appendfsync", "everysec");
    let relaxed = error(url("", "")).await;
    assert!(relaxed.contains("risk=everysec"), "{relaxed}");
    let store = RedisStore::open(url("", "risk=everysec")).await.unwrap();
    let health = store.check_health();
    assert!(health.engine.unwrap().promise.contains("last second or two"));
    assert_eq!(health.problems[0].code, "appendfsync_everysec");
    set("appendonly", "no");
    let volatile = error(url("", "")).await;
    assert!(volatile.contains("risk=no_persistence"), "{volatile}");
    set("appendonly", "yes");
    set("appendfsync", "always");
    let alone = error(url("", "replicas=1")).await;
    assert!(alone.contains("a master has 0"), "{alone}");
    let replica = RedisServer::start().unwrap();
    replica.run(&["REPLICAOF", "127.0.0.1", &server.port.to_string()]).unwrap();
    let read_only = error(options(&replica, "refused")).await;
    assert!(read_only.contains("read-only replica"), "{read_only}");
    let nobody = error(RedisOptions::parse("redis://127.0.0.1:1/0").unwrap()).await;
    assert!(nobody.contains("cannot connect to 127.0.0.1:1/0"), "{nobody}");
    server.run(&["SET", "refused:{d}:layout", "99"]).unwrap();
    let newer = error(url("", "")).await;
    assert!(newer.contains("layout 99") && newer.contains("newer version"), "{newer}");
}

#[tokio::test]
async fn a_write_waits_for_the_replicas_that_were_asked_for() {
    let server = RedisServer::start().unwrap();
    let replica = RedisServer::start().unwrap();
    replica.run(&["REPLICAOF", "127.0.0.1", &server.port.to_string()]).unwrap();
    until("the replica follows", async || {
        replica
            .run(&["INFO", "replication"])
            .is_ok_and(|said| said.contains("master_link_status:up"))
    })
    .await;
    let url = server.url("prefix=copied&replicas=1");
    let store = RedisStore::open(RedisOptions::parse(&url).unwrap()).await.unwrap();
    assert!(store.check_health().engine.unwrap().promise.contains("promoted"));
    accept(&store, message("acme", 1)).await;
    replica.crash().unwrap();
    let refused = store.accept(vec![message("acme", 2)]).await.remove(0).unwrap_err();
    assert!(refused.to_string().contains("0 of 1 replicas"), "{refused}");
}

#[tokio::test]
async fn connections_are_encrypted_and_the_server_proves_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let certify = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (names.self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    let (certificate, key) = certify("localhost");
    let (ours, key) = (file("ours.pem", &certificate), file("key.pem", &key));
    let other = file("other.pem", &certify("localhost").0);
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = format!(
        "bind 127.0.0.1 ::1\ntls-port {port}\ntls-cert-file {ours}\ntls-key-file {key}\ntls-ca-cert-file {ours}\n\
         tls-auth-clients no"
    );
    let _server = RedisServer::start_with(&settings).unwrap();
    let open = |host: &str, authority: &str| {
        let url = format!("rediss://{host}:{port}/0?prefix=tls&tls_ca={authority}");
        let options = RedisOptions::parse(&url).unwrap();
        async move { RedisStore::open(options).await.map_err(|error| error.to_string()) }
    };
    let store = open("localhost", &ours).await.unwrap();
    accept(&store, message("acme", 1)).await;
    let strange = open("localhost", &other).await.err().unwrap();
    assert!(strange.contains("certificate"), "{strange}");
    let misnamed = open("127.0.0.1", &ours).await.err().unwrap();
    assert!(misnamed.contains("certificate"), "{misnamed}");
    let absent = open("localhost", "/nowhere.pem").await.err();
    assert!(absent.unwrap().contains("tls_ca"));
}

/// A Sentinel that knows a master.
struct SentinelProcess(std::process::Child);

impl Drop for SentinelProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_master_is_where_the_sentinels_say() {
    let folder = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = format!(
        "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor mail 127.0.0.1 {} 1\n",
        folder.path().display(),
        SERVER.port
    );
    let file = folder.path().join("sentinel.conf");
    std::fs::write(&file, settings).unwrap();
    let mut command = std::process::Command::new("redis-server");
    command.arg(&file).arg("--sentinel").stdout(std::process::Stdio::null());
    let _sentinel = SentinelProcess(command.spawn().unwrap());
    until("the Sentinel answers", async || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    })
    .await;
    let url = |name: &str| {
        format!("redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/{name}?prefix={}", prefix())
    };
    let store = RedisStore::open(RedisOptions::parse(&url("mail")).unwrap()).await.unwrap();
    accept(&store, message("acme", 1)).await;
    assert!(store.check_health().engine.unwrap().name.starts_with("Redis with Sentinel 7"));
    let unknown = error(RedisOptions::parse(&url("nobody")).unwrap()).await;
    assert!(
        unknown.contains("cannot connect") || unknown.contains("knows the master"),
        "{unknown}"
    );
}

#[tokio::test]
async fn nodes_that_start_together_set_the_store_up_once() {
    let prefix = prefix();
    let mut opening = Vec::new();
    for _ in 0..6 {
        let options = options(&SERVER, &prefix);
        opening.push(tokio::spawn(async move { RedisStore::open(options).await.map(drop) }));
    }
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
    assert_eq!(SERVER.run(&["GET", &format!("{prefix}:{{d}}:layout")]).unwrap(), "1");
}

/// A master of a cluster dies, and its replica takes over.
#[tokio::test]
async fn work_goes_on_when_a_master_of_a_cluster_dies() {
    let cluster = RedisClusterServers::start().unwrap();
    let options = RedisOptions::parse(&cluster.url("prefix=cluster&replicas=1")).unwrap();
    let store = RedisStore::open(options).await.unwrap();
    let worker = store.consumer("a").await.unwrap();
    let lanes: Vec<u32> = (0..100).collect();
    let before: HashSet<_> = accept(&store, batch("acme", &lanes)).await.into_iter().collect();
    let masters = cluster.masters();
    masters.last().unwrap().crash().unwrap();
    let mut found = HashSet::new();
    let end = Instant::now() + Duration::from_secs(60);
    while found.len() < before.len() {
        assert!(Instant::now() < end, "{} of {} deliveries came back", found.len(), before.len());
        if let Ok(ready) = worker.ready_lanes(1_000).await {
            for lane in ready {
                let leased = worker.lease(lane.id, 100, LEASE).await.unwrap_or_default();
                found.extend(leased.iter().map(|leased| leased.delivery));
            }
        }
        worker.wait_for_work(Duration::from_millis(200)).await;
    }
    assert_eq!(found, before, "everything that was acknowledged is there");
}

/// A slot moves from one master to another while messages are accepted and sent.
#[tokio::test]
async fn slots_can_move_under_load() {
    let cluster = RedisClusterServers::start().unwrap();
    let options = RedisOptions::parse(&cluster.url("prefix=moving")).unwrap();
    let store = Arc::new(RedisStore::open(options).await.unwrap());
    let worker = store.consumer("a").await.unwrap();
    let masters = cluster.masters();
    let (from, to) = (masters[0], masters[1]);
    let id = |server: &RedisServer| server.run(&["CLUSTER", "MYID"]).unwrap();
    let (from_id, to_id) = (id(from), id(to));
    let ports = (from.port.to_string(), to.port.to_string());
    let resharding = std::thread::spawn(move || {
        let done = std::process::Command::new("redis-cli")
            .args(["--cluster", "reshard", &format!("127.0.0.1:{}", ports.0)])
            .args(["--cluster-from", &from_id, "--cluster-to", &to_id])
            .args(["--cluster-slots", "3000", "--cluster-yes"])
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    });
    let (mut accepted, mut sent) = (HashSet::new(), HashSet::new());
    let mut round = 0;
    while !resharding.is_finished() || round < 20 || sent.len() < accepted.len() {
        if !resharding.is_finished() || round < 20 {
            let lanes: Vec<u32> = (0..50).collect();
            accepted.extend(accept(&store, batch("acme", &lanes)).await);
        }
        round += 1;
        assert!(round < 2_000, "{} of {} were sent", sent.len(), accepted.len());
        let leased = lease_all(&*worker).await;
        if leased.is_empty() {
            worker.wait_for_work(Duration::from_millis(100)).await;
        }
        let answers = worker.settle(leased.iter().map(done).collect()).await;
        for (leased, answer) in leased.iter().zip(answers) {
            assert_eq!(answer.unwrap(), SettleResult::Done);
            assert!(sent.insert(leased.delivery), "sent twice");
        }
    }
    resharding.join().unwrap();
    assert_eq!(sent, accepted);
    let counts = store.counts(None).await.unwrap();
    assert_eq!(counts.states.get(&State::Sent), Some(&(sent.len() as u64)), "{counts:?}");
}

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
    assert_eq!(new.load(None), old.load(None));
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
