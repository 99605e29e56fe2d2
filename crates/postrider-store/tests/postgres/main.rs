//! What only the PostgreSQL engine can do wrong: servers that crash, answers that are lost, workers that fall behind,
//! and set-ups that cannot work.

#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

#[path = "../cut_proxy/mod.rs"]
mod cut_proxy;
#[path = "../pinned/mod.rs"]
mod pinned;
mod reading;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use cut_proxy::CutProxy;
use postrider_core::ports::store::*;
use postrider_core::{Clock as _, Decision, DeliveryId, State, Timestamp};
use postrider_store::conformance::{batch, message};
use postrider_store::migrate::migrate;
use postrider_store::{EmbeddedStore, ManualClock, PostgresOptions, PostgresStore, StoreOptions};
use postrider_testkit::postgres::PostgresServer;

/// For tests that leave it running.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start().unwrap());
static SCHEMAS: AtomicU32 = AtomicU32::new(0);

const LEASE: Duration = Duration::from_secs(60);
const START: Timestamp = Timestamp(1_790_000_000_000);

fn schema() -> String {
    format!("own_{}", SCHEMAS.fetch_add(1, Ordering::Relaxed))
}

fn options(server: &PostgresServer, schema: &str) -> PostgresOptions {
    PostgresOptions::parse(&server.url(&format!("schema={schema}"))).unwrap()
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(START))
}

