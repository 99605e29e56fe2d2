//! Redis servers of the test's own: on free ports, in temporary folders. They end with the test's process, however that
//! ends.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// A server, and a process that ends it when this value or this process ends.
pub struct RedisServer {
    pub port: u16,
    folder: PathBuf,
    /// Its end ends the server.
    alive: Option<ChildStdin>,
    guard: Child,
}

/// Starts the server, waits for its end of life, and removes everything.
const GUARD: &str = r#"
D="$1"
redis-server "$D/redis.conf" >/dev/null 2>&1 || exit 1
echo ready
read -r _
[ -f "$D/pid" ] && kill -9 "$(cat "$D/pid")" 2>/dev/null
sleep 0.1
rm -rf "$D"
"#;

const SETTINGS: &str = "bind 127.0.0.1\ndaemonize yes\nsave \"\"\nappendonly yes\nappendfsync always\n\
     maxmemory 1gb\nmaxmemory-policy noeviction\nauto-aof-rewrite-min-size 1gb\n";

impl RedisServer {
    /// Fails if Redis is not installed: nothing is skipped.
    pub fn start() -> Result<Self> {
        Self::start_with("")
    }

    /// With more lines of configuration, which come last.
    pub fn start_with(more: &str) -> Result<Self> {
        // A cluster's bus needs a port that is 10 000 higher.
        let port = loop {
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            if port < 50_000 && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok() {
                break port;
            }
        };
        let folder = tempfile::Builder::new().prefix("postrider-redis-").tempdir()?.keep();
        let dir = folder.display();
        let config = format!(
            "port {port}\ndir {dir}\npidfile {dir}/pid\nlogfile {dir}/log\n{SETTINGS}{more}\n"
        );
        std::fs::write(folder.join("redis.conf"), config)?;
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, "sh"]).arg(&folder);
        guard.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
        let mut guard = guard.spawn().context("cannot start sh")?;
        let alive = guard.stdin.take();
        let mut ready = String::new();
        if let Some(said) = guard.stdout.take() {
            BufReader::new(said).read_line(&mut ready)?;
        }
        ensure!(
            ready.trim() == "ready",
            "Redis did not start: install the package redis-server, or run `cargo xtask test` as root"
        );
        let server = Self { port, folder, alive, guard };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The URL of its first database, with these parameters.
    pub fn url(&self, parameters: &str) -> String {
        format!("redis://127.0.0.1:{}/0?{parameters}", self.port)
    }

    /// Ends it as `kill -9` does. What is on disk stays.
    pub fn crash(&self) -> Result<()> {
        self.end_by("-9")
    }

    /// Ends it in order.
    pub fn stop(&self) -> Result<()> {
        self.end_by("-15")
    }

    /// The number of its process.
    pub fn pid(&self) -> Result<u32> {
        let path = self.folder.join("pid");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        text.trim().parse().with_context(|| format!("{text:?} in {}", path.display()))
    }

    fn end_by(&self, signal: &str) -> Result<()> {
        let pid = self.pid()?.to_string();
        let done = Command::new("kill").args([signal, &pid]).status()?;
        ensure!(done.success(), "kill failed");
        let end = Instant::now() + Duration::from_secs(5);
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            ensure!(Instant::now() < end, "the server did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Starts it after a crash.
    pub fn start_again(&self) -> Result<()> {
        let done = Command::new("redis-server")
            .arg(self.folder.join("redis.conf"))
            .stdout(Stdio::null())
            .status()?;
        ensure!(done.success(), "redis-server failed");
        self.wait_until_ready()
    }

    fn wait_until_ready(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(20);
        while self.run(&["PING"]).ok().as_deref() != Some("+PONG") {
            ensure!(
                Instant::now() < end,
                "Redis did not start; see {}",
                self.folder.join("log").display()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Runs one command, and answers what the server says, as it says it.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        stream.write_all(request.as_bytes())?;
        let mut said = Vec::new();
        let mut buffer = [0; 65_536];
        // Answers here are short: a line, or one text.
        loop {
            let n = stream.read(&mut buffer)?;
            ensure!(n > 0, "the server closed the connection");
            said.extend_from_slice(&buffer[..n]);
            let text = String::from_utf8_lossy(&said);
            if let Some((first, rest)) = text.split_once("\r\n") {
                let length = first.strip_prefix('$').and_then(|length| length.parse::<i64>().ok());
                match length {
                    Some(length) if (rest.len() as i64) < length + 2 && length >= 0 => continue,
                    Some(_) => return Ok(rest.trim_end().to_owned()),
                    None if first.starts_with('-') => bail!("{first}"),
                    None => return Ok(text.trim_end().to_owned()),
                }
            }
        }
    }

    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.alive = None;
        let _ = self.guard.wait();
    }
}

/// Six servers on this machine: three masters, each with a replica.
pub struct RedisClusterServers {
    pub servers: Vec<RedisServer>,
}

impl RedisClusterServers {
    pub fn start() -> Result<Self> {
        let settings = "cluster-enabled yes\ncluster-config-file nodes.conf\ncluster-node-timeout 2000\n\
                        repl-diskless-sync-delay 0";
        let servers: Vec<_> =
            (0..6).map(|_| RedisServer::start_with(settings)).collect::<Result<_>>()?;
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]);
        create.args(servers.iter().map(|server| format!("127.0.0.1:{}", server.port)));
        create.args(["--cluster-replicas", "1", "--cluster-yes"]);
        let done = create.output().context("cannot run redis-cli")?;
        ensure!(done.status.success(), "redis-cli: {}", String::from_utf8_lossy(&done.stdout));
        let cluster = Self { servers };
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    /// Returns when every server knows the whole cluster, and every replica follows its master.
    pub fn wait_until_ready(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(30);
        let is_ready = |server: &RedisServer| {
            let info = server.run(&["CLUSTER", "INFO"]).unwrap_or_default();
            let replication = server.run(&["INFO", "replication"]).unwrap_or_default();
            let follows = replication.contains("master_link_status:up")
                || replication.contains("connected_slaves:1");
            info.contains("cluster_state:ok") && follows
        };
        while !self.servers.iter().all(is_ready) {
            ensure!(Instant::now() < end, "the cluster did not start");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    pub fn url(&self, parameters: &str) -> String {
        let hosts: Vec<_> = self
            .servers
            .iter()
            .take(3)
            .map(|server| format!("127.0.0.1:{}", server.port))
            .collect();
        format!("redis+cluster://{}?{parameters}", hosts.join(","))
    }

    /// The servers that are masters now.
    pub fn masters(&self) -> Vec<&RedisServer> {
        let is_master =
            |server: &&RedisServer| server.run(&["ROLE"]).is_ok_and(|said| said.contains("master"));
        self.servers.iter().filter(is_master).collect()
    }
}
