//! What the server says of itself at this moment, for the signs of problems.

use std::collections::{BTreeMap, BTreeSet};

use postrider_channels::accounts::health::CredentialView;
use postrider_core::policy::problems::{AccountTrouble, AccountTroubleKind, ServerFigures};
use postrider_core::policy::validity::Validity;
use postrider_core::{TenantId, Timestamp};

use crate::api::{SharedState, load_and_capacity};

/// Without what only time shows: the baseline and the lowest depth.
pub(super) fn of_server(
    app: &SharedState,
    tenants: &BTreeSet<TenantId>,
    fill_max: f64,
) -> ServerFigures {
    let (load, capacity) = load_and_capacity(app, None);
    let full = |tenant: &TenantId| {
        let (load, capacity) = load_and_capacity(app, Some(tenant));
        let fill = capacity.fill(load);
        (fill_max > 0.0 && fill > fill_max).then(|| (tenant.clone(), fill))
    };
    ServerFigures {
        depth: load.deliveries,
        fill: capacity.fill(load),
        full_tenants: tenants.iter().filter_map(full).collect(),
        lag_s: app.metrics.lag.seconds(),
        store: app.health().problems.into_iter().map(|p| (p.code.to_owned(), p.what)).collect(),
        accounts: account_troubles(app),
        ..ServerFigures::default()
    }
}

fn account_troubles(app: &SharedState) -> Vec<AccountTrouble> {
    let now = app.clock.now();
    // By account, the worst first.
    let mut found: BTreeMap<String, AccountTrouble> = BTreeMap::new();
    let mut tenants: BTreeMap<String, Option<TenantId>> = BTreeMap::new();
    for view in app.account_views() {
        let tenant = (&*view.tenant != "*").then(|| TenantId(view.tenant.clone()));
        tenants.insert(view.name.to_string(), tenant.clone());
        let (trouble, what) = match view.held.map(|(gate, _)| gate) {
            Some("credential") => {
                (AccountTroubleKind::CredentialFails, "its provider refuses its credential")
            }
            Some("breaker") => (AccountTroubleKind::BreakerOpen, "its provider fails"),
            _ => continue,
        };
        let (account, channel) = (view.name.to_string(), view.channel.to_string());
        let what = format!("account {account}: {what}");
        found.insert(account.clone(), AccountTrouble { account, channel, trouble, what, tenant });
    }
    for view in app.watch.seen().iter() {
        let Some((trouble, what)) = credential_trouble(view, now) else { continue };
        let account = view.account.to_string();
        let is_failing =
            |known: &AccountTrouble| known.trouble == AccountTroubleKind::CredentialFails;
        if found.get(&account).is_some_and(is_failing) {
            continue;
        }
        let (channel, tenant) =
            (view.channel.to_string(), tenants.get(&account).cloned().flatten());
        let what = format!("account {account}: {what}");
        let is_ending = trouble == AccountTroubleKind::CredentialEnds;
        let name = if is_ending { format!("{account} ends") } else { account.clone() };
        found.insert(name, AccountTrouble { account, channel, trouble, what, tenant });
    }
    found.into_values().collect()
}

fn credential_trouble(
    view: &CredentialView,
    now: Timestamp,
) -> Option<(AccountTroubleKind, String)> {
    let found = &view.credential;
    let kind = found.kind.replace('_', " ");
    if let Some(why) = &found.problem {
        return Some((
            AccountTroubleKind::CredentialFails,
            format!("its {kind} cannot be used: {why}"),
        ));
    }
    let end = found.expires_at?;
    match Validity::at(now, end) {
        Validity::Over => {
            Some((AccountTroubleKind::CredentialFails, format!("its {kind} expired at {end}")))
        }
        Validity::Ending { .. } => {
            Some((AccountTroubleKind::CredentialEnds, format!("its {kind} expires at {end}")))
        }
        Validity::Ample => None,
    }
}
