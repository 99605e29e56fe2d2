//! Redis for the proofs of several nodes: one server, and a cluster of three masters with a replica each.

use std::process::Command;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::redis::{RedisClusterServers, RedisServer};
use postrider_testkit::stall_proxy::StallProxy;

use super::engine::{EngineFault, EngineFixture, EngineSize, EngineTimes, STORE, SizeGrowth};
use super::process_cpu::cpu_of_group;

const BEFORE_RESTART: Duration = Duration::from_secs(10);
const BEFORE_FAILOVER: Duration = Duration::from_secs(15);
const BEFORE_MOVE: Duration = Duration::from_secs(5);
const STORM: Duration = Duration::from_millis(500);
/// So many slots of one server go to another one at a time.
const SLOTS_MOVED: &str = "1000";
/// A record of the ledger, and an idempotency key.
const MEMORY_PER_DELIVERY: u64 = 800;
/// Each shard has some keys per minute: rows, receipts.
const KEYS_SLACK: u64 = 20_000;

/// One server, whose append-only file is written to disk before each answer.
pub(super) struct RedisFixture {
    server: Rc<RedisServer>,
}

/// Three masters with a replica each; writes wait for the replica.
pub(super) struct RedisClusterFixture {
    servers: Rc<RedisClusterServers>,
}

fn fault(
    name: &'static str,
    promise: &'static str,
    every: Duration,
    act: impl Fn() -> Result<()> + 'static,
) -> EngineFault {
    let (every, lasts) = (Some(every), Duration::ZERO);
    EngineFault { name, promise, every, may_repeat: true, lasts, act: Box::new(act) }
}

fn end_connections(server: &RedisServer) -> Result<()> {
    server.run(&["CLIENT", "KILL", "TYPE", "pubsub"])?;
    // It may end the connection of this command, too.
    let _ = server.run(&["CLIENT", "KILL", "TYPE", "normal"]);
    Ok(())
}

/// A number of `INFO`.
fn info(server: &RedisServer, section: &str, name: &str) -> Result<u64> {
    let text = server.run(&["INFO", section])?;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = value.with_context(|| format!("no {name} in INFO {section}"))?;
    Ok(value.trim().parse()?)
}

fn sum(servers: &[&RedisServer], section: &str, name: &str) -> Result<u64> {
    servers.iter().map(|server| info(server, section, name)).sum()
}

fn cpu(servers: &[&RedisServer]) -> Result<Duration> {
    servers.iter().map(|server| cpu_of_group(server.pid()?)).sum()
}

fn sizes(servers: &[&RedisServer]) -> Result<Vec<EngineSize>> {
    let keys = servers.iter().map(|server| {
        let said = server.run(&["DBSIZE"])?;
        Ok(said.trim_start_matches(':').parse::<u64>()?)
    });
    // The ledger and the idempotency keys stay for at least a day.
    let growth = SizeGrowth::PerDelivery { at_most: MEMORY_PER_DELIVERY };
    let memory = sum(servers, "memory", "used_memory")?;
    let keys = keys.sum::<Result<_>>()?;
    let few = SizeGrowth::Flat { slack: KEYS_SLACK };
    Ok(vec![
        EngineSize { what: "bytes of memory".to_owned(), size: memory, growth },
        EngineSize { what: "keys".to_owned(), size: keys, growth: few },
    ])
}

impl RedisFixture {
    pub(super) const FAULTS: &[&str] = &["connections", "restart", "crash"];

    pub(super) fn start(_: &EngineTimes) -> Result<Box<dyn EngineFixture>> {
        Ok(Box::new(Self { server: Rc::new(RedisServer::start()?) }))
    }
}

impl EngineFixture for RedisFixture {
    fn store_url_of(&self, name: &str) -> String {
        self.server.url(&format!("prefix={name}"))
    }

    fn store_behind_proxy(&self) -> Result<(String, Vec<StallProxy>)> {
        let proxy = StallProxy::start(([127, 0, 0, 1], self.server.port).into())?;
        let url = format!("redis://127.0.0.1:{}/0?prefix={STORE}", proxy.address.port());
        Ok((url, vec![proxy]))
    }

    fn faults(&self) -> Vec<EngineFault> {
        let of = |act: fn(&RedisServer) -> Result<()>| {
            let server = self.server.clone();
            move || act(&server)
        };
        vec![
            fault(
                "connections",
                "all connections to the store end, twice per second",
                STORM,
                of(end_connections),
            ),
            fault(
                "restart",
                "Redis restarts with its append-only file",
                BEFORE_RESTART,
                of(|server| {
                    server.stop()?;
                    server.start_again()
                }),
            ),
            fault(
                "crash",
                "Redis is killed, and starts with its append-only file",
                BEFORE_RESTART,
                of(|server| {
                    server.crash()?;
                    server.start_again()
                }),
            ),
        ]
    }

