//! Names the other processes that hold a read transaction on the database, as far as the system tells.

use std::path::Path;

/// The bytes of the shared-memory file that SQLite locks while a transaction reads.
const READ_LOCKS: std::ops::RangeInclusive<u64> = 123..=127;
const NAMED_MAX: usize = 3;

/// Such as `process 4711 (sqlite3)`; `None` if nobody is known.
pub(crate) fn journal_holders(shared_memory: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let inode = shared_memory.metadata().ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let mut pids = readers(&locks, inode);
    pids.retain(|pid| *pid != std::process::id());
    pids.sort_unstable();
    pids.dedup();
    let name = |pid: &u32| match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => format!("process {pid} ({})", name.trim()),
        Err(_) => format!("process {pid}"),
    };
    let names: Vec<_> = pids.iter().take(NAMED_MAX).map(name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The processes with a read lock. A line is `1: POSIX ADVISORY READ 4711 fd:00:INODE 124 124`.
fn readers(locks: &str, inode: u64) -> Vec<u32> {
    let inode = inode.to_string();
    let reader = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, _, _, "READ", pid, file, start, _] = fields[..] else { return None };
        let is_ours = file.rsplit(':').next() == Some(&inode);
        let is_reader = start.parse().is_ok_and(|start| READ_LOCKS.contains(&start));
        (is_ours && is_reader).then(|| pid.parse().ok()).flatten()
    };
    locks.lines().filter_map(reader).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_read_transaction_is_found_and_one_that_only_has_the_file_open_is_not() {
        let locks = "1: POSIX  ADVISORY  READ 10 fd:00:77 128 128\n\
                     2: POSIX  ADVISORY  READ 11 fd:00:77 124 124\n\
                     3: POSIX  ADVISORY  WRITE 12 fd:00:77 120 120\n\
                     4: POSIX  ADVISORY  READ 13 fd:00:78 124 124\n\
                     4: -> POSIX  ADVISORY  READ 14 fd:00:77 124 124\n";
        assert_eq!(readers(locks, 77), [11]);
    }
}
