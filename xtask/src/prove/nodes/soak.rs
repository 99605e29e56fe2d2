//! `cargo xtask prove engines --soak-s N`: as much is accepted as is delivered, for a long time. What an engine has for
//! the work that passes through must not grow: dead rows, tables, indexes, memory.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::cluster::{NodeCluster, WORKERS};
use super::engine::{self, EngineSize, EngineTimes, SizeGrowth};
use super::options::NodeProofOptions;
use super::traffic::PacedSender;
use crate::shell;

const SAMPLES: u32 = 30;
/// In the last third, so much more than in the one before is still the same.
const SAME: f64 = 1.1;
const DRAINED_WITHIN: Duration = Duration::from_secs(120);

/// The sizes at one moment.
struct SizeSample {
    delivered: u64,
    sizes: Vec<EngineSize>,
}

/// One size over the whole run.
struct SizeSeries {
    growth: SizeGrowth,
    /// Deliveries so far, and the size.
    points: Vec<(u64, u64)>,
}

pub(super) fn run(options: &NodeProofOptions, time: Duration) -> Result<()> {
    let engine = engine::start(&options.engine, &EngineTimes { snapshot: Duration::ZERO })?;
    let mut cluster = NodeCluster::start(&engine.store_url(), "[log]\nlevel = \"warn\"\n", 0)?;
    cluster.start_workers()?;
    let messages = (options.rate as f64 * time.as_secs_f64()) as usize;
    let (rate, name) = (options.rate, &options.engine);
    shell::heading(&format!("{} at {rate}/s on {name}", shell::in_words(time)));
    let hooks = (0..WORKERS * 20).map(|number| cluster.hook(number)).collect();
    let sender = PacedSender::start(cluster.api.server_at, hooks, messages, rate);
    let began = Instant::now();
    let mut samples = Vec::new();
    for number in 1..=SAMPLES {
        let at = began + time * number / SAMPLES;
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let delivered = cluster.received()?["distinct"].as_u64().context("no count")?;
        let sizes = engine.sizes()?;
        let shown: Vec<_> =
            sizes.iter().map(|size| format!("{} {}", size.size, size.what)).collect();
        eprintln!(
            "{:>6} s {delivered:>9} delivered: {}",
            began.elapsed().as_secs(),
            shown.join(", ")
        );
        samples.push(SizeSample { delivered, sizes });
    }
    let accepted = sender.finish()?.len() as u64;
    await_delivered(&cluster, accepted)?;
    println!("\n{name}, {accepted} messages in {}:", shell::in_words(began.elapsed()));
    let mut broken = Vec::new();
    for (what, series) in series(&samples) {
        let (line, holds) = series.verdict();
        println!("{what:<28} {line}");
        if !holds {
            broken.push(format!("{what}: {line}"));
        }
    }
    if !broken.is_empty() {
        bail!("broken:\n{}", broken.join("\n"));
    }
    Ok(())
}

fn await_delivered(cluster: &NodeCluster, accepted: u64) -> Result<()> {
    let deadline = Instant::now() + DRAINED_WITHIN;
    loop {
        let delivered = cluster.received()?["distinct"].as_u64().context("no count")?;
        if delivered >= accepted {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{delivered} of {accepted} arrived");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn series(samples: &[SizeSample]) -> BTreeMap<String, SizeSeries> {
    let mut all = BTreeMap::new();
    for sample in samples {
        for EngineSize { what, size, growth } in &sample.sizes {
            let new = || SizeSeries { growth: *growth, points: Vec::new() };
            let series: &mut SizeSeries = all.entry(what.clone()).or_insert_with(new);
            series.points.push((sample.delivered, *size));
        }
    }
    all
}

impl SizeSeries {
    /// What was seen, and whether it may be so.
    fn verdict(&self) -> (String, bool) {
        let third = self.points.len() / 3;
        let (middle, last) = (&self.points[third..2 * third], &self.points[2 * third..]);
        let most = |points: &[(u64, u64)]| points.iter().map(|(_, size)| *size).max().unwrap_or(0);
        match self.growth {
            SizeGrowth::Flat { slack } => {
                let (before, after) = (most(middle), most(last));
                let holds = after as f64 <= before as f64 * SAME + slack as f64;
                (format!("{before} at most, then {after}"), holds)
            }
            SizeGrowth::PerDelivery { at_most } => {
                let (before, after) = (per_delivery(middle), per_delivery(last));
                let holds = after <= at_most as f64 && after <= before.max(1.0) * SAME;
                (format!("{before:.0} for each delivery, then {after:.0}"), holds)
            }
        }
    }
}

fn per_delivery(points: &[(u64, u64)]) -> f64 {
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return 0.0 };
    (last.1 as f64 - first.1 as f64) / last.0.saturating_sub(first.0).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(growth: SizeGrowth, size: impl Fn(u64) -> u64) -> bool {
        let points = (0..30).map(|n| (n * 1_000, size(n))).collect();
        SizeSeries { growth, points }.verdict().1
    }

    #[test]
    fn a_size_that_grows_with_time_is_found() {
        let flat = SizeGrowth::Flat { slack: 100 };
        assert!(of(flat, |n| 5_000 + n % 7));
        assert!(!of(flat, |n| 5_000 + 1_000 * n));
        let history = SizeGrowth::PerDelivery { at_most: 800 };
        assert!(of(history, |n| 1_000_000 + 450_000 * n));
        assert!(!of(history, |n| 1_000_000 + 900_000 * n), "too much for each");
        assert!(!of(history, |n| 1_000_000 + 10_000 * n * n), "more and more for each");
    }
}