    fn written_bytes(&self) -> Result<u64> {
        info(&self.server, "persistence", "aof_current_size")
    }

    fn cpu(&self) -> Result<Duration> {
        cpu(&[&self.server])
    }

    fn sizes(&self) -> Result<Vec<EngineSize>> {
        sizes(&[&self.server])
    }
}

impl RedisClusterFixture {
    pub(super) const FAULTS: &[&str] = &["connections", "failover", "slots"];

    pub(super) fn start(_: &EngineTimes) -> Result<Box<dyn EngineFixture>> {
        Ok(Box::new(Self { servers: Rc::new(RedisClusterServers::start()?) }))
    }

    fn parameters(name: &str) -> String {
        format!("prefix={name}&replicas=1")
    }
}

impl EngineFixture for RedisClusterFixture {
    fn store_url_of(&self, name: &str) -> String {
        self.servers.url(&Self::parameters(name))
    }

    fn store_behind_proxy(&self) -> Result<(String, Vec<StallProxy>)> {
        // Servers name each other in their answers; the proxies name themselves instead.
        let ports: Vec<_> = self.servers.servers.iter().map(|server| server.port).collect();
        let proxies = StallProxy::start_cluster(&ports)?;
        let hosts: Vec<_> = proxies.iter().take(3).map(|proxy| proxy.address.to_string()).collect();
        Ok((format!("redis+cluster://{}?{}", hosts.join(","), Self::parameters(STORE)), proxies))
    }

    fn faults(&self) -> Vec<EngineFault> {
        let of = |act: fn(&RedisClusterServers) -> Result<()>| {
            let servers = self.servers.clone();
            move || act(&servers)
        };
        vec![
            fault(
                "connections",
                "all connections to the masters end, twice per second",
                STORM,
                of(|servers| servers.masters().into_iter().try_for_each(end_connections)),
            ),
            fault(
                "failover",
                "a master is killed, its replica takes over, and it comes back",
                BEFORE_FAILOVER,
                of(fail_over),
            ),
            fault("slots", "slots move from one master to another", BEFORE_MOVE, of(move_slots)),
        ]
    }

    fn written_bytes(&self) -> Result<u64> {
        sum(&self.servers.masters(), "persistence", "aof_current_size")
    }

    fn cpu(&self) -> Result<Duration> {
        let all: Vec<_> = self.servers.servers.iter().collect();
        cpu(&all)
    }

    fn sizes(&self) -> Result<Vec<EngineSize>> {
        sizes(&self.servers.masters())
    }
}

/// Kills the master with the most slots, and starts it again once another one has them.
fn fail_over(cluster: &RedisClusterServers) -> Result<()> {
    let masters = cluster.masters();
    let victim = *masters.first().context("the cluster has no master")?;
    victim.crash()?;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let is_whole = |server: &&RedisServer| {
            server.run(&["CLUSTER", "INFO"]).is_ok_and(|said| said.contains("cluster_state:ok"))
        };
        let masters = cluster.masters();
        if masters.len() == 3 && masters.iter().all(is_whole) {
            break;
        }
        ensure!(Instant::now() < deadline, "no replica took over");
        std::thread::sleep(Duration::from_millis(50));
    }
    victim.start_again()?;
    cluster.wait_until_ready()
}

/// From the master with the most slots to the one with the fewest.
fn move_slots(cluster: &RedisClusterServers) -> Result<()> {
    let mut masters = Vec::new();
    for master in cluster.masters() {
        let id = master.run(&["CLUSTER", "MYID"])?;
        let nodes = master.run(&["CLUSTER", "NODES"])?;
        let own = nodes.lines().find(|line| line.starts_with(&id)).context("no line of its own")?;
        masters.push((slots(own), id, master.port));
    }
    masters.sort();
    let (Some((_, to, _)), Some((_, from, port))) = (masters.first(), masters.last()) else {
        anyhow::bail!("the cluster has no masters");
    };
    let done = Command::new("redis-cli")
        .args(["--cluster", "reshard", &format!("127.0.0.1:{port}")])
        .args(["--cluster-from", from, "--cluster-to", to])
        .args(["--cluster-slots", SLOTS_MOVED, "--cluster-yes"])
        .output()
        .context("cannot run redis-cli")?;
    ensure!(done.status.success(), "redis-cli: {}", String::from_utf8_lossy(&done.stdout));
    Ok(())
}

/// How many slots a line of `CLUSTER NODES` names.
fn slots(line: &str) -> u32 {
    let ranges = line.split_whitespace().skip(8).filter(|range| !range.starts_with('['));
    let count = |range: &str| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(to.parse::<u32>().ok()? - from.parse::<u32>().ok()? + 1)
    };
    ranges.filter_map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_of_a_master_are_counted() {
        let line =
            "07c3 127.0.0.1:30001@40001 myself,master - 0 0 1 connected 0-5460 6000 [93->-292f]";
        assert_eq!(slots(line), 5462);
    }
}
