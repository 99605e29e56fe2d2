//! Checks the credentials of all accounts, at the start and every hour. Warns before one expires, and reports
//! one that cannot be used. A replaced secret is used from then on, and its account is tried again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use postrider_channels::Wiring;
use postrider_channels::accounts::health::{AccountHealth, CredentialView, Finding, Probe};
use postrider_core::policy::validity::Validity;
use postrider_core::{ChannelKind, Timestamp};
use tokio::sync::Notify;

use crate::api::RequestBucket;

const EVERY: Duration = Duration::from_secs(3600);
/// How long a provider may take to answer when an account is verified.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(10);
/// An account can be verified so often per second, and so often at once.
const VERIFY_PER_S: f64 = 0.1;
const VERIFY_BURST: u32 = 3;

pub struct CredentialMonitor {
    books: Vec<Arc<dyn AccountHealth>>,
    wiring: Wiring,
    seen: RwLock<Arc<Vec<CredentialView>>>,
    reported: Mutex<HashMap<CredentialKey, ReportedState>>,
    /// By account, when it was verified.
    verified: Mutex<HashMap<Arc<str>, RequestBucket>>,
}

/// Account, kind, and the number among those of that kind.
type CredentialKey = (Arc<str>, &'static str, usize);

/// What was reported about a credential.
#[derive(Debug, Default, PartialEq, Eq)]
struct ReportedState {
    /// Its expiry. Another one means another credential.
    end: Option<Timestamp>,
    validity: Option<Validity>,
    problem: Option<String>,
}

/// What is new about a credential.
#[derive(Debug, PartialEq, Eq)]
enum CredentialNews {
    Replaced,
    Ending { days: u64 },
    Over,
    Unusable(String),
    UsableAgain,
}

impl CredentialMonitor {
    pub(crate) fn new(books: Vec<Arc<dyn AccountHealth>>, wiring: Wiring) -> Self {
        Self {
            books,
            wiring,
            seen: RwLock::default(),
            reported: Mutex::default(),
            verified: Mutex::default(),
        }
    }

    /// The result of the last check; empty before the first one.
    pub(crate) fn seen(&self) -> Arc<Vec<CredentialView>> {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes one of the verifications of an account. The error is the time until there is another one.
    pub(crate) fn take_verification(&self, account: &Arc<str>) -> Result<(), Duration> {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = verified.entry(account.clone()).or_default();
        bucket.take_at(VERIFY_PER_S, VERIFY_BURST)
    }

    /// What the checks of an account find now; nothing if there is no such account.
    pub(crate) async fn examine(&self, account: &str) -> Vec<Finding> {
        let wiring = Wiring { attempt_timeout: VERIFY_TIMEOUT, ..self.wiring.clone() };
        let probe = Probe { wiring, offline: false, resolver: None };
        let mut findings = Vec::new();
        for book in &self.books {
            findings.extend(book.examine(account, &probe).await);
        }
        findings
    }

    /// Open connections of accounts that have connections of their own.
    pub(crate) fn connections(&self) -> Vec<(ChannelKind, Arc<str>, usize)> {
        self.books.iter().flat_map(|book| book.connections()).collect()
    }

    /// Checks every hour, by the server's clock.
    pub(crate) async fn run(self: Arc<Self>) {
        let clock = self.wiring.clock.clone();
        let moved = Arc::new(Notify::new());
        let wake = moved.clone();
        clock.on_move(Arc::new(move || wake.notify_one()));
        loop {
            self.check().await;
            let next = clock.now() + EVERY;
            while clock.now() < next {
                let wait = next.since(clock.now());
                let _ = tokio::time::timeout(wait, moved.notified()).await;
            }
        }
    }

    async fn check(&self) {
        let mut seen = Vec::new();
        for book in &self.books {
            seen.extend(book.watch(&self.wiring).await);
        }
        let now = self.wiring.clock.now();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let mut nth: HashMap<(Arc<str>, &'static str), usize> = HashMap::new();
        for view in &seen {
            let kind = (view.account.clone(), view.credential.kind);
            let count = nth.entry(kind).or_default();
            let key = (view.account.clone(), view.credential.kind, *count);
            *count += 1;
            for news in reported.entry(key).or_default().update(view, now) {
                log(view, &news);
            }
        }
        drop(reported);
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(seen);
    }
}

impl ReportedState {
    /// What is new since the last check.
    fn update(&mut self, view: &CredentialView, now: Timestamp) -> Vec<CredentialNews> {
        let found = &view.credential;
        let mut news = Vec::new();
        if found.replaced {
            news.push(CredentialNews::Replaced);
        }
        if self.problem != found.problem {
            news.push(match &found.problem {
                Some(why) => CredentialNews::Unusable(why.clone()),
                None => CredentialNews::UsableAgain,
            });
            self.problem.clone_from(&found.problem);
        }
        if self.end != found.expires_at {
            *self = Self { end: found.expires_at, validity: None, problem: self.problem.take() };
        }
        if let Some(end) = found.expires_at {
            let validity = Validity::at(now, end);
            if validity.is_news_after(self.validity) {
                self.validity = Some(validity);
                news.push(match validity {
                    Validity::Over => CredentialNews::Over,
                    _ => CredentialNews::Ending { days: end.since(now).as_secs() / 86_400 },
                });
            }
        }
        news
    }
}

fn log(view: &CredentialView, news: &CredentialNews) {
    let (account, channel) = (&*view.account, view.channel.name());
    let kind = view.credential.kind;
    let at = view.credential.expires_at.unwrap_or_default();
    match news {
        CredentialNews::Replaced => {
            tracing::info!(account, channel, kind, "a replaced credential is in use")
        }
        CredentialNews::UsableAgain => {
            tracing::info!(account, channel, kind, "the credential can be used again")
        }
        CredentialNews::Ending { days } => {
            tracing::warn!(account, channel, kind, days, %at, "the credential expires soon; replace it");
        }
        CredentialNews::Over => {
            tracing::error!(account, channel, kind, %at, "the credential has expired; replace it");
        }
        CredentialNews::Unusable(why) => tracing::error!(
            account,
            channel,
            kind,
            why,
            "the credential cannot be used; run postrider doctor for help"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_channels::accounts::health::CredentialStatus;

    const END: Timestamp = Timestamp(1_800_000_000_000);

    fn view(credential: CredentialStatus) -> CredentialView {
        CredentialView {
            account: "apple".into(),
            channel: postrider_channels::apns::KIND,
            credential,
        }
    }

    fn certificate(expires_at: Timestamp) -> CredentialView {
        view(CredentialStatus {
            kind: "certificate",
            expires_at: Some(expires_at),
            ..Default::default()
        })
    }

    fn before(days: u64) -> Timestamp {
        END - Duration::from_secs(days * 86_400)
    }

    #[test]
    fn the_end_is_reported_30_14_7_3_and_1_days_before_and_when_it_has_come() {
        let mut reported = ReportedState::default();
        let mut news = Vec::new();
        // Every hour for 40 days, and for a day after the end.
        for hour in 0..41 * 24 {
            let now = before(40) + Duration::from_secs(hour * 3600);
            news.extend(reported.update(&certificate(END), now));
        }
        let ending = [30, 14, 7, 3, 1].map(|days| CredentialNews::Ending { days });
        assert_eq!(news[..5], ending);
        assert_eq!(news[5..], [CredentialNews::Over]);
    }

    #[test]
    fn a_renewed_certificate_is_warned_about_anew() {
        let mut reported = ReportedState::default();
        assert_eq!(
            reported.update(&certificate(END), before(2)),
            [CredentialNews::Ending { days: 2 }]
        );
        let next = END + Duration::from_secs(365 * 86_400);
        assert_eq!(reported.update(&certificate(next), before(1)), []);
        let soon = next - Duration::from_secs(20 * 86_400);
        assert_eq!(
            reported.update(&certificate(next), soon),
            [CredentialNews::Ending { days: 20 }]
        );
    }

    #[test]
    fn an_unusable_credential_is_reported_once_and_again_when_it_works() {
        let mut reported = ReportedState::default();
        let good = view(CredentialStatus { kind: "password", ..Default::default() });
        let problem = Some("file:/x: entity not found".to_owned());
        let bad = view(CredentialStatus { kind: "password", problem, ..Default::default() });
        let mut news = |view: &CredentialView| reported.update(view, END).len();
        assert_eq!([&good, &bad, &bad, &good, &good].map(&mut news), [0, 1, 0, 1, 0]);
        let other =
            view(CredentialStatus { kind: "password", replaced: true, ..Default::default() });
        assert_eq!(news(&other), 1);
    }
}
