//! A PostgreSQL server of the test's own: on a free port, in a temporary folder. It ends with the test's process,
//! however that ends.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// Where Debian has the servers, one folder per version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A server, and a process that ends it when this value or this process ends.
pub struct PostgresServer {
    pub port: u16,
    folder: PathBuf,
    programs: PathBuf,
    /// The user of the server: it does not run as root.
    user: Option<(u32, u32)>,
    /// Its end ends the server.
    alive: Option<ChildStdin>,
    guard: Child,
}

/// Sets the server up, waits for its end of life, and removes everything. The last argument is the port of a primary
/// server whose replica it is, if it is one.
const GUARD: &str = r#"
D="$1"; B="$2"; P="$3"; PRIMARY="$4"
if [ -n "$PRIMARY" ]; then
    "$B/pg_basebackup" -h 127.0.0.1 -p "$PRIMARY" -U postgres -D "$D/data" -R -X stream --no-sync >"$D/log" 2>&1 || exit 1
else
    "$B/initdb" -D "$D/data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$D/log" 2>&1 || exit 1
fi
cat >>"$D/data/postgresql.conf" <<END
port = $P
listen_addresses = '127.0.0.1'
unix_socket_directories = '$D'
max_connections = 400
shared_buffers = 64MB
fsync = off
END
[ -n "$PRIMARY" ] || printf 'host all guarded 127.0.0.1/32 scram-sha-256\nhost all guarded ::1/128 scram-sha-256\nlocal all all trust\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n' \
    >"$D/data/pg_hba.conf"
"$B/pg_ctl" -D "$D/data" -l "$D/log" -w start >/dev/null 2>&1 || exit 1
echo ready
read -r _
"$B/pg_ctl" -D "$D/data" -m immediate stop >/dev/null 2>&1
rm -rf "$D"
"#;

impl PostgresServer {
    /// Fails if PostgreSQL is not installed: nothing is skipped.
    pub fn start() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("postrider-postgres-").tempdir()?.keep();
        Self::start_in(folder, None)
    }

    /// A replica of this server, which receives its changes and can be promoted.
    pub fn start_replica(&self) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("postrider-postgres-").tempdir()?.keep();
        Self::start_in(folder, Some(self.port))
    }

    /// A server in a folder of its own, which is removed at the end.
    pub fn start_in(folder: PathBuf, primary: Option<u16>) -> Result<Self> {
        let programs = programs()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let user = match id(&["-u"])? {
            0 => Some((id(&["-u", "postgres"])?, id(&["-g", "postgres"])?)),
            _ => None,
        };
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&folder, Some(uid), Some(gid))?;
        }
        let mut guard = as_user(user, "sh");
        guard.args(["-c", GUARD, "sh"]).arg(&folder).arg(&programs).arg(port.to_string());
        guard.arg(primary.map(|port| port.to_string()).unwrap_or_default());
        guard.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).current_dir("/");
        let mut guard = guard.spawn().context("cannot start sh")?;
        let alive = guard.stdin.take();
        let mut ready = String::new();
        if let Some(said) = guard.stdout.take() {
            BufReader::new(said).read_line(&mut ready)?;
        }
        let log = folder.join("log");
        ensure!(ready.trim() == "ready", "PostgreSQL did not start; see {}", log.display());
        Ok(Self { port, folder, programs, user, alive, guard })
    }

    /// The URL of its database, with these parameters.
    pub fn url(&self, parameters: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable&{parameters}", self.port)
    }

    /// Ends it as a crash does. What is on disk stays.
    pub fn crash(&self) -> Result<()> {
        self.control(&["-m", "immediate", "stop"])
    }

    pub fn restart(&self) -> Result<()> {
        self.control(&["-m", "fast", "restart"])
    }

    /// Makes a replica the primary.
    pub fn promote(&self) -> Result<()> {
        self.control(&["promote"])
    }

    /// Starts it after a crash.
    pub fn start_again(&self) -> Result<()> {
        self.control(&["start"])
    }

    fn control(&self, what: &[&str]) -> Result<()> {
        let mut command = as_user(self.user, self.programs.join("pg_ctl"));
        command.arg("-D").arg(self.folder.join("data")).arg("-l").arg(self.folder.join("log"));
        let done = command.arg("-w").args(what).stdout(Stdio::null()).current_dir("/").status()?;
        ensure!(done.success(), "pg_ctl {what:?} failed");
        Ok(())
    }

    /// Encrypts connections from now on, with this certificate and key.
    pub fn use_tls(&self, certificate: &str, key: &str) -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        for (name, text) in [("server.crt", certificate), ("server.key", key)] {
            let path = self.folder.join("data").join(name);
            std::fs::write(&path, text)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            if let Some((uid, gid)) = self.user {
                std::os::unix::fs::chown(&path, Some(uid), Some(gid))?;
            }
        }
        self.sql("ALTER SYSTEM SET ssl = on")?;
        self.restart()
    }

    /// Runs SQL as the superuser, and answers what it says, without headings.
    pub fn sql(&self, sql: &str) -> Result<String> {
        let done = Command::new(self.programs.join("psql"))
            .args([
                "-X",
                "-q",
                "-A",
                "-t",
                "-v",
                "ON_ERROR_STOP=1",
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
            ])
            .args(["-p", &self.port.to_string(), "-c", sql, "postgres"])
            .output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "psql: {said}");
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
    }

    /// The number of its first process.
    pub fn pid(&self) -> Result<u32> {
        let path = self.folder.join("data/postmaster.pid");
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let first = text.lines().next().and_then(|line| line.trim().parse().ok());
        first.with_context(|| format!("no number in {}", path.display()))
    }

    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.alive = None;
        let _ = self.guard.wait();
    }
}

fn as_user(user: Option<(u32, u32)>, program: impl AsRef<std::ffi::OsStr>) -> Command {
    use std::os::unix::process::CommandExt as _;
    let mut command = Command::new(program);
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}

fn id(arguments: &[&str]) -> Result<u32> {
    let done = Command::new("id").args(arguments).output().context("cannot run id")?;
    let said = String::from_utf8_lossy(&done.stdout);
    said.trim().parse().with_context(|| format!("id {arguments:?}: {said}"))
}

/// The programs of the newest installed version.
fn programs() -> Result<PathBuf> {
    let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
    let found = versions.map(|version| version.path().join("bin"));
    let newest = found.filter(|bin| bin.join("initdb").exists()).max_by_key(|bin| version(bin));
    if let Some(newest) = newest {
        return Ok(newest);
    }
    match Command::new("pg_config").arg("--bindir").output() {
        Ok(done) if done.status.success() => {
            Ok(String::from_utf8_lossy(&done.stdout).trim().into())
        }
        _ => bail!(
            "PostgreSQL is not installed: install the package postgresql, or run `cargo xtask test` as root"
        ),
    }
}

fn version(bin: &Path) -> u32 {
    let name = bin.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    name.and_then(|name| name.parse().ok()).unwrap_or(0)
}
