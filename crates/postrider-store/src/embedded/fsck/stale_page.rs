//! The rows of a page whose last content is lost. Reads the page itself, because SQL does not tell pages.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const PAGE: usize = 4096;
/// The kind of a page that has rows of a table.
const TABLE_LEAF: u8 = 0x0D;

/// The row numbers on a page; none if it is another kind of page.
pub(super) fn rows_of_page(database: &Path, page: u32) -> Vec<u64> {
    let mut bytes = vec![0; PAGE];
    let at = u64::from(page.saturating_sub(1)) * PAGE as u64;
    let read = File::open(database).and_then(|file| file.read_exact_at(&mut bytes, at));
    if read.is_err() || page < 2 || bytes[0] != TABLE_LEAF {
        return Vec::new();
    }
    let short =
        |at: usize| bytes.get(at..at + 2).map(|b| usize::from(u16::from_be_bytes([b[0], b[1]])));
    let cells = short(3).unwrap_or(0);
    let row = |cell: usize| {
        let (_, after) = varint(&bytes, short(8 + 2 * cell)?)?;
        varint(&bytes, after).map(|(number, _)| number)
    };
    (0..cells).filter_map(row).collect()
}

/// A number of variable length, and where it ends.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0u64;
    for index in 0..9 {
        let byte = *bytes.get(at + index)?;
        if index == 8 {
            return Some((number << 8 | u64::from(byte), at + 9));
        }
        number = number << 7 | u64::from(byte & 0x7F);
        if byte < 0x80 {
            return Some((number, at + index + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_a_page_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("test.db");
        let conn = rusqlite::Connection::open(&path).unwrap();
        conn.execute_batch(
            "PRAGMA page_size = 4096; CREATE TABLE t (k INTEGER PRIMARY KEY, v TEXT); \
             INSERT INTO t VALUES (1, 'a'), (300, 'b'), (9007199254740993, 'c')",
        )
        .unwrap();
        drop(conn);
        assert_eq!(rows_of_page(&path, 2), [1, 300, 9_007_199_254_740_993]);
        assert!(rows_of_page(&path, 1).is_empty() && rows_of_page(&path, 99).is_empty());
    }
}
