//! Checks the environment of a server: configuration, data folder, keys, address, network settings. Functions
//! that collect facts are apart from those that judge them.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use postrider_channels::accounts::health::Finding;
use postrider_channels::pool::raise_descriptor_limit;
use postrider_store::FolderReport;

use super::report::DoctorReport;
use crate::client::Client;
use crate::config::sections::NetworkSection;
use crate::config::{Config, ConfigError, DEFAULT_FILE};
use crate::serve::parts::network;

const FREE_FAIL: u64 = 100 << 20;
const FREE_WARN: u64 = 1 << 30;

pub(super) async fn examine(config: &Config, offline: bool, report: &mut DoctorReport) {
    if config.store.url == "memory:" {
        let found = "the store is in memory: nothing survives the end of the process";
        report.add(Finding::warn("data", found, "leave store.url out to keep it on disk"));
    } else if config.store.is_shared() {
        examine_shared(config, offline, report).await;
    } else {
        let look = FolderReport::of(&config.store.data);
        let name = config.store.data.display().to_string();
        judge_folder(&name, &look).into_iter().for_each(|finding| report.add(finding));
    }
    let admin_key = match config.admin.key {
        Some(_) => "from the configuration",
        None => "kept in the store; the first start makes one and prints it once",
    };
    report.add(Finding::ok("admin_key", admin_key));
    let of_channels = config.channels.iter().flat_map(|channel| channel.examine_settings());
    of_channels.for_each(|finding| report.add(finding));
    report.add(judge_listen(config.server.listen, &look_at_address(config.server.listen).await));
    let (files, connections) = (raise_descriptor_limit(), network(config).connections_that_fit());
    report.add(judge_connections(connections, config.dispatch.concurrency, files));
    judge_network(&config.network).into_iter().for_each(|finding| report.add(finding));
}

async fn examine_shared(config: &Config, offline: bool, report: &mut DoctorReport) {
    let is_redis = config.store.is_redis();
    match (offline, is_redis) {
        (true, true) => report.add(Finding::skipped("store", "Redis is not asked offline")),
        (true, false) => report.add(Finding::skipped("store", "PostgreSQL is not asked offline")),
        (false, true) => examine_redis(config, report).await,
        (false, false) => examine_postgres(config, report).await,
    }
}

#[cfg(feature = "redis")]
async fn examine_redis(config: &Config, report: &mut DoctorReport) {
    super::redis_store::examine(config, report).await;
}

#[cfg(not(feature = "redis"))]
async fn examine_redis(_: &Config, report: &mut DoctorReport) {
    let found = "this program was built without Redis";
    report.add(Finding::fail("store", found, "build it with the cargo feature redis"));
}

#[cfg(feature = "postgres")]
async fn examine_postgres(config: &Config, report: &mut DoctorReport) {
    super::shared_store::examine(config, report).await;
}

#[cfg(not(feature = "postgres"))]
async fn examine_postgres(_: &Config, report: &mut DoctorReport) {
    let found = "this program was built without PostgreSQL";
    report.add(Finding::fail("store", found, "build it with the cargo feature postgres"));
}

pub(super) fn judge_config(read: Result<&Config, &ConfigError>) -> Finding {
    match read {
        Ok(_) => Finding::ok("config", "file and environment are valid"),
        Err(error) => Finding::fail(
            "config",
            without_source(&error.to_string()),
            format!(
                "correct it ({DEFAULT_FILE}, --config or the environment); postrider config reference lists every setting"
            ),
        ),
    }
}

/// The error as one line, without the lines of the file that a parser quotes: they may have a secret.
fn without_source(error: &str) -> String {
    let is_source = |line: &&str| {
        line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit()).starts_with('|')
    };
    let lines: Vec<_> = error.lines().filter(|line| !is_source(line)).map(str::trim).collect();
    lines.join(" ").trim_end().to_owned()
}

