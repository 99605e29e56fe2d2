//! How much is read of a queue in which much waits.

use postrider_core::TenantId;
use postrider_core::ports::store::*;
use postrider_store::PostgresStore;
use postrider_store::conformance::message;

use crate::{LEASE, SERVER, clock, done, options, schema, until};

const PENDING: usize = 12_000;
const AT_ONCE: usize = 256;

/// All have the same due time, as those of a campaign.
#[tokio::test]
async fn what_waits_in_a_lane_is_read_once_however_much_it_is() {
    let schema = schema();
    let store = PostgresStore::open_on(options(&SERVER, &schema), clock()).await.unwrap();
    for _ in 0..PENDING / 500 {
        let new = vec![message("acme", 1); 500];
        store.accept(new).await.into_iter().for_each(|answer| drop(answer.unwrap()));
    }
    let worker = store.consumer("a").await.unwrap();
    let (mut sent, mut last) = (0, 0);
    while sent < PENDING {
        let lane = worker.ready_lanes(10).await.unwrap().remove(0);
        let leased = worker.lease(lane.id, AT_ONCE, LEASE).await.unwrap();
        assert!(!leased.is_empty(), "{sent} of {PENDING}");
        for each in &leased {
            assert!(each.delivery.0 > last, "in the order of their acceptance");
            last = each.delivery.0;
        }
        for answer in worker.settle(leased.iter().map(done).collect()).await {
            assert_eq!(answer.unwrap(), SettleResult::Done);
        }
        sent += leased.len();
    }
    // The server counts a moment later.
    let read = || -> usize {
        let sql = format!(
            "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE schemaname = '{schema}' AND indexrelname = 'queue_due'"
        );
        SERVER.sql(&sql).unwrap().parse().unwrap()
    };
    until("the server counts", async || read() >= PENDING / 4).await;
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    assert!(read() <= 2 * PENDING, "{} rows were read for {PENDING} deliveries", read());
}

/// Rows of a table that were read so far. The server counts a moment later.
async fn rows_read(schema: &str, table: &str) -> u64 {
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    let sql = format!(
        "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables \
         WHERE schemaname = '{schema}' AND relname = '{table}'"
    );
    SERVER.sql(&sql).unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_list_of_a_tenant_reads_no_rows_of_others() {
    let schema = schema();
    let store = PostgresStore::open_on(options(&SERVER, &schema), clock()).await.unwrap();
    store.accept(vec![message("rare", 1)]).await.remove(0).unwrap();
    for _ in 0..PENDING / 500 {
        let new = vec![message("acme", 1); 500];
        store.accept(new).await.into_iter().for_each(|answer| drop(answer.unwrap()));
    }
    SERVER.sql(&format!("ANALYZE {schema}.queue")).unwrap();
    // The database may then use one plan for all tenants.
    for _ in 0..6 {
        assert_eq!(store.lanes(Some(&TenantId::new("acme")), 10).await.unwrap().len(), 1);
    }
    let before = rows_read(&schema, "queue").await;
    let tenant = Some(TenantId::new("rare"));
    for provider in [None, Some("https://host-1.example".into())] {
        let filter =
            DeliveryFilter { tenant: tenant.clone(), provider, ..DeliveryFilter::default() };
        assert_eq!(store.deliveries(filter).await.unwrap().items.len(), 1);
    }
    let lanes = store.lanes(tenant.as_ref(), 10).await.unwrap();
    assert_eq!((lanes.len(), lanes[0].pending), (1, 1));
    let read = rows_read(&schema, "queue").await - before;
    assert!(read < 100, "{read} rows were read for two lists of one delivery, and for its lane");
}

#[tokio::test]
async fn documents_with_a_prefix_are_read_without_those_behind_them() {
    let schema = schema();
    let store = PostgresStore::open_on(options(&SERVER, &schema), clock()).await.unwrap();
    for number in 0..500 {
        let name = format!("job/other/{number}");
        store.put_document(&name, Some("{}"), None, None).await.unwrap();
    }
    for name in ["job/acme/1", "job/acme2/1", "job/acmé/1"] {
        store.put_document(name, Some("{}"), None, None).await.unwrap();
    }
    SERVER.sql(&format!("ANALYZE {schema}.document")).unwrap();
    let before = rows_read(&schema, "document").await;
    let found = store.documents("job/acme/").await.unwrap();
    let names: Vec<_> = found.iter().map(|document| document.name.as_str()).collect();
    assert_eq!(names, ["job/acme/1"]);
    let read = rows_read(&schema, "document").await - before;
    assert!(read < 50, "{read} rows were read for one document");
}
