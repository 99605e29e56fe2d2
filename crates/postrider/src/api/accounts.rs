//! The accounts at providers as an operator sees them: which one is used, which is held and by what.
//! Never shows a credential.

use axum::Json;
use axum::extract::State;
use postrider_channels::accounts::AccountView;
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::Operator;
use super::problem::Problem;
use super::views::Time;
use super::{App, Shared};

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountList {
    pub accounts: Vec<AccountBody>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AccountBody {
    pub name: String,
    pub channel: &'static str,
    /// Whose it is; `*` for every tenant that has none of its own for this channel.
    pub tenant: String,
    /// Lower is used first.
    pub priority: u16,
    pub cost: f64,
    /// `ready` or `held`.
    pub state: &'static str,
    /// What holds it: its credential, its breaker, its quota, or the provider's wish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Attempts that went through it since the start.
    pub calls: u64,
    /// Those of them that another account took over.
    pub failovers: u64,
}

impl From<AccountView> for AccountBody {
    fn from(view: AccountView) -> Self {
        Self {
            name: view.name.to_string(),
            channel: view.channel.name(),
            tenant: view.tenant.to_string(),
            priority: view.priority,
            cost: view.cost,
            state: if view.held.is_some() { "held" } else { "ready" },
            held_by: view.held.map(|(by, _)| by),
            until: view.held.map(|(_, until)| until.into()),
            calls: view.calls,
            failovers: view.failovers,
        }
    }
}

impl App {
    /// All accounts of all channels at this moment.
    pub(crate) fn account_views(&self) -> Vec<AccountView> {
        let now = self.clock.now();
        self.books.iter().flat_map(|book| book.accounts(now)).collect()
    }
}

/// Accounts at providers: what is used, what is held, by what and until when.
#[utoipa::path(get, path = "/v1/accounts", tag = "lanes",
    responses((status = 200, body = AccountList), (status = 403, body = Problem)))]
pub(crate) async fn list(State(app): State<Shared>, _: Operator) -> Json<AccountList> {
    Json(AccountList { accounts: app.account_views().into_iter().map(Into::into).collect() })
}
