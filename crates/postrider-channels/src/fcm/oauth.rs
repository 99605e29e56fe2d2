//! The access token of one service account. One request fetches it for all who wait. It is renewed well before it
//! expires; the old one is used meanwhile.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::http::{HeaderValue, Method};
use postrider_core::{Outcome, Report, Scope, Timestamp, policy::retry_after};
use serde::Deserialize;
use tokio::time::Instant;

use super::service_account::ServiceAccount;
use crate::deliver::{Ended, Wiring, misconfigured};
use crate::pool::{Request, Response, TransportError};
use crate::scrub;

/// A token younger than this is not the reason for a refusal.
const YOUNG: Duration = Duration::from_secs(60);
const BACKOFF: Duration = Duration::from_secs(5);
const BACKOFF_MAX: Duration = Duration::from_secs(300);

pub(super) struct FcmToken {
    pub(super) authorization: HeaderValue,
    pub(super) given_at: Timestamp,
    expires_at: Timestamp,
}

impl FcmToken {
    fn is_alive(&self, now: Timestamp) -> bool {
        now < self.expires_at
    }

    /// True after four fifths of its life, and after the clock was set back.
    fn is_due(&self, now: Timestamp) -> bool {
        let life = self.expires_at.since(self.given_at);
        now.since(self.given_at) >= life.mul_f64(0.8) || now + YOUNG < self.given_at
    }
}

/// Why there is no token.
#[derive(Debug, Clone)]
pub(super) enum TokenFailure {
    /// The service account was refused.
    Refused(TokenRefusal),
    /// The token endpoint did not answer, or cannot answer now.
    Unavailable(String),
    /// We ran out of something, so that it was not asked.
    Local(String),
}

#[derive(Debug, Clone, Default)]
pub(super) struct TokenRefusal {
    /// For people.
    pub(super) why: String,
    /// In the words of the token endpoint; empty if another check failed.
    pub(super) error: String,
    pub(super) description: String,
}

impl TokenFailure {
    fn refused(why: &str) -> Self {
        Self::Refused(TokenRefusal { why: why.to_owned(), ..TokenRefusal::default() })
    }
}

#[derive(Default)]
pub(super) struct FcmTokens {
    state: Mutex<FcmTokenState>,
    flight: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct FcmTokenState {
    token: Option<Arc<FcmToken>>,
    /// The last failure, until when it stands, and how many came in a row.
    failure: Option<(TokenFailure, Timestamp)>,
    in_a_row: u32,
    renewing: bool,
}

enum TokenLookup {
    Good(Arc<FcmToken>),
    /// Good, but the caller has to fetch the next one.
    Due(Arc<FcmToken>),
    Failed(TokenFailure, Timestamp),
    Missing,
}

impl FcmTokens {
    /// The token to send with. `resign` says that the present one was refused.
    pub(super) async fn get(
        self: &Arc<Self>,
        account: &Arc<ServiceAccount>,
        wiring: &Wiring,
        resign: bool,
    ) -> Result<Arc<FcmToken>, Ended> {
        let now = wiring.clock.now();
        match self.look(now, resign) {
            TokenLookup::Good(token) => return Ok(token),
            TokenLookup::Due(token) => {
                let (tokens, account, wiring) = (self.clone(), account.clone(), wiring.clone());
                tokio::spawn(async move { tokens.renew(&account, &wiring).await });
                return Ok(token);
            }
            TokenLookup::Failed(failure, until) => return Err(failure.ended(until.since(now))),
            TokenLookup::Missing => {}
        }
        let _one_flight = self.flight.lock().await;
        match self.look(wiring.clock.now(), resign) {
            TokenLookup::Good(token) | TokenLookup::Due(token) => Ok(token),
            TokenLookup::Failed(failure, until) => Err(failure.ended(until.since(now))),
            TokenLookup::Missing => {
                self.renew(account, wiring).await.map_err(|(failure, wait)| failure.ended(wait))
            }
        }
    }

    fn look(&self, now: Timestamp, resign: bool) -> TokenLookup {
        let mut state = self.state();
        let alive = state.token.clone().filter(|token| token.is_alive(now));
        let token = alive.filter(|token| !resign || now.since(token.given_at) < YOUNG);
        let failure = state.failure.clone().filter(|(_, until)| now < *until);
        match (token, failure) {
            // While the endpoint fails, the old token is used until it expires.
            (Some(token), failure) if token.is_due(now) && failure.is_none() && !state.renewing => {
                state.renewing = true;
                TokenLookup::Due(token)
            }
            (Some(token), _) => TokenLookup::Good(token),
            (None, Some((failure, until))) => TokenLookup::Failed(failure, until),
            (None, None) => TokenLookup::Missing,
        }
    }

    /// Forgets failures, because there is a new key.
    pub(super) fn forgive(&self) {
        let mut state = self.state();
        (state.failure, state.in_a_row) = (None, 0);
    }

