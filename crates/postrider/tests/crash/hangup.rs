//! `SIGHUP` to the real binary: the configuration is read anew, all of it or none, and nothing stops.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::http::{call, get};
use super::process::{KEY, Process, await_ok, free_port};

struct Server {
    folder: tempfile::TempDir,
    at: SocketAddr,
    process: Process,
}

impl Server {
    fn start(config: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let text = |path: &Path| path.display().to_string();
        let (data, file) = (folder.path().join("data"), folder.path().join("postrider.toml"));
        std::fs::write(&file, config)?;
        let at = free_port();
        let (listen, data, file) = (at.to_string(), text(&data), text(&file));
        let arguments = ["serve", "--listen", &listen, "--data", &data, "--config", &file];
        let process = Process::start(&arguments, &[], &folder.path().join("server.log"));
        await_ok(at, "/readyz");
        Ok(Self { folder, at, process })
    }

    /// Writes the file anew and tells the server.
    fn hang_up(&self, config: &str) -> Result<()> {
        std::fs::write(self.folder.path().join("postrider.toml"), config)?;
        let pid = self.process.0.id().to_string();
        ensure!(Command::new("kill").args(["-HUP", &pid]).status()?.success());
        Ok(())
    }

    /// The status of a message of this class.
    fn send(&self, class: &str) -> Result<u16> {
        let message = format!(
            r#"{{"to":{{"address":{{"channel":"webhook","url":"https://example.com/hook"}}}},
            "class":"{class}","send_at":"{}"}}"#,
            jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24)
        );
        Ok(call(self.at, "POST", "/v1/messages", KEY, &message)?.status)
    }

    fn logged(&self, words: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let log = self.folder.path().join("server.log");
        while !std::fs::read_to_string(&log)?.contains(words) {
            ensure!(Instant::now() < deadline, "never logged: {words}");
            std::thread::yield_now();
        }
        Ok(())
    }
}

#[test]
fn a_hangup_reads_the_configuration_anew_and_one_that_cannot_be_used_changes_nothing() -> Result<()>
{
    let server = Server::start("")?;
    ensure!(server.send("news")? == 422);
    server.hang_up("[classes.news]\nttl_s = 60\n")?;
    server.logged("the configuration was reloaded")?;
    ensure!(server.send("news")? == 202);
    server.hang_up("[classes.news]\nttl_s = \"soon\"\n")?;
    server.logged("nothing was changed")?;
    ensure!(server.send("news")? == 202, "the old one holds");
    ensure!(get(server.at, "/readyz", KEY)?.status == 200);
    server.hang_up("")?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.send("news")? == 202 {
        ensure!(Instant::now() < deadline, "the class is still there");
    }
    Ok(())
}
