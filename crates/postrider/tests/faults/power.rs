//! Power cuts: everything that was acknowledged is there afterwards. A library that is loaded before the others writes
//! down what the server does to its disk; each cut replays that up to some call and drops what was not synced.
//!
//! Few cuts here; `cargo xtask prove power` makes 500.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use postrider_core::ports::store::{Ledger as _, Store as _};
use postrider_core::{DeliveryId, State};
use postrider_store::{EmbeddedStore, StoreOptions, SystemClock};
use postrider_testkit::http::TestConnection;
use postrider_testkit::process::{LOCAL_TARGETS, ProcessFixture};
use postrider_testkit::random::SimRng;
use serde_json::Value;

use super::BINARY;
use super::disk_image::{DiskCall, DiskImage, most_unsynced, read_log};

/// Starts of the server: the last process of each ends in another way.
const ROUNDS: usize = 4;

fn from_environment(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// What a caller was told, and how long the log was then.
struct Acknowledgement {
    logged: u64,
    delivery: DeliveryId,
    cancelled: bool,
}

fn log_calls(fixture: &mut ProcessFixture) -> Result<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/faults/disk_log.c");
    let (library, log) = (fixture.path("disk_log.so"), fixture.path("disk.log"));
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).args([source, "-ldl", "-lpthread"]);
    ensure!(compiler.status().context("cc, which SQLite needs as well")?.success());
    std::fs::write(&log, "")?;
    for (name, value) in [
        ("LD_PRELOAD", library),
        ("POSTRIDER_DISK_ROOT", fixture.path("data")),
        ("POSTRIDER_DISK_LOG", log.clone()),
    ] {
        fixture.environment.push((name.to_owned(), value));
    }
    Ok(log)
}

