//! The process is killed while it upgrades an old folder: the folder stays as it was, and the next start does it all.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::fixture::OldFolder;

/// Copies of each delivery and its message.
const COPIES: i64 = 8_000;

/// The folder as layout 2 had it, with many rows: the next layout changed each of them.
fn old_and_large() -> OldFolder {
    let old = OldFolder::copy("stopped");
    let conn = Connection::open(old.path().join("postrider.db")).unwrap();
    let script = format!(
        "DROP TABLE strike; DROP TABLE expiry; ALTER TABLE delivery DROP COLUMN alternatives; \
         ALTER TABLE message DROP COLUMN pending; DELETE FROM meta WHERE key IN ('swept', 'young'); \
         UPDATE tenant SET counts = json_remove(counts, '$.bytes'); PRAGMA user_version = 2; \
         CREATE TEMP TABLE n AS WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c \
         WHERE i < {COPIES}) SELECT i FROM c; \
         CREATE TEMP TABLE m AS SELECT * FROM message; CREATE TEMP TABLE d AS SELECT * FROM delivery; \
         UPDATE m SET seq = seq - 40000000000; UPDATE d SET seq = seq - 40000000000, \
         message = message - 40000000000; \
         INSERT INTO message SELECT m.seq - n.i * 100000000, tail, tenant, class, expires, ttl_s, \
         deliveries, holds, envelope, content FROM m, n; \
         INSERT INTO delivery SELECT d.seq - n.i * 100000000, tail, message - n.i * 100000000, lane, \
         state, reason, due, attempts, tries, last_delay_ms, expires, changed, hash, address, \
         address_since, recipient, retry, log, target, body FROM d, n;"
    );
    conn.execute_batch(&script).unwrap();
    old
}

fn numbers(folder: &Path) -> (i64, i64, i64) {
    let conn = Connection::open(folder.join("postrider.db")).unwrap();
    let one = |query: &str| conn.query_row(query, [], |row| row.get(0)).unwrap();
    let layout = conn.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    (
        layout,
        one("SELECT count(*) FROM delivery"),
        one("SELECT count(*) FROM delivery WHERE due IS NOT NULL"),
    )
}

/// Serves the folder until it has logged this, and for so long after it. Returns what it logged.
fn serve_until(folder: &Path, logged: &str, then: Duration) -> String {
    let log = folder.with_extension("log");
    let file = std::fs::File::create(&log).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_postrider"))
        .args(["serve", "--role", "api", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder)
        .env("POSTRIDER_ADMIN_KEY", crate::fixture::ADMIN)
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(120);
    let mut text = String::new();
    while !text.contains(logged) {
        std::thread::sleep(Duration::from_millis(2));
        text = std::fs::read_to_string(&log).unwrap();
        assert!(child.try_wait().unwrap().is_none() && Instant::now() < end, "{text}");
    }
    std::thread::sleep(then);
    child.kill().unwrap();
    child.wait().unwrap();
    text
}

#[test]
fn killed_again_and_again_during_the_upgrade_a_folder_loses_nothing() {
    let old = old_and_large();
    let before = numbers(old.path());
    assert!(before.0 == 2 && before.1 > 200_000, "{before:?}");
    let mut kills = 0;
    for ms in [0, 30, 60, 90, 120] {
        let text = serve_until(old.path(), "is upgraded in place", Duration::from_millis(ms));
        let now = numbers(old.path());
        assert_eq!((now.1, now.2), (before.1, before.2), "{text}");
        if now.0 != before.0 {
            break;
        }
        kills += 1;
    }
    assert!(kills >= 1, "no kill came during the upgrade");
    // What the first starts of the new layout add is made between other work, or anew.
    for ms in [20, 60, 100, 140, 180, 260] {
        let text = serve_until(old.path(), "", Duration::from_millis(ms));
        let now = numbers(old.path());
        assert_eq!((now.1, now.2), (before.1, before.2), "{text}");
    }
    serve_until(old.path(), "Postrider listens on", Duration::ZERO);
    let after = numbers(old.path());
    assert!(after.0 >= 5, "{after:?}");
    assert_eq!((after.1, after.2), (before.1, before.2));
    let conn = Connection::open(old.path().join("postrider.db")).unwrap();
    let one = |query: &str| -> i64 { conn.query_row(query, [], |row| row.get(0)).unwrap() };
    assert_eq!(one("SELECT count(*) FROM expiry"), before.2, "every pending delivery is listed");
    assert_eq!(one("SELECT count(*) FROM waiting"), before.2, "also by its lane");
    let wrong = "SELECT count(*) FROM message WHERE deliveries > 1 AND pending <> (SELECT count(*) \
                 FROM delivery d WHERE d.message = message.seq AND d.due IS NOT NULL \
                 AND d.seq > message.seq AND d.seq <= message.seq + message.deliveries)";
    assert_eq!(one(wrong), 0);
    let counted = one("SELECT sum(json_extract(counts, '$.bytes')) FROM tenant");
    let bytes = one("SELECT sum(coalesce(length(CAST(target AS BLOB)), 0) \
                     + coalesce(length(CAST(body AS BLOB)), 0)) FROM delivery WHERE due IS NOT NULL")
        + one("SELECT coalesce(sum(length(CAST(content AS BLOB))), 0) FROM message \
               WHERE deliveries > 1 AND pending > 0");
    assert_eq!(counted, bytes);
    let without_block = "SELECT count(*) FROM delivery WHERE seq < (SELECT max(behind) FROM ledger_block) \
         AND NOT EXISTS (SELECT 1 FROM ledger_block WHERE first <= seq AND seq < behind)";
    assert!(one("SELECT count(*) FROM ledger_block") > 0);
    assert_eq!(one(without_block), 0, "every delivery is in the order of the ledger");
    assert_eq!(one("SELECT count(*) FROM dead_letter WHERE lane IS NULL"), 0);
}
