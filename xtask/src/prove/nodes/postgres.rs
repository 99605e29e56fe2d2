//! PostgreSQL for the proofs of several nodes.

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use postrider_testkit::postgres::PostgresServer;
use postrider_testkit::stall_proxy::StallProxy;

use super::engine::{EngineFault, EngineFixture, EngineSize, EngineTimes, STORE, SizeGrowth};
use super::process_cpu::cpu_of_group;

pub(super) struct PostgresFixture {
    server: Rc<PostgresServer>,
    snapshot: Duration,
}

const BEFORE_RESTART: Duration = Duration::from_secs(10);
const STORM: Duration = Duration::from_millis(500);
const END_ALL: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                       WHERE application_name = 'postrider' AND pid <> pg_backend_pid()";
/// Vacuum begins at 20 000 dead rows of the queue, and takes a moment.
const DEAD_ROWS: u64 = 100_000;
const TABLE_SLACK: u64 = 16 << 20;
/// Of the tables that work passes through. Those that keep history grow with it.
const SIZES: &str = "SELECT what || ' of ' || relname, size FROM pg_stat_user_tables, LATERAL (VALUES \
     ('dead rows', n_dead_tup), ('bytes', pg_table_size(relid)), ('index bytes', pg_indexes_size(relid))) \
     AS sizes (what, size) WHERE schemaname = 'nodes' \
     AND relname IN ('queue', 'lease', 'inbox', 'tally', 'shard', 'node') ORDER BY 1";

impl PostgresFixture {
    pub(super) const FAULTS: &[&str] = &["connections", "restart", "crash", "snapshot"];

    pub(super) fn start(times: &EngineTimes) -> Result<Box<dyn EngineFixture>> {
        let server = PostgresServer::start()?;
        // As in production: a commit waits for the disk.
        server.sql("ALTER SYSTEM SET fsync = on")?;
        server.sql("ALTER SYSTEM SET max_wal_size = '4GB'")?;
        server.restart()?;
        Ok(Box::new(Self { server: Rc::new(server), snapshot: times.snapshot }))
    }

    fn url(port: u16, schema: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable&schema={schema}")
    }

    /// A fault that acts on the server.
    fn fault(
        &self,
        about: EngineFault,
        act: impl Fn(&PostgresServer) -> Result<()> + 'static,
    ) -> EngineFault {
        let server = self.server.clone();
        EngineFault { act: Box::new(move || act(&server)), ..about }
    }
}

fn about(name: &'static str, promise: &'static str, every: Option<Duration>) -> EngineFault {
    let act = Box::new(|| Ok(()));
    EngineFault { name, promise, every, may_repeat: true, lasts: Duration::ZERO, act }
}

impl EngineFixture for PostgresFixture {
    fn store_url_of(&self, name: &str) -> String {
        Self::url(self.server.port, name)
    }

    fn store_behind_proxy(&self) -> Result<(String, Vec<StallProxy>)> {
        let proxy = StallProxy::start(([127, 0, 0, 1], self.server.port).into())?;
        Ok((Self::url(proxy.address.port(), STORE), vec![proxy]))
    }

    fn faults(&self) -> Vec<EngineFault> {
        let storm =
            about("connections", "all connections to the store end, twice per second", Some(STORM));
        let fast = about("restart", "PostgreSQL restarts (fast)", Some(BEFORE_RESTART));
        let crash = about("crash", "PostgreSQL restarts (immediate)", Some(BEFORE_RESTART));
        let snapshot = EngineFault {
            may_repeat: false,
            lasts: self.snapshot,
            ..about("snapshot", "a snapshot is held open for minutes", None)
        };
        let hold = self.snapshot;
        vec![
            self.fault(storm, |server| server.sql(END_ALL).map(drop)),
            self.fault(fast, PostgresServer::restart),
            self.fault(crash, |server| {
                server.crash()?;
                server.start_again()
            }),
            self.fault(snapshot, move |server| hold_snapshot(server, hold)),
        ]
    }

    fn written_bytes(&self) -> Result<u64> {
        let sql = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
        Ok(self.server.sql(sql)?.parse()?)
    }

    fn cpu(&self) -> Result<Duration> {
        cpu_of_group(self.server.pid()?)
    }

    fn sizes(&self) -> Result<Vec<EngineSize>> {
        let said = self.server.sql(SIZES)?;
        let size = |line: &str| {
            let (what, size) = line.split_once('|').with_context(|| format!("{line:?}"))?;
            let slack = if what.starts_with("dead rows") { DEAD_ROWS } else { TABLE_SLACK };
            let growth = SizeGrowth::Flat { slack };
            Ok(EngineSize { what: what.to_owned(), size: size.parse()?, growth })
        };
        said.lines().map(size).collect()
    }
}

fn hold_snapshot(server: &PostgresServer, hold: Duration) -> Result<()> {
    let began = Instant::now();
    let seconds = hold.as_secs_f64();
    let sql = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class; SELECT pg_sleep({seconds}); COMMIT"
    );
    server.sql(&sql).with_context(|| format!("the snapshot ended after {:?}", began.elapsed()))?;
    Ok(())
}