/// Sends messages one after the other and cancels some; notes each answer.
fn traffic(
    fixture: &ProcessFixture,
    target: &str,
    messages: usize,
    log: &Path,
    random: &mut SimRng,
) -> Result<Vec<Acknowledgement>> {
    let mut connection = TestConnection::open(fixture.server_at)?;
    let mut told = Vec::new();
    let logged = || -> Result<u64> { Ok(log.metadata()?.len()) };
    for n in 0..messages {
        let later = n % 3 == 0;
        let send_at = if later { r#","send_at":"2027-06-01T00:00:00Z""# } else { "" };
        let padding = "x".repeat(random.magnitude(20_000) as usize);
        let key = format!("{}-{n}", random.next());
        let body = format!(
            r#"{{"to":{{"address":{{"channel":"webhook","url":"{target}/{}"}}}},"idempotency_key":"{key}","content":{{"body":"{padding}"}}{send_at}}}"#,
            n % 5
        );
        let answer = connection.call_ok("POST", "/v1/messages", None, &body)?;
        let at = logged()?;
        let answer: Value = serde_json::from_str(&answer)?;
        let id = answer["deliveries"][0]["id"].as_str().context("an id")?.parse()?;
        told.push(Acknowledgement { logged: at, delivery: id, cancelled: false });
        if later && n % 2 == 0 {
            let message = answer["id"].as_str().context("an id")?;
            let path = format!("/v1/messages/{message}/cancel");
            connection.call_ok("POST", &path, None, "")?;
            told.push(Acknowledgement { logged: logged()?, delivery: id, cancelled: true });
        }
    }
    Ok(told)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_power_cut() -> Result<()> {
    let cuts = from_environment("POSTRIDER_POWER_CUTS", 25);
    let messages = from_environment("POSTRIDER_POWER_MESSAGES", 80);
    let seed = from_environment("POSTRIDER_POWER_SEED", 1) as u64;
    let mut random = SimRng::new(seed);
    let mut fixture = ProcessFixture::new(BINARY, LOCAL_TARGETS)?;
    let sandbox_at = fixture.start_sandbox(&[])?;
    let log = log_calls(&mut fixture)?;
    let mut told = Vec::new();
    for round in 0..ROUNDS {
        fixture.start()?;
        let target = format!("http://{sandbox_at}/hook");
        told.extend(traffic(&fixture, &target, messages / ROUNDS, &log, &mut random)?);
        if round % 2 == 0 {
            fixture.signal("TERM")?;
            fixture.await_end()?;
        } else {
            fixture.kill();
        }
    }
    let calls = read_log(&log)?;
    let mut image = DiskImage::default();
    let checked = cut_power(&calls, &told, &mut image, cuts, &mut random).await;
    let checked = checked.with_context(|| format!("seed {seed}"))?;
    println!("{cuts} power cuts within {} calls: {checked} acknowledgements checked", calls.len());
    println!("unsynced at some cut: {:?}", image.lost);
    ensure!(checked > cuts, "most cuts are after some acknowledgement");
    ensure!(image.lost.contains("journal") && image.lost.contains("names"), "{:?}", image.lost);
    let mut liar = DiskImage::default();
    liar.is_lying = true;
    let lost = cut_power(&calls, &told, &mut liar, 20, &mut random).await;
    ensure!(lost.is_err(), "this test would not notice a missing sync");
    Ok(())
}

/// While several callers commit all the time. Otherwise many parts of the journal wait for one sync, and with it all
/// commits.
#[test]
fn each_part_of_the_journal_that_is_moved_is_synced() -> Result<()> {
    let mut fixture = ProcessFixture::new(BINARY, "[server]\nrole = \"api\"\n")?;
    let log = log_calls(&mut fixture)?;
    fixture.start()?;
    let server = fixture.server_at;
    let caller = move || -> Result<()> {
        let mut connection = TestConnection::open(server)?;
        let padding = "x".repeat(20_000);
        let body = format!(
            r#"{{"to":{{"address":{{"channel":"webhook","url":"https://hooks.example/a"}}}},"content":{{"body":"{padding}"}}}}"#
        );
        (0..400).try_for_each(|_| connection.call_ok("POST", "/v1/messages", None, &body).map(drop))
    };
    let callers: Vec<_> = (0..4).map(|_| std::thread::spawn(caller)).collect();
    for caller in callers {
        caller.join().expect("a caller")?;
    }
    fixture.kill();
    let most = most_unsynced(&read_log(&log)?, "postrider.db");
    println!("at most {} KiB of the database were not synced", most >> 10);
    ensure!(most > 500 << 10, "nothing was moved");
    ensure!(most < 6 << 20, "{} MiB wait for one sync", most >> 20);
    Ok(())
}

/// Cuts the power after some of the calls, and each time looks for what was acknowledged until then.
async fn cut_power(
    calls: &[DiskCall],
    told: &[Acknowledgement],
    image: &mut DiskImage,
    cuts: usize,
    random: &mut SimRng,
) -> Result<usize> {
    let mut points: Vec<_> = (0..cuts).map(|_| random.index(calls.len())).collect();
    points.sort_unstable();
    let (mut next, mut checked) = (0, 0);
    for point in points {
        while next <= point {
            image.apply(&calls[next])?;
            next += 1;
        }
        let left = tempfile::tempdir()?;
        image.cut(&mut random.fork(), left.path())?;
        let end = calls[point].end;
        let known = told.iter().filter(|told| told.logged <= end);
        checked += check(left.path(), known)
            .await
            .with_context(|| format!("a cut after call {point} of {}", calls.len()))?;
    }
    Ok(checked)
}

/// Opens what is left, and looks for everything that was acknowledged. Returns how much that is.
async fn check(left: &Path, told: impl Iterator<Item = &Acknowledgement>) -> Result<usize> {
    let options = StoreOptions { reserve_bytes: 0, ..StoreOptions::default() };
    let store = EmbeddedStore::open(left, Arc::new(SystemClock), options)?;
    let mut last: BTreeMap<DeliveryId, bool> = BTreeMap::new();
    for told in told {
        last.insert(told.delivery, told.cancelled);
    }
    for (id, cancelled) in &last {
        let found = store.delivery(None, *id).await?;
        let found = found.with_context(|| format!("{id} was acknowledged and is not there"))?;
        let as_told = !cancelled || found.state == State::Cancelled;
        ensure!(as_told, "{id} was cancelled and is {}", found.state);
    }
    store.close().await;
    Ok(last.len())
}