    async fn renew(
        &self,
        account: &ServiceAccount,
        wiring: &Wiring,
    ) -> Result<Arc<FcmToken>, (TokenFailure, Duration)> {
        let asked_at = wiring.clock.now();
        let answer = ask(account, wiring, asked_at).await;
        let mut state = self.state();
        state.renewing = false;
        match answer {
            Ok(token) => {
                let token = Arc::new(token);
                (state.token, state.failure, state.in_a_row) = (Some(token.clone()), None, 0);
                Ok(token)
            }
            Err((failure @ TokenFailure::Local(_), _)) => Err((failure, Duration::ZERO)),
            Err((failure, asked)) => {
                let backoff = BACKOFF * 2u32.pow(state.in_a_row.min(6));
                let wait = asked.unwrap_or(backoff).min(BACKOFF_MAX);
                state.in_a_row += 1;
                state.failure = Some((failure.clone(), asked_at + wait));
                Err((failure, wait))
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, FcmTokenState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TokenFailure {
    fn ended(self, wait: Duration) -> Ended {
        match self {
            Self::Refused(refusal) => misconfigured("oauth_refused", &refusal.why),
            Self::Unavailable(why) => {
                let hold = Outcome::Hold { after: wait, scope: Scope::Credential };
                Box::new(Report::new(hold).code("oauth_unavailable").detail(why))
            }
            Self::Local(why) => {
                Box::new(Report::new(Outcome::Local).code("oauth_unavailable").detail(why))
            }
        }
    }
}

/// One request for a token. The error may carry how long to wait.
pub(super) async fn ask(
    account: &ServiceAccount,
    wiring: &Wiring,
    now: Timestamp,
) -> Result<FcmToken, (TokenFailure, Option<Duration>)> {
    let assertion = account
        .assertion(wiring.clock.wall())
        .map_err(|_| (TokenFailure::refused("the service account's key could not sign"), None))?;
    let grant = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer";
    let body = format!("grant_type={grant}&assertion={assertion}");
    let secrets = [assertion];
    let request = Request::new(Method::POST, "application/x-www-form-urlencoded", body);
    let deadline = Instant::now() + wiring.attempt_timeout;
    let answer = wiring.pool.send(&account.token_uri, request, deadline).await;
    let mut response = answer.map_err(|error| (unreachable(&error), None))?;
    response.body = scrub::without(&response.body, &secrets).into_owned().into();
    read(&response, now).map_err(|failure| {
        let wait = scrub::header(&response.headers, "retry-after");
        (failure, wait.and_then(|text| retry_after::parse(&text, wiring.clock.wall())))
    })
}

fn unreachable(error: &TransportError) -> TokenFailure {
    match error {
        TransportError::BadUrl(_) | TransportError::Blocked { .. } => TokenFailure::refused(
            "the service account's token_uri cannot be called with these network settings",
        ),
        TransportError::Local { detail, .. } => TokenFailure::Local(detail.clone()),
        _ => TokenFailure::Unavailable("the token endpoint does not answer".to_owned()),
    }
}

fn read(response: &Response, now: Timestamp) -> Result<FcmToken, TokenFailure> {
    #[derive(Deserialize)]
    struct TokenGrantBody {
        access_token: String,
        expires_in: u64,
    }
    #[derive(Deserialize, Default)]
    struct TokenErrorBody {
        #[serde(default)]
        error: String,
        #[serde(default)]
        error_description: String,
    }
    match response.status.as_u16() {
        200 => {
            let granted: Option<TokenGrantBody> = serde_json::from_slice(&response.body).ok();
            let token = granted.and_then(|granted| {
                let text = format!("Bearer {}", granted.access_token);
                let mut authorization = HeaderValue::try_from(text).ok()?;
                authorization.set_sensitive(true);
                let expires_at = now + Duration::from_secs(granted.expires_in);
                Some(FcmToken { authorization, given_at: now, expires_at })
            });
            token.ok_or_else(|| {
                TokenFailure::Unavailable("the token endpoint's answer has no token".to_owned())
            })
        }
        429 | 500.. => Err(TokenFailure::Unavailable(format!(
            "the token endpoint answered {}",
            response.status.as_u16()
        ))),
        status => {
            let why: TokenErrorBody = serde_json::from_slice(&response.body).unwrap_or_default();
            let words = format!("{} {}", why.error, why.error_description);
            let words = scrub::shorten(words.trim(), 200);
            let why_not = format!(
                "the token endpoint refused the service account ({status} {words}); check its key and this machine's clock"
            );
            Err(TokenFailure::Refused(TokenRefusal {
                why: why_not,
                error: scrub::shorten(&why.error, 64),
                description: scrub::shorten(&why.error_description, 200),
            }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_breaks_its_reader_when_it_is_fuzzed() {
        let seeds = [
            r#"{"access_token":"ya29.x","expires_in":3599,"token_type":"Bearer"}"#,
            r#"{"error":"invalid_grant","error_description":"x"}"#,
        ];
        crate::fuzzed_answers::fuzz_answers("fcm_token", &seeds, |answer| {
            let _ = read(&answer, postrider_core::Timestamp(1_790_000_000_000)).is_ok();
        });
    }
}
