//! Processor time of a server and its children, read from `/proc`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Linux counts processor time in these, whatever the kernel's own clock is.
const TICKS_PER_S: u64 = 100;

/// The time of a process and its children, with those that ended.
pub(super) fn cpu_of_group(pid: u32) -> Result<Duration> {
    let mut ticks = ticks_of(pid)?.context("the server does not run")?;
    for child in children_of(pid)? {
        // It may have ended meanwhile; its parent counts it then.
        ticks += ticks_of(child)?.unwrap_or(0);
    }
    Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_S))
}

/// Of the process and of its children that ended; `None` if it does not run.
fn ticks_of(pid: u32) -> Result<Option<u64>> {
    let path = format!("/proc/{pid}/stat");
    let Ok(text) = std::fs::read_to_string(&path) else { return Ok(None) };
    // The name in parentheses may contain anything.
    let rest = text.rsplit_once(')').with_context(|| format!("{path} has no name"))?.1;
    let fields: Vec<_> = rest.split_whitespace().collect();
    let times = fields.get(11..15).with_context(|| format!("{path} is too short"))?;
    Ok(Some(times.iter().filter_map(|field| field.parse::<u64>().ok()).sum()))
}

fn children_of(pid: u32) -> Result<Vec<u32>> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(Path::new(&path)).context(path)?;
    Ok(text.split_whitespace().filter_map(|child| child.parse().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_time() {
        let pid = std::process::id();
        let before = cpu_of_group(pid).unwrap();
        let mut sum = 0u64;
        while cpu_of_group(pid).unwrap() <= before {
            sum = (0..10_000_000u64).fold(sum, |sum, n| sum.wrapping_mul(31).wrapping_add(n));
        }
        assert!(sum != 1, "the loop is not removed");
    }
}
