//! "Would this be sent now, and if not, why?" The same question that is asked before every send.

use postrider_core::policy::audience::{IntendedSend, SendVerdict};
use postrider_dispatch::audience::ReachedPerson;

use super::profiles;
use crate::api::prelude::*;

/// Addresses that are looked at.
const ADDRESSES: usize = 100;

/// What would be sent.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct SendQuery {
    /// Its class; `transactional` if absent.
    pub class: Option<String>,
    /// Its category; that of the class if absent.
    pub category: Option<String>,
}

/// The answer for each address of a recipient.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WouldSend)]
pub(crate) struct WouldSendBody {
    pub recipient: String,
    pub class: String,
    pub category: Option<String>,
    /// Whether it would reach at least one address now or later.
    pub would_send: bool,
    pub addresses: Vec<AddressVerdictBody>,
}

/// Whether a message would be sent to an address.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AddressVerdict)]
pub(crate) struct AddressVerdictBody {
    /// `adr_…`
    pub address: String,
    pub channel: String,
    /// `send`, `wait`, `withhold` or `expire`.
    pub verdict: &'static str,
    /// Why: `mandatory`, `said_yes`, `default` or `no_category` if it would be sent; `undeliverable`, `complaint`,
    /// `unsubscribed`, `snoozed`, `opted_out`, `not_opted_in`, `quiet_hours`, … if not.
    pub reason: &'static str,
    /// When quiet hours end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// Whether a message would be sent to a recipient now, and if not, why. The id of somebody who is no recipient is
/// answered, too: they said nothing.
#[utoipa::path(get, path = "/v1/recipients/{id}/would-send", tag = "audience", params(("id" = String, Path), SendQuery),
    responses((status = 200, body = WouldSendBody), (status = "4XX", body = Problem)))]
pub(crate) async fn would_send(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(id): Path<String>,
    StrictQuery(query): StrictQuery<SendQuery>,
) -> ApiResult<Json<WouldSendBody>> {
    let tenant = access.tenant()?;
    let recipient = profiles::canonical(&app, &tenant, &id).await?;
    let (class, category) = app.intake.class_and_category(
        &tenant,
        query.class.as_deref(),
        query.category.as_deref(),
    )?;
    let found = app.store.addresses(&tenant, Some(&recipient), None, ADDRESSES).await?.items;
    let person = |address: &postrider_core::Address| ReachedPerson {
        recipient: Some(recipient.clone()),
        hash: address.hash,
    };
    let people: Vec<_> = found.iter().map(person).collect();
    let rules = app.audience.rules(&tenant);
    let records = app.audience.book().look_up(&tenant, &rules, &people).await?;
    let (now, wall) = (app.clock.now(), app.clock.wall());
    let ttl = std::time::Duration::from_secs(u64::from(class.ttl_s));
    let addresses = found.into_iter().zip(records).map(|(address, record)| {
        let send = IntendedSend {
            category: category.as_deref(),
            channel: address.channel,
            on_quiet: class.quiet_hours,
            expires_at: wall + ttl,
            now: wall,
            random: 0.0,
        };
        let (verdict, reason, until) = match record.assess(&rules, send) {
            _ if address.target.is_none() => ("withhold", "gone", None),
            SendVerdict::Send(grounds) => ("send", grounds.name(), None),
            SendVerdict::Withhold(reason) => ("withhold", reason.name(), None),
            SendVerdict::Wait { until } => ("wait", "quiet_hours", Some(until)),
            SendVerdict::Expire => ("expire", "quiet_hours", None),
        };
        // The store's time, as everywhere in the API.
        let until = until.map(|until| (now + until.since(wall)).into());
        let channel = address.channel.to_string();
        AddressVerdictBody { address: address.id.to_string(), channel, verdict, reason, until }
    });
    let addresses: Vec<_> = addresses.collect();
    let would_send = addresses.iter().any(|each| matches!(each.verdict, "send" | "wait"));
    Ok(Json(WouldSendBody {
        recipient: recipient.to_string(),
        class: class.name.to_string(),
        category: category.map(Into::into),
        would_send,
        addresses,
    }))
}
