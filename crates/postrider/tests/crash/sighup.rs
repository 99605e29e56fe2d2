//! `SIGHUP` to the real binary: the whole configuration is reloaded or none of it, and nothing stops.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use postrider_testkit::http::{call, get};
use postrider_testkit::process::ProcessFixture;

use super::BINARY;

struct ReloadFixture(ProcessFixture);

impl ReloadFixture {
    /// Writes the file anew and tells the server.
    fn hang_up(&self, config: &str) -> Result<()> {
        self.0.write_config(config)?;
        self.0.signal("HUP")
    }

    /// The status of a message of this class.
    fn send(&self, class: &str) -> Result<u16> {
        let message = format!(
            r#"{{"to":{{"address":{{"channel":"webhook","url":"https://example.com/hook"}}}},
            "class":"{class}","send_at":"{}"}}"#,
            jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24)
        );
        Ok(call(self.0.server_at, "POST", "/v1/messages", &message)?.status)
    }

    fn logged(&self, words: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.0.server_log()?.contains(words) {
            ensure!(Instant::now() < deadline, "never logged: {words}");
            std::thread::yield_now();
        }
        Ok(())
    }
}

#[test]
fn a_hangup_reads_the_configuration_anew_and_one_that_cannot_be_used_changes_nothing() -> Result<()>
{
    let server = ReloadFixture(ProcessFixture::started(BINARY, "")?);
    ensure!(server.send("news")? == 422);
    server.hang_up("[classes.news]\nttl_s = 60\n")?;
    server.logged("the configuration was reloaded")?;
    ensure!(server.send("news")? == 202);
    server.hang_up("[classes.news]\nttl_s = \"soon\"\n")?;
    server.logged("nothing was changed")?;
    ensure!(server.send("news")? == 202, "the old one holds");
    ensure!(get(server.0.server_at, "/readyz")?.status == 200);
    server.hang_up("")?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.send("news")? == 202 {
        ensure!(Instant::now() < deadline, "the class is still there");
    }
    Ok(())
}
