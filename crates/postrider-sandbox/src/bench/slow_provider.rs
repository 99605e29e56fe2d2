//! Deliveries to a provider that takes a while for each answer: how many it is worth to have under way, and how soon
//! the server has learned that.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::report::BenchReport;
use super::{load, process};

/// What can be measured with a latency.
pub(super) const WITH_LATENCY: [&str; 2] = ["webhook", "webpush"];
/// How often the server is asked for its limit.
const ASKED_EVERY: Duration = Duration::from_millis(50);
/// When the learned limit is reported.
const REPORTED_AT_S: [u64; 4] = [1, 2, 3, 5];
/// The share of its final value at which a limit counts as reached.
const REACHED: f64 = 0.95;
/// The aims of `docs/benchmarks.md`, which are for this latency.
const AIM_LATENCY: Duration = Duration::from_millis(50);
const AIM_PER_S: f64 = 15_000.0;
const AIM_REACHED_S: f64 = 5.0;

/// The learned limit of the only provider, and when it was read.
#[derive(Debug, Default)]
pub(super) struct LimitSeries(Vec<(Duration, u64)>);

/// `50ms` or `2s`.
pub(super) fn latency(text: &str) -> Result<Duration, String> {
    let bad = || format!("{text:?} is no time such as 50ms or 2s");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u32 = digits.parse().map_err(|_| bad())?;
    match &text[digits.len()..] {
        "ms" => Ok(Duration::from_millis(number.into())),
        "s" => Ok(Duration::from_secs(number.into())),
        _ => Err(bad()),
    }
}

/// What is measured with a latency: the one that is asked for, or all that can be.
pub(super) fn check(only: Option<&str>) -> Result<()> {
    match only {
        Some(only) if !WITH_LATENCY.contains(&only) => {
            bail!("--latency is for {}: --only {only} has none", WITH_LATENCY.join(" and "))
        }
        _ => Ok(()),
    }
}

/// Writes the fault profile of a sandbox that answers after this time.
pub(super) fn write_profile(dir: &Path, latency: Duration) -> Result<std::path::PathBuf> {
    let path = dir.join("latency.toml");
    let ms = latency.as_millis();
    let text = format!("[[rule]]\nfault = \"slow:{ms}\"\nkinds = [\"hook\", \"push\"]\n");
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Lets the server of this folder have as many calls under way through one origin as the aim needs.
pub(super) fn configure(dir: &Path, channel: &str) -> Result<()> {
    process::configure(
        dir,
        &format!("[{channel}]\nconcurrency = 1024\n[network]\nstreams_max = 128\n"),
    )
}

/// Notes the learned limit of a server until something is done.
pub(super) async fn watched<T>(
    server: SocketAddr,
    done: impl Future<Output = Result<T>>,
) -> Result<(T, LimitSeries)> {
    let (start, mut series) = (Instant::now(), LimitSeries::default());
    tokio::pin!(done);
    loop {
        tokio::select! {
            biased;
            done = &mut done => return Ok((done?, series)),
            () = tokio::time::sleep(ASKED_EVERY) => {
                let lanes = load::client(server).get("/v1/lanes").await?;
                // None is left when everything was sent.
                let limit = lanes["lanes"][0]["provider_limit"].as_u64();
                series.0.extend(limit.map(|limit| (start.elapsed(), limit)));
            }
        }
    }
}

/// The aim for deliveries per second, if there is one for this latency.
pub(super) fn aim_per_s(latency: Duration) -> Option<f64> {
    (latency == AIM_LATENCY).then_some(AIM_PER_S)
}

impl LimitSeries {
    pub(super) fn report(&self, name: &str, latency: Duration, report: &mut BenchReport) {
        for s in REPORTED_AT_S {
            if let Some(limit) = self.at(Duration::from_secs(s)) {
                let name = format!("{name}.limit.{s}s");
                report.add(&name, limit as f64, "calls at once that it allows after so long");
            }
        }
        let Some((limit, reached)) = self.reached() else { return };
        report.add(&format!("{name}.limit"), limit as f64, "calls at once that it allows at last");
        let aim = (latency == AIM_LATENCY).then_some(AIM_REACHED_S);
        let what = "s until it allowed nearly so many";
        report.add_with_aim(&format!("{name}.limit.reached"), reached.as_secs_f64(), what, aim);
    }

    /// The limit at that time, if something was still to be sent.
    fn at(&self, time: Duration) -> Option<u64> {
        self.0.last().filter(|(last, _)| *last >= time)?;
        self.0.iter().take_while(|(at, _)| *at <= time).last().map(|(_, limit)| *limit)
    }

    /// The last limit, and when it was nearly reached for the first time.
    fn reached(&self) -> Option<(u64, Duration)> {
        let (_, last) = *self.0.last()?;
        let enough = last as f64 * REACHED;
        let (at, _) = self.0.iter().find(|(_, limit)| *limit as f64 >= enough)?;
        Some((last, *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(limits: &[(u64, u64)]) -> LimitSeries {
        let at = |(ms, limit): &(u64, u64)| (Duration::from_millis(*ms), *limit);
        LimitSeries(limits.iter().map(at).collect())
    }

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(latency("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(latency("2s"), Ok(Duration::from_secs(2)));
        for bad in ["50", "ms", "-1s", "5m", ""] {
            assert!(latency(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_limit_is_reached_when_it_first_comes_near_to_its_last_value() {
        let found = series(&[(50, 16), (400, 610), (700, 590), (3_000, 625), (4_000, 620)]);
        assert_eq!(found.reached(), Some((620, Duration::from_millis(400))));
        assert_eq!(found.at(Duration::from_secs(1)), Some(590));
        assert_eq!(found.at(Duration::from_secs(5)), None, "everything was sent by then");
        assert_eq!(LimitSeries::default().reached(), None);
    }

    #[test]
    fn what_has_no_latency_is_refused() {
        assert!(
            [None, Some("webhook"), Some("webpush")].into_iter().all(|only| check(only).is_ok())
        );
        let why = check(Some("email")).unwrap_err().to_string();
        assert_eq!(why, "--latency is for webhook and webpush: --only email has none");
    }

    #[test]
    fn the_profile_is_one_that_the_sandbox_reads() {
        let dir = std::env::temp_dir().join(format!("bench-latency-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = write_profile(&dir, Duration::from_millis(50)).unwrap();
        let profile = crate::FaultProfile::load(&path.display().to_string()).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(profile.rules.len(), 1);
        assert_eq!(profile.rules[0].fault, crate::Fault::Slow { delay_ms: 50 });
        assert_eq!(profile.rules[0].kinds.len(), 2);
    }
}
