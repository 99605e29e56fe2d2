//! Compares the clock of this machine with those of providers, because tokens and signatures are valid for
//! minutes only. Takes the median of the `Date` headers of their answers.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use http::{HeaderMap, Method};
use postrider_channels::accounts::health::{Finding, Probe};
use postrider_channels::pool::{Request, TransportError};
use postrider_core::{Timestamp, policy::retry_after};
use tokio::time::Instant;

/// Asked if no provider of an account tells the time.
const PUSH_SERVICES: [&str; 3] = [
    "https://fcm.googleapis.com",
    "https://updates.push.services.mozilla.com",
    "https://web.push.apple.com",
];
const WARN_S: i64 = 30;
/// Amazon, Google and Apple refuse a signature whose time differs by more than this.
const FAIL_S: i64 = 300;
const REMEDY: &str = "set this machine's clock by NTP (timedatectl set-ntp true, chrony or systemd-timesyncd) and keep it so";

/// How far our clock is ahead of a provider's in milliseconds, or why that is unknown.
type Sample = Result<i64, NoSample>;

#[derive(Debug, PartialEq, Eq)]
enum NoSample {
    /// No answer, or one without a date.
    Silent,
    /// The certificate has expired or is not valid yet.
    Certificate,
}

pub(super) async fn examine(
    probe: &Probe,
    origins: BTreeSet<String>,
    others: &[String],
) -> Finding {
    if probe.offline {
        return Finding::skipped("clock", "nobody is asked for the time: --offline");
    }
    let mut samples = compare_all(probe, origins.into_iter().collect()).await;
    if samples.iter().all(Result::is_err) {
        let named = !others.is_empty();
        let others =
            if named { others.to_vec() } else { PUSH_SERVICES.map(str::to_owned).to_vec() };
        samples.extend(compare_all(probe, others).await);
    }
    judge(&samples)
}

async fn compare_all(probe: &Probe, origins: Vec<String>) -> Vec<Sample> {
    join_all(origins.iter().map(|origin| compare(probe, origin))).await
}

async fn compare(probe: &Probe, origin: &str) -> Sample {
    let wiring = &probe.wiring;
    let asked = wiring.clock.wall();
    let request = Request { method: Method::HEAD, headers: HeaderMap::new(), body: "".into() };
    let deadline = Instant::now() + wiring.attempt_timeout;
    let url = format!("{}/", origin.trim_end_matches('/'));
    let response =
        wiring.pool.send(&url, request, deadline).await.map_err(|error| match error {
            TransportError::Unopened { code: "tls", detail, .. }
                if detail.contains("expired") || detail.contains("not valid yet") =>
            {
                NoSample::Certificate
            }
            _ => NoSample::Silent,
        })?;
    let answered = wiring.clock.wall();
    let date = response.headers.get("date").and_then(|text| text.to_str().ok());
    let theirs = date.and_then(|text| retry_after::date(text, answered)).ok_or(NoSample::Silent)?;
    Ok(ahead_ms(asked, answered, theirs))
}

/// Their date has no milliseconds, so it is half a second old on average. They wrote it between our request
/// and their answer.
fn ahead_ms(asked: Timestamp, answered: Timestamp, theirs: Timestamp) -> i64 {
    let ours = asked + answered.since(asked) / 2;
    ours.0 - (theirs + Duration::from_millis(500)).0
}

fn judge(samples: &[Sample]) -> Finding {
    let mut known: Vec<i64> =
        samples.iter().filter_map(|sample| sample.as_ref().ok()).copied().collect();
    known.sort_unstable();
    let Some(&middle) = known.get(known.len() / 2) else {
        if samples.contains(&Err(NoSample::Certificate)) {
            let found = "providers show certificates that are over or not valid yet, by this clock";
            return Finding::fail("clock", found, REMEDY);
        }
        return Finding::skipped("clock", "no provider told the time");
    };
    let seconds = (middle + 500).div_euclid(1000);
    let direction = if seconds > 0 { "ahead of" } else { "behind" };
    let who = if known.len() == 1 { "1 provider" } else { &format!("{} providers", known.len()) };
    let found = format!("this machine is {} {direction} the time of {who}", span(seconds));
    match seconds.abs() {
        0..WARN_S => Finding::ok("clock", format!("agrees with {who}")),
        WARN_S..=FAIL_S => Finding::warn("clock", found, REMEDY),
        _ => Finding::fail("clock", format!("{found}: they refuse what it signs"), REMEDY),
    }
}

fn span(seconds: i64) -> String {
    match seconds.abs() {
        s @ ..120 => format!("{s} s"),
        s @ 120..7200 => format!("{} min", s / 60),
        s @ 7200..172_800 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_channels::accounts::health::Verdict;

    #[test]
    fn a_clock_is_judged_by_the_middle_of_those_that_answer() {
        let s = |seconds: i64| Ok(seconds * 1000);
        for (samples, verdict) in [
            (vec![s(0)], Verdict::Ok),
            (vec![s(-29), Err(NoSample::Silent)], Verdict::Ok),
            (vec![s(31)], Verdict::Warn),
            (vec![s(-301)], Verdict::Fail),
            (vec![s(1), s(2), s(90_000)], Verdict::Ok),
            (vec![Err(NoSample::Silent)], Verdict::Skipped),
            (vec![Err(NoSample::Certificate)], Verdict::Fail),
            (vec![], Verdict::Skipped),
        ] {
            assert_eq!(judge(&samples).verdict, verdict, "{samples:?}");
        }
        let wrong = judge(&[s(-3600)]);
        assert!(wrong.found.contains("60 min behind"), "{wrong:?}");
        assert!(wrong.remedy.is_some_and(|remedy| remedy.contains("NTP")));
    }

    #[test]
    fn the_way_there_and_back_and_the_missing_milliseconds_are_allowed_for() {
        let at = Timestamp;
        assert_eq!(ahead_ms(at(10_000), at(12_000), at(11_000)), -500);
        assert_eq!(ahead_ms(at(610_000), at(612_000), at(11_000)), 599_500);
    }
}
