//! Keys on a real file.

use std::time::Duration;

use postrider_core::MessageId;
use postrider_core::model::id::from_order_key;

use super::*;
use crate::embedded::sql::schema::open_writer;

const NOW: Timestamp = Timestamp(1_790_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

struct DedupFixture {
    conn: Connection,
    store: DedupStore,
    _dir: tempfile::TempDir,
}

impl DedupFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let conn = open_writer(&dir.path().join("test.db"), 1024).unwrap();
        let store = load(&conn, NOW);
        Self { conn, store, _dir: dir }
    }

    fn add(&mut self, key: [u8; 16], number: u64, window: Duration, now: Timestamp) {
        let message = MessageId(from_order_key(number, number));
        let seen = DedupEntry { message, fingerprint: [1; 16], expires: (now + window).0 };
        let keys = UncommittedKeys::from([(key, (window > SHORT_WINDOW, seen))]);
        self.store.append(&self.conn, &keys).unwrap();
        self.store.committed(keys, now);
    }

    /// Adds many in one transaction.
    fn add_all(&mut self, keys: impl Iterator<Item = u64>, window: Duration, now: Timestamp) {
        self.conn.execute_batch("BEGIN").unwrap();
        keys.for_each(|number| self.add(key(number), number, window, now));
        self.conn.execute_batch("COMMIT").unwrap();
    }

    fn work(&mut self, now: Timestamp) {
        while self.store.work(&self.conn, now).unwrap() {}
    }

    /// The message under a key.
    fn find(&self, key: [u8; 16], now: Timestamp) -> Option<u64> {
        let found = self.store.find(&self.conn, &UncommittedKeys::default(), &key, now).unwrap();
        found.map(|seen| postrider_core::model::id::order_key(seen.message.0))
    }

    fn assert_found(&self, numbers: impl Iterator<Item = u64>, now: Timestamp) {
        for number in numbers {
            assert_eq!(self.find(key(number), now), Some(number));
        }
    }

    fn count(&self, table: &str) -> i64 {
        let count = format!("SELECT count(*) FROM {table}");
        self.conn.query_row(&count, [], |row| row.get(0)).unwrap()
    }

    fn reopen(&mut self, now: Timestamp) {
        self.store = load(&self.conn, now);
    }
}

fn load(conn: &Connection, now: Timestamp) -> DedupStore {
    DedupStore::load(conn, 300, now, &ProblemList::default()).unwrap()
}

fn key(number: u64) -> [u8; 16] {
    u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes()
}

#[test]
fn every_key_is_found_also_if_many_begin_alike() {
    let mut fixture = DedupFixture::new();
    let alike = |number: u64| {
        let mut key = key(number);
        key[..4].copy_from_slice(&u32::to_be_bytes((number % 17) as u32));
        key
    };
    for number in 0..3_000 {
        fixture.add(alike(number), number, DAY, NOW);
        fixture.work(NOW);
    }
    for number in 0..3_000 {
        assert_eq!(fixture.find(alike(number), NOW), Some(number));
    }
}

#[test]
fn keys_are_found_while_they_are_moved_and_merged_and_after_a_crash() {
    let mut fixture = DedupFixture::new();
    for round in 0..30 {
        let now = NOW + Duration::from_secs(round * 60);
        fixture.add_all(round * 300..(round + 1) * 300, DAY, now);
        let mut steps = 0;
        while fixture.store.work(&fixture.conn, now).unwrap() {
            fixture.assert_found((0..(round + 1) * 300).step_by(37), now);
            steps += 1;
            if steps == round % 7 {
                // Whatever was in memory is lost.
                fixture.reopen(now);
            }
        }
        if round % 5 == 0 {
            fixture.reopen(now);
        }
    }
    fixture.assert_found(0..9_000, NOW + Duration::from_secs(1_800));
    assert!(fixture.count("dedup_run") <= 9, "{} runs", fixture.count("dedup_run"));
    assert_eq!(fixture.find(key(9_000), NOW), None);
}

