//! An API node, three workers and a fake provider as processes, over one store. All end with the proof.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use serde_json::Value;

use super::options::{NodeProofOptions, target};
use crate::shell;

pub(super) const WORKERS: usize = 3;
/// Calls under way and settlements in one batch, of each worker. A repeat can come from either.
const CONCURRENCY: usize = 256;
const SETTLE_BATCH: usize = 256;
/// So many deliveries of one worker can be repeated by one event.
pub(super) const IN_FLIGHT: usize = CONCURRENCY + SETTLE_BATCH;
/// Each is an origin of its own, so that every worker has some.
const ORIGINS: usize = 60;

pub(super) struct NodeCluster {
    pub(super) api: ProcessFixture,
    pub(super) workers: Vec<ProcessFixture>,
    /// Where the provider tells what it received.
    pub(super) provider: SocketAddr,
    store: String,
    config: String,
}

impl NodeCluster {
    /// `config` adds to the configuration of every node; the provider answers after so many milliseconds.
    pub(super) fn start(store: &str, config: &str, latency_ms: u32) -> Result<Self> {
        let (store, config) = (store.to_owned(), config.to_owned());
        let mut api = node()?;
        let faults = api.path("faults.toml");
        let slow = format!("[[rule]]\nfault = \"slow:{latency_ms}\"\n");
        std::fs::write(&faults, if latency_ms == 0 { String::new() } else { slow })?;
        let faults = faults.display().to_string();
        let provider = ["--faults", &faults];
        let ready = api.start_sandbox_of(&NodeProofOptions::binary(), "0.0.0.0:0", &provider)?;
        let port =
            ready["http"].as_str().and_then(|origin| origin.rsplit(':').next()?.parse().ok());
        let port: u16 = port.with_context(|| format!("no port in {}", ready["http"]))?;
        let provider = (Ipv4Addr::LOCALHOST, port).into();
        let workers = (0..WORKERS).map(|_| node()).collect::<Result<_>>()?;
        let mut cluster = Self { api, workers, provider, store, config };
        cluster.configure(None)?;
        cluster.api.start()?;
        Ok(cluster)
    }

    /// Writes the configuration of all nodes; one worker may have its own way to the store.
    pub(super) fn configure(&self, own: Option<(usize, &str)>) -> Result<()> {
        self.api.write_config(&self.config_of("api", "api", &self.store))?;
        for (number, worker) in self.workers.iter().enumerate() {
            let store =
                own.filter(|(which, _)| *which == number).map_or(&*self.store, |(_, url)| url);
            worker.write_config(&self.config_of("worker", &worker_name(number), store))?;
        }
        Ok(())
    }

    /// Gives all nodes another configuration; the API node is started again with it.
    pub(super) fn reconfigure(&mut self, config: &str) -> Result<()> {
        config.clone_into(&mut self.config);
        self.configure(None)?;
        self.api.kill();
        self.api.start()
    }

    pub(super) fn start_workers(&mut self) -> Result<()> {
        self.workers.iter_mut().try_for_each(ProcessFixture::spawn)?;
        self.workers.iter().try_for_each(|worker| {
            postrider_testkit::process::await_ok(worker.server_at, "/readyz")
        })
    }

    fn config_of(&self, role: &str, name: &str, store: &str) -> String {
        format!(
            "{LOCAL_TARGETS}[server]\nrole = \"{role}\"\nnode = \"{name}\"\n[store]\nurl = \"{store}\"\n\
             [dispatch]\nconcurrency = {CONCURRENCY}\nsettle_batch = {SETTLE_BATCH}\n{}",
            self.config
        )
    }

    /// The address of a receiver at one of the origins.
    pub(super) fn hook(&self, number: usize) -> String {
        let origin = Ipv4Addr::new(127, 0, 1, 1 + (number % ORIGINS) as u8);
        format!("http://{origin}:{}/hook/nodes", self.provider.port())
    }

    /// Sets the clock of a worker ahead from its next start on.
    pub(super) fn set_clock_of(&mut self, worker: usize, ahead_s: i64) -> Result<()> {
        let worker = &mut self.workers[worker];
        let (library, offset) = (worker.path("clock_offset.so"), worker.path("offset"));
        let source = shell::root().join("crates/postrider/tests/faults/clock_offset.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl");
        ensure!(compiler.status().context("cc, which SQLite needs as well")?.success());
        std::fs::write(&offset, ahead_s.to_string())?;
        worker.environment.push(("LD_PRELOAD".to_owned(), library));
        worker.environment.push(("POSTRIDER_CLOCK".to_owned(), offset));
        Ok(())
    }

    /// What the workers logged with these words.
    pub(super) fn lines_with(&self, words: &str) -> Result<usize> {
        let logs = self.workers.iter().map(ProcessFixture::server_log);
        let count =
            |log: Result<String>| Ok(log?.lines().filter(|line| line.contains(words)).count());
        logs.map(count).sum()
    }

    pub(super) fn received(&self) -> Result<Value> {
        postrider_testkit::http::TestConnection::open(self.provider)?.get_json("/sandbox/received")
    }
}

pub(super) fn worker_name(number: usize) -> String {
    format!("worker-{}", number + 1)
}

fn node() -> Result<ProcessFixture> {
    let proofs: PathBuf = target().join("proofs");
    std::fs::create_dir_all(&proofs)?;
    let folder = tempfile::Builder::new().prefix("nodes").tempdir_in(proofs)?;
    ProcessFixture::in_folder(NodeProofOptions::binary(), folder, "")
}
