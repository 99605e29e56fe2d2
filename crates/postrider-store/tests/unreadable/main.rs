//! One page of the database cannot be read any more, any page of any table that a running store uses: the others are
//! served as before, nothing that was acknowledged is lost, and nothing appears that was not. A seed decides the page
//! and the traffic. The store runs in a process of its own, whose reads of that page fail.
//!
//! `POSTRIDER_UNREADABLE_SEEDS=200` runs more worlds than usual, `POSTRIDER_UNREADABLE_FROM=7` from that one on.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod traffic;

use std::path::Path;
use std::process::Command;

use postrider_testkit::random::SimRng;

use traffic::{Traffic, fill, serve_with_fault};

/// Tables of a few rows without which a store cannot be opened. It then says so, and how to repair it.
const NEEDED_AT_START: [&str; 5] = ["sqlite_schema", "meta", "tenant", "lane", "dedup_run"];
/// New rows go behind the last one of these. If that page is lost, new work is refused until the repair.
const APPENDED: [&str; 3] = ["delivery", "message", "dedup_page"];
/// A store that takes longer does not go on.
const SERVING_SECONDS: &str = "60";
/// They tell the process that serves its seed and its folder.
const SERVED_SEED: &str = "POSTRIDER_UNREADABLE_SERVED";
const SERVED_FOLDER: &str = "POSTRIDER_UNREADABLE_DIR";

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |value| value.parse().unwrap())
}

/// A leaf page of some table or index, and its name.
fn some_page(dir: &Path, rng: &mut SimRng) -> (String, u32) {
    let conn = rusqlite::Connection::open(dir.join("postrider.db")).unwrap();
    let select = "SELECT name, pageno FROM dbstat WHERE pagetype = 'leaf' ORDER BY name, path";
    let mut select = conn.prepare(select).unwrap();
    let all = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let mut pages: Vec<(String, u32)> = all.map(Result::unwrap).collect();
    let last_of = |name: &str| pages.iter().rposition(|(other, _)| other == name);
    let lost: Vec<_> = APPENDED.iter().filter_map(|name| last_of(name)).collect();
    let mut at = 0..;
    pages.retain(|(name, _)| {
        !lost.contains(&at.next().unwrap()) && !NEEDED_AT_START.contains(&name.as_str())
    });
    // By table first: those with few pages are as likely as the others.
    let mut names: Vec<String> = pages.iter().map(|(name, _)| name.clone()).collect();
    names.dedup();
    let name = &names[rng.index(names.len())];
    let of_table: Vec<_> = pages.iter().filter(|(other, _)| other == name).collect();
    of_table[rng.index(of_table.len())].clone()
}

/// The library that makes reads fail, which the tests of the server use, too.
fn library(dir: &Path) -> std::path::PathBuf {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../postrider/tests/faults/disk_faults.c");
    let library = dir.join("disk_faults.so");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).args([source, "-ldl"]);
    assert!(compiler.status().expect("cc, which SQLite needs as well").success());
    library
}

/// Serves in a process of its own, with a disk on which the page cannot be read.
fn serve_alone(seed: u64, dir: &Path, (library, page): (&Path, u32)) -> Result<(), String> {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "serving", "--ignored", "--nocapture"]);
    child.env(SERVED_SEED, seed.to_string()).env(SERVED_FOLDER, dir);
    let faults = dir.with_extension("faults");
    // A bad sector, and a disk that does not answer: SQLite then gives up the whole transaction.
    let kind = if seed.is_multiple_of(2) { "read" } else { "late" };
    std::fs::write(&faults, format!("{kind} {page}\n")).unwrap();
    child.env("LD_PRELOAD", library).env("POSTRIDER_FAULTS", faults);
    let mut timed = Command::new("timeout");
    timed.arg(SERVING_SECONDS).arg(child.get_program()).args(child.get_args());
    let environment = child.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let output = timed.envs(environment).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(text) }
}

#[test]
#[ignore = "a part of the test below, in a process of its own"]
fn serving() {
    let seed = std::env::var(SERVED_SEED).unwrap().parse().unwrap();
    let dir = std::path::PathBuf::from(std::env::var(SERVED_FOLDER).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(serve_with_fault(&dir, seed));
}

#[test]
fn a_page_that_cannot_be_read_stops_nothing_else() {
    let tools = tempfile::tempdir().unwrap();
    let library = library(tools.path());
    let from = number("POSTRIDER_UNREADABLE_FROM", 1);
    let mut broken = Vec::new();
    for seed in from..from + number("POSTRIDER_UNREADABLE_SEEDS", 8) {
        let dir = tools.path().join(seed.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(fill(&dir, seed));
        let (table, page) = some_page(&dir, &mut SimRng::new(seed));
        let served = serve_alone(seed, &dir, (&library, page));
        let held = served.and_then(|()| runtime.block_on(Traffic::check(&dir)));
        broken.extend(held.err().map(|why| format!("seed {seed}, page {page} of {table}: {why}")));
        std::fs::remove_dir_all(&dir).unwrap();
    }
    assert!(broken.is_empty(), "{}", broken.join("\n\n"));
}