#[test]
fn nothing_is_left_of_keys_that_have_expired() {
    let mut fixture = DedupFixture::new();
    for round in 0..20 {
        let window = if round % 2 == 0 { DAY } else { DAY * 28 };
        fixture.add_all(round * 300..(round + 1) * 300, window, NOW);
        fixture.work(NOW);
    }
    let late = NOW + DAY * 28;
    fixture.store.prune(&fixture.conn, late).unwrap();
    fixture.reopen(late);
    fixture.work(late);
    for table in ["dedup_run", "dedup_page", "dedup_filter", "dedup_new_short", "dedup_new_long"] {
        assert_eq!(fixture.count(table), 0, "{table}");
    }
}

#[test]
fn a_key_that_lives_long_does_not_keep_the_others() {
    let mut fixture = DedupFixture::new();
    fixture.add_all(0..2_999, DAY * 2, NOW);
    fixture.add(key(2_999), 2_999, DAY * 400, NOW);
    fixture.work(NOW);
    let pages = fixture.count("dedup_page");
    let late = NOW + DAY * 3;
    fixture.store.prune(&fixture.conn, late).unwrap();
    fixture.work(late);
    assert!(pages >= 40 && fixture.count("dedup_page") == 1, "of {pages} pages");
    assert_eq!(fixture.find(key(2_999), late), Some(2_999));
}

#[test]
fn of_a_key_that_was_used_again_the_last_use_counts() {
    let mut fixture = DedupFixture::new();
    let mut now = NOW;
    for round in 0..5 {
        now = NOW + DAY * (2 * round as u32);
        fixture.add(key(1), round, DAY, now);
        fixture.work(now + Duration::from_secs(3_600));
        assert_eq!(fixture.find(key(1), now + Duration::from_secs(3_600)), Some(round));
    }
    fixture.store.prune(&fixture.conn, now).unwrap();
    fixture.work(now);
    assert_eq!(fixture.find(key(1), now + Duration::from_secs(3_600)), Some(4));
}

/// As earlier versions wrote them.
#[test]
fn keys_in_the_old_tables_are_found_and_moved() {
    let mut fixture = DedupFixture::new();
    let columns = "key BLOB PRIMARY KEY, fingerprint BLOB NOT NULL, message INTEGER NOT NULL, \
                   tail INTEGER NOT NULL, expires INTEGER NOT NULL";
    let conn = &fixture.conn;
    conn.execute_batch(&format!("CREATE TABLE dedup_bucket_7 ({columns}) WITHOUT ROWID")).unwrap();
    let mut filter = filter::BloomFilter::sized_for(2_000);
    let expires = (NOW + DAY).0;
    let insert = |table: &str, number: u64| {
        let insert = format!(
            "INSERT INTO {table} (key, fingerprint, message, tail, expires) VALUES (?1, ?2, ?3, ?3, ?4)"
        );
        let row = (key(number), [1_u8; 16], number as i64, expires);
        conn.prepare_cached(&insert).unwrap().execute(row).unwrap();
    };
    conn.execute_batch("BEGIN").unwrap();
    for number in 0..2_000 {
        insert("dedup_bucket_7", number);
        filter.insert(&key(number));
    }
    (2_000..2_100).for_each(|number| insert("dedup_open_short", number));
    let list = "INSERT INTO dedup_bucket (id, long, latest, filter) VALUES (7, 0, ?1, ?2)";
    conn.execute(list, (expires, filter.part(0, 1 << 20).unwrap())).unwrap();
    conn.execute_batch("COMMIT").unwrap();
    fixture.reopen(NOW);
    fixture.assert_found(0..2_100, NOW);
    fixture.work(NOW);
    fixture.assert_found(0..2_100, NOW);
    assert_eq!(fixture.count("dedup_bucket") + fixture.count("dedup_open_short"), 0);
    assert_eq!(fixture.count("sqlite_master WHERE name = 'dedup_bucket_7'"), 0);
    fixture.reopen(NOW);
    fixture.assert_found(0..2_100, NOW);
}
