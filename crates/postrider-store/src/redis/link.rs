//! The way to the servers: one connection that all callers share, or one to each master of a cluster. What failed
//! because a connection was lost or a slot moved is asked again; every script can be repeated.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postrider_core::ports::store::{StoreError, StoreResult};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{
    MultipleNodeRoutingInfo, Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr,
};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _,
    RedisConnectionInfo, TlsCertificates, Value,
};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::cluster_way::ClusterWay;
use super::failure::{RedisFailure, RedisResult, said};
use super::options::{RedisKind, RedisOptions};
use super::scripts::ServerScript;

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// We give up on a connection that is silent for so long.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(50);
/// Writes wait so long for replicas. Everything else on the connection waits with them, heartbeats, too.
const REPLICAS_WITHIN_MS: u64 = 2_000;

/// How long a call is repeated while the servers cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// Writes that must not be lost.
    Long,
    Short,
    /// Heartbeats and the like, which come again.
    None,
}

impl Patience {
    fn time(self) -> Duration {
        match self {
            Self::Long => Duration::from_secs(10),
            Self::Short => Duration::from_millis(2_500),
            Self::None => Duration::ZERO,
        }
    }
}

pub(super) struct RedisLink {
    options: RedisOptions,
    certificates: Option<TlsCertificates>,
    single: Mutex<Option<MultiplexedConnection>>,
    cluster: ClusterWay,
    closed: AtomicBool,
    /// The servers are older than 7.2.
    lacks_waitaof: AtomicBool,
}

impl RedisLink {
    pub(super) fn new(options: RedisOptions) -> StoreResult<Self> {
        let root_cert = match &options.root_certificates {
            None => None,
            Some(file) => Some(std::fs::read(file).map_err(|error| StoreError::Unusable {
                what: format!("tls_ca of the store's URL: {file}: {error}"),
            })?),
        };
        let certificates =
            options.is_encrypted.then_some(TlsCertificates { client_tls: None, root_cert });
        Ok(Self {
            options,
            certificates,
            single: Mutex::default(),
            cluster: ClusterWay::default(),
            closed: AtomicBool::new(false),
            lacks_waitaof: AtomicBool::new(false),
        })
    }