fn judge_folder(name: &str, look: &FolderReport) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !look.writable {
        let found = format!("{name} cannot be written to");
        findings.push(Finding::fail(
            "data",
            found,
            "give it to the user that the server runs as: chown, or another --data",
        ));
    } else if !look.exists {
        findings.push(Finding::ok("data", format!("{name} will be made at the first start")));
    } else if look.mode.is_some_and(|mode| mode & 0o077 != 0) {
        let found = format!(
            "{name} is open to others ({:o}): it holds keys and addresses",
            look.mode.unwrap_or_default()
        );
        findings.push(Finding::warn("data", found, "chmod 700"));
    } else {
        findings.push(Finding::ok("data", format!("{name} is there and private")));
    }
    if let Some(layout) = look.layout {
        let (found, known) = (format!("layout {layout}"), look.layout_known);
        findings.push(match layout.cmp(&known) {
            std::cmp::Ordering::Greater => Finding::fail(
                "store",
                format!(
                    "{found}, and this program knows up to {known}: a newer Postrider wrote it"
                ),
                "use that version, or a newer one",
            ),
            std::cmp::Ordering::Less => {
                Finding::ok("store", format!("{found}; the next start brings it to {known}"))
            }
            std::cmp::Ordering::Equal => Finding::ok("store", found),
        });
    }
    findings.extend(look.journal_damage.clone().map(|found| {
        Finding::fail("store", found, "postrider fsck --repair, or restore a backup")
    }));
    findings.extend(look.free_bytes.map(judge_disk));
    findings
}

fn judge_disk(free: u64) -> Finding {
    let found = format!("{} MiB free", free >> 20);
    let remedy = "make room, or move the data folder: a full disk refuses new work";
    match free {
        ..FREE_FAIL => Finding::fail("disk", found, remedy),
        FREE_FAIL..FREE_WARN => Finding::warn("disk", found, remedy),
        _ => Finding::ok("disk", found),
    }
}

/// The state of the address that the server is to listen on.
#[derive(Debug, PartialEq, Eq)]
enum ListenCheck {
    Free,
    /// A Postrider answers there, of this version.
    Postrider(String),
    Taken,
    Unusable(ErrorKind),
}

