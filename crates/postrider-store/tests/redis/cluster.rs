//! A cluster whose masters die and whose slots move.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postrider_core::State;
use postrider_core::ports::store::*;
use postrider_store::conformance::batch;
use postrider_store::{RedisOptions, RedisStore};
use postrider_testkit::redis::{RedisClusterServers, RedisServer};

use crate::fixture::{LEASE, accept, done, lease_all};

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