    pub(super) fn options(&self) -> &RedisOptions {
        &self.options
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.options.kind == RedisKind::Cluster
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Runs a script. Its keys are in one slot.
    pub(super) async fn call(
        &self,
        patience: Patience,
        script: &ServerScript,
        keys: &[String],
        arguments: &[&[u8]],
    ) -> RedisResult<Value> {
        let by_hash = command("EVALSHA", script.hash.as_bytes(), keys, arguments);
        let end = Instant::now() + patience.time();
        loop {
            let done = match self.send(&by_hash).await {
                Err(failure) if failure.is_no_script() => {
                    self.send(&command("EVAL", script.text.as_bytes(), keys, arguments)).await
                }
                done => done,
            };
            match done {
                Err(failure) => self.pause_or_fail(failure, end).await?,
                done => return done,
            }
        }
    }

    /// A script whose writes also reach the replicas that were asked for.
    pub(super) async fn call_durably(
        &self,
        script: &ServerScript,
        keys: &[String],
        arguments: &[&[u8]],
    ) -> RedisResult<Value> {
        let done = self.call(Patience::Long, script, keys, arguments).await?;
        if self.options.replicas > 0 {
            self.wait_for_replicas(keys.first().map_or("", String::as_str)).await?;
        }
        Ok(done)
    }

    /// Until the write is on the disks of so many replicas, or in their memory if the servers are older than 7.2.
    async fn wait_for_replicas(&self, key: &str) -> RedisResult<()> {
        let wanted = i64::from(self.options.replicas);
        let (reached, where_) = match self.wait_for_disks(key).await? {
            Some(reached) => (reached, "on disk"),
            None => {
                let mut wait = Cmd::new();
                wait.arg("WAIT").arg(wanted).arg(REPLICAS_WITHIN_MS);
                (super::pack::int(&self.send_to_master(wait, key).await?)?, "in memory")
            }
        };
        match reached >= wanted {
            true => Ok(()),
            // It is written on the master. A repeat finds it there, and waits again.
            false => Err(RedisFailure::Store(StoreError::Io {
                what: format!(
                    "Redis: {reached} of {wanted} replicas have the write {where_} (see replicas of the store's URL)"
                ),
                cause: None,
            })),
        }
    }

    /// How many replicas have the write on disk; `None` if the servers cannot tell.
    async fn wait_for_disks(&self, key: &str) -> RedisResult<Option<i64>> {
        // A master without an append-only file refuses the command.
        if self.options.accepted.no_persistence || self.lacks_waitaof.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut wait = Cmd::new();
        wait.arg("WAITAOF").arg(1).arg(self.options.replicas).arg(REPLICAS_WITHIN_MS);
        match self.send_to_master(wait, key).await {
            Ok(answer) => replicas_on_disk(answer).map(Some),
            Err(failure) if failure.is_unknown_command() => {
                self.lacks_waitaof.store(true, Ordering::Relaxed);
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// To the master that has this key.
    async fn send_to_master(&self, cmd: Cmd, key: &str) -> RedisResult<Value> {
        if !self.is_cluster() {
            return self.send(&cmd).await;
        }
        let route = Route::with_key(key, SlotAddr::Master);
        let to = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
        let send = async move |mut connection: ClusterConnection| {
            connection.route_command(cmd, to).await.and_then(Value::extract_error)
        };
        self.cluster.send(self, send).await
    }

    /// Runs a command with one key, or none.
    pub(super) async fn ask(&self, cmd: &Cmd) -> RedisResult<Value> {
        self.ask_for(Patience::Short, cmd).await
    }

    pub(super) async fn ask_for(&self, patience: Patience, cmd: &Cmd) -> RedisResult<Value> {
        let end = Instant::now() + patience.time();
        loop {
            match self.send(cmd).await {
                Err(failure) => self.pause_or_fail(failure, end).await?,
                done => return done,
            }
        }
    }

    /// Asks all masters the same.
    pub(super) async fn ask_masters(&self, cmd: &Cmd) -> RedisResult<Vec<Value>> {
        if !self.is_cluster() {
            return Ok(vec![self.send(cmd).await?]);
        }
        let all = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let send = async move |mut connection: ClusterConnection| {
            connection.route_command(cmd.clone(), all).await
        };
        Ok(match self.cluster.send(self, send).await? {
            Value::Map(by_node) => by_node.into_iter().map(|(_, answer)| answer).collect(),
            other => super::pack::list(other)?,
        })
    }

    async fn pause_or_fail(&self, failure: RedisFailure, end: Instant) -> RedisResult<()> {
        if self.is_closed() {
            return Err(StoreError::Closed.into());
        }
        if !failure.is_interruption() || Instant::now() + PAUSE >= end {
            return Err(failure);
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        if self.is_closed() {
            return Err(StoreError::Closed.into());
        }
        if self.is_cluster() {
            let send = async |mut connection: ClusterConnection| {
                connection.req_packed_command(cmd).await.and_then(Value::extract_error)
            };
            return self.cluster.send(self, send).await;
        }
        let mut connection = self.single_connection().await?;
        let done = connection.req_packed_command(cmd).await;
        let done = done.and_then(Value::extract_error).map_err(|error| match error.is_timeout() {
            true => RedisFailure::Silent(SILENT_AFTER),
            false => RedisFailure::Server(error),
        });
        if done.as_ref().err().is_some_and(RedisFailure::ends_connection) {
            *self.single.lock().await = None;
        }
        done
    }

    async fn single_connection(&self) -> RedisResult<MultiplexedConnection> {
        let mut held = self.single.lock().await;
        if let Some(connection) = held.as_ref() {
            return Ok(connection.clone());
        }
        let client = self.client().await?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(SILENT_AFTER));
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let connection = connecting.await.map_err(|error| self.refused(&error))?;
        *held = Some(connection.clone());
        Ok(connection)
    }

    pub(super) async fn connect_to_cluster(&self) -> RedisResult<ClusterConnection> {
        let nodes = self.options.hosts.iter().map(|(host, port)| self.info(host, *port));
        let nodes: Vec<_> = nodes.collect::<RedisResult<_>>()?;
        let mut builder = redis::cluster::ClusterClientBuilder::new(nodes)
            .retries(4)
            .connection_timeout(CONNECT_TIMEOUT)
            .response_timeout(SILENT_AFTER);
        if let Some(certificates) = &self.certificates {
            builder = builder.certs(certificates.clone());
        }
        let client = builder.build().map_err(|error| self.refused(&error))?;
        let connecting = client.get_async_connection();
        match tokio::time::timeout(3 * CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected.map_err(|error| self.refused(&error)),
            Err(_) => {
                let what = format!("no connection to {} in time", self.options.shown());
                Err(RedisFailure::Connect(what, None))
            }
        }
    }

    /// A client of the server that is the master now.
    pub(super) async fn client(&self) -> RedisResult<Client> {
        let (host, port) = match &self.options.kind {
            RedisKind::Sentinel(master) => self.master(master).await?,
            _ => self.options.hosts.first().cloned().unwrap_or_default(),
        };
        self.client_of(self.info(&host, port)?)
    }

    fn client_of(&self, info: ConnectionInfo) -> RedisResult<Client> {
        let client = match &self.certificates {
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
            None => Client::open(info),
        };
        client.map_err(|error| self.refused(&error))
    }

    fn info(&self, host: &str, port: u16) -> RedisResult<ConnectionInfo> {
        let addr = match self.options.is_encrypted {
            false => ConnectionAddr::Tcp(host.to_owned(), port),
            true => ConnectionAddr::TcpTls {
                host: host.to_owned(),
                port,
                insecure: false,
                tls_params: None,
            },
        };
        let mut settings = RedisConnectionInfo::default().set_db(self.options.database);
        if let Some(user) = &self.options.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.options.password {
            settings = settings.set_password(password);
        }
        let info = addr.into_connection_info().map_err(|error| self.refused(&error))?;
        Ok(info.set_redis_settings(settings))
    }

    /// Asks the Sentinels where the master is. They are asked without a password of their own.
    async fn master(&self, name: &str) -> RedisResult<(String, u16)> {
        let mut last = None;
        for (host, port) in &self.options.hosts {
            let addr = ConnectionAddr::Tcp(host.clone(), *port);
            let info = addr.into_connection_info().map_err(|error| self.refused(&error))?;
            let config = AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_TIMEOUT));
            let client = Client::open(info).map_err(|error| self.refused(&error))?;
            let connected = client.get_multiplexed_async_connection_with_config(&config).await;
            let mut connection = match connected {
                Ok(connection) => connection,
                Err(error) => {
                    last = Some(self.refused(&error));
                    continue;
                }
            };
            let mut ask = Cmd::new();
            ask.arg("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(name);
            let answer = connection.req_packed_command(&ask).await.and_then(Value::extract_error);
            let mut parts = super::pack::list(answer.unwrap_or(Value::Nil))?.into_iter();
            let place = parts.next().and_then(super::pack::text);
            let port = parts.next().and_then(super::pack::text).and_then(|port| port.parse().ok());
            if let (Some(place), Some(port)) = (place, port) {
                return Ok((place, port));
            }
        }
        Err(last.unwrap_or_else(|| {
            RedisFailure::Connect(
                format!("no Sentinel of {} knows the master", self.options.shown()),
                None,
            )
        }))
    }

    fn refused(&self, error: &redis::RedisError) -> RedisFailure {
        let what = format!("cannot connect to {}: {}", self.options.shown(), said(error));
        let code = error.code().map(str::to_owned);
        let is_refused_user = error.kind() == redis::ErrorKind::AuthenticationFailed;
        RedisFailure::Connect(
            what,
            code.or_else(|| is_refused_user.then(|| "WRONGPASS".to_owned())),
        )
    }
}

/// The second number of an answer to `WAITAOF`; the first one is about the master.
fn replicas_on_disk(answer: Value) -> RedisResult<i64> {
    let numbers = super::pack::list(answer)?;
    let replicas = numbers.get(1).ok_or_else(|| RedisFailure::damaged("the answer to WAITAOF"))?;
    super::pack::int(replicas)
}

fn command(name: &str, script: &[u8], keys: &[String], arguments: &[&[u8]]) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg(name).arg(script).arg(keys.len());
    for key in keys {
        cmd.arg(key);
    }
    for argument in arguments {
        cmd.arg(*argument);
    }
    cmd
}

/// A command of words.
pub(super) fn words(words: &[&[u8]]) -> Cmd {
    let mut cmd = Cmd::new();
    for word in words {
        cmd.arg(*word);
    }
    cmd
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replicas_with_the_write_on_disk_are_counted() {
        let answer = Value::Array(vec![Value::Int(1), Value::Int(2)]);
        assert_eq!(replicas_on_disk(answer).ok(), Some(2));
        assert!(replicas_on_disk(Value::Array(vec![Value::Int(1)])).is_err());
    }
}
