//! Lists the accounts at providers: which one is used, which is held and why. Never shows a secret.

use postrider_channels::accounts::AccountView;
use postrider_channels::accounts::health::{CredentialStatus, CredentialView};
use postrider_core::policy::validity::Validity;
use postrider_core::{Gate, Timestamp};
use postrider_dispatch::lanes::PausedProvider;

use super::ApiState;
use super::prelude::*;
use super::provider_pauses::ProviderPauseBody;

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountList {
    pub accounts: Vec<AccountBody>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountBody {
    pub name: String,
    pub channel: String,
    /// Its tenant; `*` for every tenant that has no account of its own for this channel.
    pub tenant: String,
    /// The lowest number is used first.
    pub priority: u16,
    pub cost: f64,
    /// `ready` or `held`.
    pub state: &'static str,
    /// What holds it: an operator's pause, its credential, its breaker, its quota, or a wait that the provider asked
    /// for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// An operator paused it: it is not chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<ProviderPauseBody>,
    /// Attempts that went through it since the start.
    pub calls: u64,
    /// Attempts that another account took over.
    pub failovers: u64,
    /// The worst state of its credentials: `ok`, `ending`, `expired` or `unusable`. Absent before the first check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<&'static str>,
    /// All credentials at the last check. They are checked every hour.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialBody>,
}

/// A credential without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CredentialBody {
    /// `service_account`, `signing_key`, `certificate`, `password`, `api_key`, `secret_key`,
    /// `session_token` or `dkim_key`.
    pub kind: &'static str,
    /// `ok`, `ending` (within 30 days), `expired` or `unusable`.
    pub state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    /// Why it cannot be used; names the reference to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// From good to bad.
const CREDENTIAL_STATES: [&str; 4] = ["ok", "ending", "expired", "unusable"];

impl CredentialBody {
    fn new(found: &CredentialStatus, now: Timestamp) -> Self {
        let validity = found.expires_at.map(|end| Validity::at(now, end));
        let [ok, ending, expired, unusable] = CREDENTIAL_STATES;
        let state = match (&found.problem, validity) {
            (Some(_), _) => unusable,
            (None, Some(Validity::Over)) => expired,
            (None, Some(Validity::Ending { .. })) => ending,
            (None, Some(Validity::Ample) | None) => ok,
        };
        let (expires_at, problem) = (found.expires_at.map(Into::into), found.problem.clone());
        Self { kind: found.kind, state, expires_at, problem }
    }
}

impl AccountBody {
    fn new(
        view: AccountView,
        paused: Option<ProviderPauseBody>,
        seen: &[CredentialView],
        now: Timestamp,
    ) -> Self {
        let own = seen.iter().filter(|seen| seen.account == view.name);
        let credentials: Vec<_> =
            own.map(|seen| CredentialBody::new(&seen.credential, now)).collect();
        let rank = |state: &str| CREDENTIAL_STATES.iter().position(|known| *known == state);
        let credential = credentials.iter().map(|c| c.state).max_by_key(|state| rank(state));
        Self {
            name: view.name.to_string(),
            channel: view.channel.to_string(),
            tenant: view.tenant.to_string(),
            priority: view.priority,
            cost: view.cost,
            state: if view.held.is_some() { "held" } else { "ready" },
            held_by: view.held.map(|(by, _)| by),
            until: view.held.and_then(|(_, until)| until).map(Into::into),
            paused,
            calls: view.calls,
            failovers: view.failovers,
            credential,
            credentials,
        }
    }
}

impl ApiState {
    /// All accounts of all channels at this moment, with what holds each in its channel or in the lanes.
    pub(crate) fn account_views(&self) -> Vec<AccountView> {
        let now = self.clock.now();
        let paused = self.lanes.paused_providers();
        let view = |view: AccountView| {
            let is_own = |paused: &&PausedProvider| {
                paused.channel == view.channel && paused.provider == view.name
            };
            let pause = paused.iter().find(is_own);
            let pause = pause.map(|paused| (Gate::ProviderPaused.name(), paused.order.until));
            let in_lanes = || {
                let held = self.lanes.account_hold(view.channel, &view.name);
                held.map(|(gate, until)| (gate.name(), until))
            };
            AccountView { held: pause.or(view.held).or_else(in_lanes), ..view }
        };
        self.books.iter().flat_map(|book| book.accounts(now)).map(view).collect()
    }

    /// The same as they are answered.
    pub(super) fn account_bodies(&self) -> Vec<AccountBody> {
        let (seen, now) = (self.watch.seen(), self.clock.now());
        let paused = self.lanes.paused_providers();
        let body = |view: AccountView| {
            let own = paused
                .iter()
                .find(|paused| paused.channel == view.channel && paused.provider == view.name);
            AccountBody::new(view, own.map(|own| (&own.order).into()), &seen, now)
        };
        self.account_views().into_iter().map(body).collect()
    }
}

/// Accounts at providers: which are used, which are held, why and until when.
#[utoipa::path(get, path = "/v1/accounts", tag = "lanes",
    responses((status = 200, body = AccountList), (status = 403, body = Problem)))]
pub(crate) async fn list(State(app): State<SharedState>, _: ServerReadAccess) -> Json<AccountList> {
    Json(AccountList { accounts: app.account_bodies() })
}