async fn look_at_address(listen: SocketAddr) -> ListenCheck {
    if listen.port() == 0 {
        return ListenCheck::Free;
    }
    let mut there = listen;
    if there.ip().is_unspecified() {
        there.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    let connecting = tokio::net::TcpStream::connect(there);
    let answered = tokio::time::timeout(std::time::Duration::from_secs(2), connecting).await;
    if !matches!(answered, Ok(Ok(_))) {
        return match std::net::TcpListener::bind(listen) {
            Ok(_) => ListenCheck::Free,
            Err(error) if error.kind() == ErrorKind::AddrInUse => ListenCheck::Taken,
            Err(error) => ListenCheck::Unusable(error.kind()),
        };
    }
    let Ok(client) = Client::new(&format!("http://{there}"), None) else {
        return ListenCheck::Taken;
    };
    let asked = client.get("/openapi.json");
    match tokio::time::timeout(std::time::Duration::from_secs(5), asked).await {
        Ok(Ok(answer)) if answer["info"]["title"] == "Postrider" => ListenCheck::Postrider(
            answer["info"]["version"].as_str().unwrap_or_default().to_owned(),
        ),
        _ => ListenCheck::Taken,
    }
}

fn judge_listen(listen: SocketAddr, found: &ListenCheck) -> Finding {
    match found {
        ListenCheck::Free => Finding::ok("listen", format!("{listen} is free")),
        ListenCheck::Postrider(version) if version == env!("CARGO_PKG_VERSION") => {
            Finding::ok("listen", format!("a Postrider of this version answers on {listen}"))
        }
        ListenCheck::Postrider(version) => Finding::warn(
            "listen",
            format!(
                "Postrider {version} answers on {listen}, this is {}",
                env!("CARGO_PKG_VERSION")
            ),
            "restart the server with this version, or ask with that one",
        ),
        ListenCheck::Taken => Finding::fail(
            "listen",
            format!("another program has {listen}"),
            "choose another server.listen, or stop that program",
        ),
        ListenCheck::Unusable(kind) => Finding::fail(
            "listen",
            format!("{listen} cannot be used: {kind}"),
            "choose an address of this machine, and a port above 1023 or the right to use a lower one",
        ),
    }
}

/// Calls that find no connection wait, whoever they are for.
fn judge_connections(connections: usize, concurrency: usize, files: u64) -> Finding {
    let found = format!("{connections} connections at once, {files} open files");
    if connections >= concurrency {
        return Finding::ok("connections", found);
    }
    let found = format!("{found}: fewer than the {concurrency} calls that dispatch allows");
    let remedy = "raise the limit of open files (LimitNOFILE of systemd, ulimit -n) or \
                  network.connections_total_max";
    Finding::warn("connections", found, remedy)
}

fn judge_network(network: &NetworkSection) -> Vec<Finding> {
    let private = "callers can reach this machine's own network through the server";
    let risks = [
        (network.allow_private_targets.is_any(), "network.allow_private_targets", private),
        (
            network.allow_plain_http.is_any(),
            "network.allow_plain_http",
            "messages can leave unencrypted",
        ),
    ];
    let warn = |(_, check, found)| Finding::warn(check, found, "leave it off in production");
    let mut findings: Vec<_> = risks.into_iter().filter(|(on, ..)| *on).map(warn).collect();
    if findings.is_empty() {
        findings.push(Finding::ok("network", "only public HTTPS targets"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_channels::accounts::health::Verdict;

    fn verdicts(look: &FolderReport) -> Vec<(String, Verdict)> {
        judge_folder("data", look).into_iter().map(|f| (f.check, f.verdict)).collect()
    }

    #[test]
    fn a_folder_must_be_writable_private_known_and_have_room() {
        let good = FolderReport {
            exists: true,
            mode: Some(0o700),
            writable: true,
            free_bytes: Some(10 << 30),
            layout: Some(3),
            layout_known: 3,
            journal_damage: None,
        };
        assert!(verdicts(&good).iter().all(|(_, verdict)| *verdict == Verdict::Ok));
        for (look, check, verdict) in [
            (FolderReport { writable: false, ..good.clone() }, "data", Verdict::Fail),
            (FolderReport { mode: Some(0o755), ..good.clone() }, "data", Verdict::Warn),
            (FolderReport { exists: false, mode: None, ..good.clone() }, "data", Verdict::Ok),
            (FolderReport { layout: Some(4), ..good.clone() }, "store", Verdict::Fail),
            (FolderReport { layout: Some(2), ..good.clone() }, "store", Verdict::Ok),
            (
                FolderReport { journal_damage: Some("x".into()), ..good.clone() },
                "store",
                Verdict::Fail,
            ),
            (FolderReport { free_bytes: Some(50 << 20), ..good.clone() }, "disk", Verdict::Fail),
            (FolderReport { free_bytes: Some(500 << 20), ..good.clone() }, "disk", Verdict::Warn),
        ] {
            assert!(verdicts(&look).contains(&(check.to_owned(), verdict)), "{look:?}");
        }
    }

    #[test]
    fn fewer_connections_than_calls_at_once_are_a_warning() {
        let verdict = |connections| judge_connections(connections, 4_096, 1_024).verdict;
        assert_eq!((verdict(768), verdict(4_096)), (Verdict::Warn, Verdict::Ok));
    }

    #[test]
    fn an_error_in_a_file_is_reported_without_the_line_that_may_have_a_secret() {
        let text = "[admin]\nkey = hunter2-without-quotes\n";
        let environment = crate::config::Environment::empty();
        let error = Config::parse(text, "postrider.toml", &environment).unwrap_err();
        let finding = judge_config(Err(&error));
        assert!(!finding.found.contains("hunter2"), "{finding:?}");
        assert!(finding.found.contains("postrider.toml: line 2, column 7"), "{finding:?}");
    }

    #[test]
    fn an_address_is_free_ours_or_somebody_else_s() {
        let listen: SocketAddr = ([127, 0, 0, 1], 8080).into();
        let own = env!("CARGO_PKG_VERSION").to_owned();
        for (found, verdict) in [
            (ListenCheck::Free, Verdict::Ok),
            (ListenCheck::Postrider(own), Verdict::Ok),
            (ListenCheck::Postrider("0.0.0".into()), Verdict::Warn),
            (ListenCheck::Taken, Verdict::Fail),
            (ListenCheck::Unusable(ErrorKind::PermissionDenied), Verdict::Fail),
        ] {
            assert_eq!(judge_listen(listen, &found).verdict, verdict, "{found:?}");
        }
    }
}
