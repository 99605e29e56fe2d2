//! Looks after the credentials of all accounts while the server runs, at its start and every hour: warns
//! before one ends, and says when one cannot be used. A secret that was replaced is taken up, and its
//! account tried anew. Holds no account: only a provider's refusal does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use postrider_channels::Wiring;
use postrider_channels::accounts::health::{AccountHealth, CredentialView};
use postrider_core::Timestamp;
use postrider_core::policy::validity::Validity;
use tokio::sync::Notify;

const EVERY: Duration = Duration::from_secs(3600);

pub struct Watch {
    books: Vec<Arc<dyn AccountHealth>>,
    wiring: Wiring,
    seen: RwLock<Arc<Vec<CredentialView>>>,
    told: Mutex<HashMap<Which, ReportedState>>,
}

/// Account, kind, and which one of that kind.
type Which = (Arc<str>, &'static str, usize);

/// What was said about a credential.
#[derive(Debug, Default, PartialEq, Eq)]
struct ReportedState {
    /// Which end it was about: another one is another credential.
    end: Option<Timestamp>,
    validity: Option<Validity>,
    problem: Option<String>,
}

/// What is to be said about a credential.
#[derive(Debug, PartialEq, Eq)]
enum CredentialNews {
    Replaced,
    Ending { days: u64 },
    Over,
    Unusable(String),
    UsableAgain,
}

impl Watch {
    pub(crate) fn new(books: Vec<Arc<dyn AccountHealth>>, wiring: Wiring) -> Self {
        Self { books, wiring, seen: RwLock::default(), told: Mutex::default() }
    }

    /// What the last look found; empty before the first one.
    pub(crate) fn seen(&self) -> Arc<Vec<CredentialView>> {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Looks again whenever an hour has passed by the server's clock.
    pub(crate) async fn keep(self: Arc<Self>) {
        let clock = self.wiring.clock.clone();
        let moved = Arc::new(Notify::new());
        let wake = moved.clone();
        clock.on_move(Arc::new(move || wake.notify_one()));
        loop {
            self.look().await;
            let next = clock.now() + EVERY;
            while clock.now() < next {
                let wait = next.since(clock.now());
                let _ = tokio::time::timeout(wait, moved.notified()).await;
            }
        }
    }

    async fn look(&self) {
        let mut seen = Vec::new();
        for book in &self.books {
            seen.extend(book.watch(&self.wiring).await);
        }
        let now = self.wiring.clock.now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut nth: HashMap<(Arc<str>, &'static str), usize> = HashMap::new();
        for view in &seen {
            let kind = (view.account.clone(), view.credential.kind);
            let count = nth.entry(kind).or_default();
            let key = (view.account.clone(), view.credential.kind, *count);
            *count += 1;
            for news in told.entry(key).or_default().hear(view, now) {
                tell(view, &news);
            }
        }
        drop(told);
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(seen);
    }
}

impl ReportedState {
    /// What is new about it since the last time.
    fn hear(&mut self, view: &CredentialView, now: Timestamp) -> Vec<CredentialNews> {
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

fn tell(view: &CredentialView, news: &CredentialNews) {
    let (account, channel) = (&*view.account, view.channel.name());
    let kind = view.credential.kind;
    let at = view.credential.expires_at.unwrap_or_default();
    match news {
        CredentialNews::Replaced => {
            tracing::info!(account, channel, kind, "another credential was taken up")
        }
        CredentialNews::UsableAgain => {
            tracing::info!(account, channel, kind, "the credential can be used again")
        }
        CredentialNews::Ending { days } => {
            tracing::warn!(account, channel, kind, days, %at, "the credential ends soon: replace it");
        }
        CredentialNews::Over => {
            tracing::error!(account, channel, kind, %at, "the credential has expired: replace it");
        }
        CredentialNews::Unusable(why) => tracing::error!(
            account,
            channel,
            kind,
            why,
            "the account's credential cannot be used; postrider doctor says what helps"
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
    fn the_end_is_told_at_30_14_7_3_and_1_days_once_each_and_when_it_has_come() {
        let mut told = ReportedState::default();
        let mut heard = Vec::new();
        // Every hour for 40 days, and for a day after the end.
        for hour in 0..41 * 24 {
            let now = before(40) + Duration::from_secs(hour * 3600);
            heard.extend(told.hear(&certificate(END), now));
        }
        let ending = [30, 14, 7, 3, 1].map(|days| CredentialNews::Ending { days });
        assert_eq!(heard[..5], ending);
        assert_eq!(heard[5..], [CredentialNews::Over]);
    }

    #[test]
    fn a_renewed_certificate_is_warned_about_anew() {
        let mut told = ReportedState::default();
        assert_eq!(told.hear(&certificate(END), before(2)), [CredentialNews::Ending { days: 2 }]);
        let next = END + Duration::from_secs(365 * 86_400);
        assert_eq!(told.hear(&certificate(next), before(1)), []);
        let soon = next - Duration::from_secs(20 * 86_400);
        assert_eq!(told.hear(&certificate(next), soon), [CredentialNews::Ending { days: 20 }]);
    }

    #[test]
    fn what_cannot_be_used_is_told_once_and_again_when_it_can() {
        let mut told = ReportedState::default();
        let good = view(CredentialStatus { kind: "password", ..Default::default() });
        let problem = Some("file:/x: entity not found".to_owned());
        let bad = view(CredentialStatus { kind: "password", problem, ..Default::default() });
        let mut hear = |view: &CredentialView| told.hear(view, END).len();
        assert_eq!([&good, &bad, &bad, &good, &good].map(&mut hear), [0, 1, 0, 1, 0]);
        let other =
            view(CredentialStatus { kind: "password", replaced: true, ..Default::default() });
        assert_eq!(hear(&other), 1);
    }
}