async fn accept(store: &PostgresStore, new: NewMessage) -> Vec<DeliveryId> {
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
    let end = Instant::now() + Duration::from_secs(20);
    while !holds().await {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn what_was_accepted_and_settled_survives_a_crash_of_the_server() {
    let server = PostgresServer::start().unwrap();
    // Leases stay in memory as long as possible.
    server.sql("ALTER SYSTEM SET wal_writer_delay = '10s'").unwrap();
    server.restart().unwrap();
    let store = PostgresStore::open(options(&server, "crashing")).await.unwrap();
    let worker = store.consumer("a").await.unwrap();
    let sent = accept(&store, message("acme", 1)).await[0];
    let leased = lease_all(&*worker).await;
    assert_eq!(settle(&*worker, &leased[0]).await, SettleResult::Done);
    let new = message("acme", 2);
    let answer = store.accept(vec![new]).await.remove(0).unwrap();
    let Admission::Accepted { message: in_flight, .. } = answer else { panic!("{answer:?}") };
    let leased = lease_all(&*worker).await;
    assert_eq!(leased.len(), 1);
    server.crash().unwrap();
    assert!(store.counts(None).await.is_err(), "an error, not a wait without an end");
    server.start_again().unwrap();
    until("the store answers again", async || store.counts(None).await.is_ok()).await;
    assert_eq!(store.delivery(None, sent).await.unwrap().unwrap().state, State::Sent);
    // The lease may be lost with the crash, and its delivery is being sent.
    let cancelled = store.cancel(None, in_flight).await.unwrap().unwrap();
    assert_eq!((cancelled.cancelled, cancelled.in_flight), (0, 1));
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
    let server = PostgresServer::start().unwrap();
    let store = PostgresStore::open(options(&server, "down")).await.unwrap();
    store.takes_work().unwrap();
    server.crash().unwrap();
    until("it is noticed", async || store.takes_work().is_err()).await;
    let refused = store.accept(vec![message("acme", 1)]).await.remove(0).unwrap_err();
    assert!(
        matches!(&refused, StoreError::Io { what, .. } if what.contains("PostgreSQL")),
        "{refused}"
    );
    server.start_again().unwrap();
    until("it is noticed", async || store.takes_work().is_ok()).await;
    accept(&store, message("acme", 1)).await;
    assert_eq!(store.counts(None).await.unwrap().messages, 1, "the refused one is not there");
}

/// The commit happens, and its answer does not arrive.
#[tokio::test]
async fn a_write_whose_answer_was_lost_happens_once() {
    let proxy = CutProxy::start(SERVER.port);
    let url = SERVER.url(&format!("schema={}", schema()));
    let url = url.replace(&format!(":{}/", SERVER.port), &format!(":{}/", proxy.port));
    let store = PostgresStore::open(PostgresOptions::parse(&url).unwrap()).await.unwrap();
    let worker = store.consumer("a").await.unwrap();
    for round in 1..=20u64 {
        let tenant = format!("t{round}");
        proxy.cut_after("INSERT INTO receipt");
        let ids = accept(&store, batch(&tenant, &[1, 2, 3])).await;
        assert_eq!(ids.len(), 3);
        let mut leased = lease_all(&*worker).await;
        while leased.len() < 3 {
            worker.wait_for_work(Duration::from_secs(1)).await;
            leased.extend(lease_all(&*worker).await);
        }
        proxy.cut_after("INSERT INTO receipt");
        for answer in worker.settle(leased.iter().map(done).collect()).await {
            assert_eq!(answer.unwrap(), SettleResult::Done);
        }
        let counts = store.counts(None).await.unwrap();
        assert_eq!(counts.messages, round, "accepted once each");
        assert_eq!(counts.states.get(&State::Sent), Some(&(3 * round)), "{counts:?}");
    }
    assert!(proxy.cuts() >= 20, "answers were lost: {}", proxy.cuts());
}

#[tokio::test]
async fn a_worker_that_fell_behind_writes_nothing() {
    let (schema, slow, fast) = (schema(), clock(), clock());
    let a_store = PostgresStore::open_on(options(&SERVER, &schema), slow.clone()).await.unwrap();
    let b_store = PostgresStore::open_on(options(&SERVER, &schema), fast.clone()).await.unwrap();
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
    let (schema, clock) = (schema(), clock());
    let open =
        async || PostgresStore::open_on(options(&SERVER, &schema), clock.clone()).await.unwrap();
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

/// The whole store has one turn for suspects, not each worker.
#[tokio::test]
async fn suspects_of_all_workers_take_turns() {
    let (schema, clock) = (schema(), clock());
    let open =
        async || PostgresStore::open_on(options(&SERVER, &schema), clock.clone()).await.unwrap();
    let (a_store, b_store) = (open().await, open().await);
    let lanes: Vec<u32> = (0..20).collect();
    accept(&a_store, batch("acme", &lanes)).await;
    for _ in 0..2 {
        let worker = a_store.consumer("a").await.unwrap();
        assert_eq!(lease_all(&*worker).await.len(), 20);
    }
    let a = a_store.consumer("a").await.unwrap();
    let b = b_store.consumer("b").await.unwrap();
    for _ in 0..3 {
        clock.advance(Duration::from_secs(1));
        a.wait_for_work(Duration::ZERO).await;
        b.wait_for_work(Duration::ZERO).await;
    }
    let mut served = 0;
    for _ in 0..60 {
        let leased = [lease_all(&*a).await, lease_all(&*b).await];
        let count = leased.iter().map(Vec::len).sum::<usize>();
        assert!(count <= 1, "{count} suspects at once");
        for (worker, leased) in [&a, &b].into_iter().zip(&leased) {
            for leased in leased {
                assert_eq!(settle(&**worker, leased).await, SettleResult::Done);
                served += 1;
            }
        }
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(served, 20);
}

#[tokio::test]
async fn a_document_of_one_node_is_known_by_the_others_within_a_second() {
    let schema = schema();
    let a = PostgresStore::open(options(&SERVER, &schema)).await.unwrap();
    let b = PostgresStore::open(options(&SERVER, &schema)).await.unwrap();
    let since = b.changes(DocumentVersion::NONE, Duration::ZERO).await.unwrap().upto;
    a.put_document("pause/acme", Some("true"), None, None).await.unwrap();
    let began = Instant::now();
    let changes = b.changes(since, Duration::from_secs(10)).await.unwrap();
    assert_eq!(changes.documents.len(), 1);
    assert!(began.elapsed() < Duration::from_millis(1_500), "{:?}", began.elapsed());
}

#[tokio::test]
async fn pinned_work_is_left_to_the_workers_of_its_region() {
    let clock = clock();
    let store = PostgresStore::open_on(options(&SERVER, &schema()), clock.clone()).await.unwrap();
    pinned::pinned_work_waits_for_a_worker_of_its_region(Arc::new(store), &clock).await;
}

#[tokio::test]
async fn settings_are_shown_as_the_server_has_them() {
    let store = PostgresStore::open(options(&SERVER, &schema())).await.unwrap();
    let codes = |store: &PostgresStore| -> Vec<_> {
        store.check_health().problems.into_iter().map(|problem| problem.code).collect()
    };
    // The servers of tests do not wait for the disk, but they commit as usual.
    assert_eq!(codes(&store), ["fsync_off"]);
}

#[tokio::test]
async fn a_schema_may_have_a_name_that_is_a_word_of_sql() {
    for name in ["user", "select", "table"] {
        let store = PostgresStore::open(options(&SERVER, name)).await.unwrap();
        accept(&store, message("acme", 1)).await;
        drop(store);
        let again = PostgresStore::open(options(&SERVER, name)).await.unwrap();
        assert_eq!(
            again.counts(None).await.unwrap().messages,
            1,
            "{name}: what was there is found"
        );
    }
}

#[tokio::test]
async fn the_clock_is_the_servers() {
    let store = PostgresStore::open(options(&SERVER, &schema())).await.unwrap();
    let said = SERVER.sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").unwrap();
    let said: i64 = said.parse().unwrap();
    assert!((store.clock().now().0 - said).abs() < 500);
}

#[tokio::test]
async fn old_partitions_are_dropped_whole() {
    let (schema, clock) = (schema(), clock());
    let store = PostgresStore::open_on(options(&SERVER, &schema), clock.clone()).await.unwrap();
    let worker = store.consumer("a").await.unwrap();
    let month = Retention::of(Duration::from_secs(30 * 86_400));
    for _ in 0..40 {
        accept(&store, message("acme", 1)).await;
        for leased in lease_all(&*worker).await {
            settle(&*worker, &leased).await;
        }
        clock.advance(Duration::from_secs(86_400));
        store.prune(&month).await.unwrap();
    }
    let tables = format!(
        "SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid \
         WHERE i.inhparent = '{schema}.ledger'::regclass"
    );
    let tables: u32 = SERVER.sql(&tables).unwrap().parse().unwrap();
    assert!((30..=37).contains(&tables), "{tables} partitions");
    let rest = SERVER.sql(&format!("SELECT count(*) FROM {schema}.ledger_rest")).unwrap();
    assert_eq!(rest, "0", "everything has its partition");
    let counts = store.counts(None).await.unwrap();
    assert!((30..=32).contains(&counts.messages), "{counts:?}");
    assert_eq!(counts.states.get(&State::Sent), Some(&counts.messages));
}

async fn error(options: PostgresOptions) -> String {
    match PostgresStore::open(options).await {
        Ok(_) => panic!("it should be refused"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn a_setup_that_cannot_work_is_refused_with_words() {
    SERVER.sql("CREATE ROLE guarded LOGIN PASSWORD 'right'").unwrap();
    let url = |user: &str| {
        format!(
            "postgres://{user}@127.0.0.1:{}/postgres?sslmode=disable&schema=refused",
            SERVER.port
        )
    };
    let parse = |url: &str| PostgresOptions::parse(url).unwrap();
    let wrong = error(parse(&url("guarded:wrong"))).await;
    assert!(wrong.contains("password") && wrong.contains("pg_hba.conf"), "{wrong}");
    assert!(!wrong.contains("wrong"), "{wrong}");
    let missing =
        error(parse(&url("guarded").replace("/postgres?", "/nothing?")).with_password("right"));
    let missing = missing.await;
    assert!(missing.contains("create the database first"), "{missing}");
    let denied = error(parse(&url("guarded")).with_password("right")).await;
    assert!(
        denied.contains("permission denied") && denied.contains("grant the user CREATE"),
        "{denied}"
    );
    SERVER.sql("CREATE ROLE reader LOGIN SUPERUSER").unwrap();
    SERVER.sql("ALTER ROLE reader SET default_transaction_read_only = on").unwrap();
    let read_only = error(parse(&url("reader"))).await;
    assert!(read_only.contains("read-only"), "{read_only}");
    let nobody = error(parse("postgres://postgres@127.0.0.1:1/postgres")).await;
    assert!(nobody.contains("cannot connect to 127.0.0.1:1/postgres"), "{nobody}");
}

#[tokio::test]
async fn connections_are_encrypted_and_the_server_proves_its_name() {
    let server = PostgresServer::start().unwrap();
    let certify = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (names.self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    let (certificate, key) = certify("localhost");
    server.use_tls(&certificate, &key).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (ours, other) =
        (file("ours.pem", &certificate), file("other.pem", &certify("localhost").0));
    let open = |host: &str, parameters: &str| {
        let url =
            format!("postgres://guarded@{host}:{}/postgres?schema=tls&{parameters}", server.port);
        let options = PostgresOptions::parse(&url).unwrap().with_password("right");
        async move { PostgresStore::open(options).await.map(drop).map_err(|error| error.to_string()) }
    };
    server.sql("CREATE ROLE guarded LOGIN SUPERUSER PASSWORD 'right'").unwrap();
    open("localhost", "sslmode=require").await.unwrap();
    open("localhost", "sslmode=prefer").await.unwrap();
    open("localhost", &format!("sslmode=verify-full&sslrootcert={ours}")).await.unwrap();
    let encrypted = server.sql(
        "SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) \
                                WHERE a.application_name = 'postrider' AND NOT s.ssl",
    );
    assert_eq!(encrypted.unwrap(), "0");
    let strange = open("localhost", &format!("sslmode=verify-full&sslrootcert={other}")).await;
    assert!(strange.unwrap_err().contains("certificate"));
    let misnamed = open("127.0.0.1", &format!("sslmode=verify-full&sslrootcert={ours}")).await;
    assert!(misnamed.unwrap_err().contains("certificate"));
    let absent = open("localhost", "sslmode=verify-full&sslrootcert=/nowhere.pem").await;
    assert!(absent.unwrap_err().contains("sslrootcert"));
}

#[tokio::test]
async fn a_newer_layout_is_refused() {
    let schema = schema();
    drop(PostgresStore::open(options(&SERVER, &schema)).await.unwrap());
    SERVER.sql(&format!("UPDATE {schema}.meta SET value = 99 WHERE key = 'layout'")).unwrap();
    let newer = error(options(&SERVER, &schema)).await;
    assert!(newer.contains("layout 99") && newer.contains("newer version"), "{newer}");
}

#[tokio::test]
async fn nodes_that_start_together_set_the_schema_up_once() {
    let schema = schema();
    let mut opening = Vec::new();
    for _ in 0..6 {
        let options = options(&SERVER, &schema);
        opening.push(tokio::spawn(async move { PostgresStore::open(options).await.map(drop) }));
    }
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
    let shards = SERVER.sql(&format!("SELECT count(*) FROM {schema}.shard")).unwrap();
    assert_eq!(shards, "64");
}

#[tokio::test]
async fn a_store_moves_to_postgresql_and_back() {
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
    let new = PostgresStore::open_on(options(&SERVER, &schema()), clock.clone()).await.unwrap();
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
    let store = PostgresStore::open_on(options(&SERVER, &schema()), clock()).await.unwrap();
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
