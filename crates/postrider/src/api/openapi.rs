//! The paths of the API with their handlers, and the OpenAPI 3.1 description of both.

use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::audience::{
    categories, facts, import, preferences, recipients, suppressions, would_send,
};
use super::settings::{classes, limits, tenants};
use super::{
    SharedState, account_orders, accounts, addresses, alerts, api_keys, audit, batch, callbacks,
    dead_letters, deliveries, encryption, event_secrets, event_subscriptions, events, held,
    history, job_result, jobs, lanes, messages, notes, openapi_examples, openapi_problems,
    overview, portal_links, problems, provider_pauses, receipts, settings, sign_in, signing_keys,
    strikes, templates,
};

pub(super) type Route = (&'static str, &'static [&'static str], MethodRouter<SharedState>);

/// Makes the description and the routes of the same list.
macro_rules! api {
    ($($path:literal => $($method:ident($($handler:ident)::+)),+;)+) => {
        #[derive(OpenApi)]
        #[openapi(
            info(
                title = "Postrider",
                description = "A patient mail carrier: send a message, get 202 when it is on disk, and see what happened to it. Errors are RFC 9457 problem details. A key has scopes and belongs to a tenant. A key for all tenants acts for the tenant in the header `Postrider-Tenant`, or for `default`.",
                license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
            ),
            servers((url = "/")),
            tags(
                (name = "messages", description = "Send, look up, cancel"),
                (name = "deliveries", description = "What happened to each delivery, and why"),
                (name = "dead letters", description = "What was given up: look, replay, discard"),
                (name = "jobs", description = "Replay, discard, cancel and export by filter, in the background"),
                (name = "addresses", description = "Where recipients can be reached"),
                (name = "audience", description = "Whom to reach: recipients, preferences, suppressions"),
                (name = "templates", description = "Content with variables"),
                (name = "problems", description = "What is wrong, for whom, since when; alerts; notes of operators"),
                (name = "events", description = "What happens, for others: webhooks, and reading by cursor"),
                (name = "lanes", description = "What waits for what: limits, breakers, accounts"),
                (name = "overview", description = "Health, figures, events"),
                (name = "keys", description = "Signing keys and sign-in"),
                (name = "administration", description = "Settings, tenants, API keys, audit")
            ),
            paths($($($($handler)::+),+),+),
            components(schemas(super::channel_schema::AddressRequest)),
            security(("key" = [])),
            modifiers(&KeySecurity)
        )]
        struct ApiDescription;

        /// Every path with its methods.
        pub(super) fn routes() -> Vec<Route> {
            vec![$((
                $path,
                &[$(stringify!($method)),+],
                MethodRouter::new()$(.$method($($handler)::+))+,
            )),+]
        }
    };
}

api! {
    "/v1/messages" => post(messages::accept);
    "/v1/messages/batch" => post(batch::batch);
    "/v1/messages/{id}" => get(messages::show);
    "/v1/messages/{id}/cancel" => post(messages::cancel);
    "/v1/messages/{id}/content" => get(messages::content);
    "/v1/deliveries" => get(deliveries::list);
    "/v1/deliveries/release" => post(held::release);
    "/v1/deliveries/{id}" => get(deliveries::show);
    "/v1/deliveries/{id}/explain" => get(deliveries::explanation);
    "/v1/receipts/{token}" => post(receipts::report);
    "/v1/callbacks/{account}/{token}" => post(callbacks::call);
    "/v1/dead-letters" => get(dead_letters::list);
    "/v1/dead-letters/replay" => post(dead_letters::replay);
    "/v1/dead-letters/discard" => post(dead_letters::discard);
    "/v1/addresses" => get(addresses::list), post(addresses::create);
    "/v1/addresses/{id}" => get(addresses::show), delete(addresses::delete);
    "/v1/addresses/{id}/facts" => put(facts::set);
    "/v1/recipients" => get(recipients::list);
    "/v1/recipients/import" => post(import::import);
    "/v1/recipients/{id}" => get(recipients::show), put(recipients::put), patch(recipients::patch), delete(recipients::delete);
    "/v1/recipients/{id}/preferences" => put(preferences::put), patch(preferences::patch);
    "/v1/recipients/{id}/would-send" => get(would_send::would_send);
    "/v1/categories" => get(categories::list);
    "/v1/categories/{name}" => get(categories::show), put(categories::set), delete(categories::unset);
    "/v1/audience" => get(categories::rules), put(categories::set_rules);
    "/v1/suppressions" => get(suppressions::list), post(suppressions::create);
    "/v1/suppressions/{hash}" => get(suppressions::show), delete(suppressions::delete);
    "/v1/strikes" => get(strikes::list);
    "/v1/strikes/{hash}" => delete(strikes::forgive);
    "/v1/vapid" => get(signing_keys::vapid);
    "/v1/vapid/rotate" => post(signing_keys::rotate_vapid);
    "/v1/webhook-secrets" => get(signing_keys::webhook);
    "/v1/webhook-secrets/rotate" => post(signing_keys::rotate_webhook);
    "/v1/keys" => get(api_keys::list), post(api_keys::create);
    "/v1/keys/{id}" => delete(api_keys::revoke);
    "/v1/sign-in-codes" => post(sign_in::create);
    "/v1/sign-in" => post(sign_in::exchange);
    "/v1/portal-links" => post(portal_links::create);
    "/v1/audit" => get(audit::list);
    "/v1/encryption" => get(encryption::show);
    "/v1/encryption/rotate" => post(encryption::rotate);
    "/v1/encryption/hash-key/rotate" => post(encryption::rotate_hash_key);
    "/v1/encryption/tenants/{name}/destroy" => post(encryption::destroy);
    "/v1/jobs" => get(jobs::list), post(jobs::create);
    "/v1/jobs/{id}" => get(jobs::show), patch(jobs::change_rate);
    "/v1/jobs/{id}/pause" => post(jobs::pause);
    "/v1/jobs/{id}/resume" => post(jobs::resume);
    "/v1/jobs/{id}/abort" => post(jobs::abort);
    "/v1/jobs/{id}/result" => get(job_result::result);
    "/v1/stats" => get(overview::stats);
    "/v1/stats/history" => get(history::history);
    "/v1/problems" => get(problems::list);
    "/v1/problems/{id}" => get(problems::show);
    "/v1/problems/{id}/acknowledge" => post(problems::acknowledge);
    "/v1/problems/{id}/unacknowledge" => post(problems::unacknowledge);
    "/v1/problems/{id}/mute" => post(problems::mute);
    "/v1/problems/{id}/unmute" => post(problems::unmute);
    "/v1/notes" => get(notes::list), post(notes::create);
    "/v1/notes/{id}" => delete(notes::remove);
    "/v1/alerts" => get(alerts::list);
    "/v1/alerts/test" => post(alerts::test);
    "/v1/lanes" => get(lanes::list);
    "/v1/lanes/{id}" => get(lanes::show);
    "/v1/lanes/{id}/pause" => post(lanes::pause);
    "/v1/lanes/{id}/resume" => post(lanes::resume);
    "/v1/lanes/{id}/breaker" => post(lanes::breaker);
    "/v1/accounts" => get(accounts::list);
    "/v1/accounts/{name}/verify" => post(account_orders::verify);
    "/v1/accounts/{name}/pause" => post(account_orders::pause);
    "/v1/accounts/{name}/resume" => post(account_orders::resume);
    "/v1/providers/paused" => get(provider_pauses::list);
    "/v1/providers/pause" => post(provider_pauses::pause);
    "/v1/providers/resume" => post(provider_pauses::resume);
    "/v1/config/reload" => post(settings::reload);
    "/v1/events" => get(events::events);
    "/v1/event-subscriptions" => get(event_subscriptions::list), post(event_subscriptions::create);
    "/v1/event-subscriptions/{id}" => get(event_subscriptions::show), put(event_subscriptions::set), delete(event_subscriptions::unset);
    "/v1/event-subscriptions/{id}/test" => post(event_subscriptions::test);
    "/v1/event-subscriptions/{id}/secrets" => get(event_secrets::list);
    "/v1/event-subscriptions/{id}/secrets/rotate" => post(event_secrets::rotate);
    "/v1/classes" => get(classes::list);
    "/v1/classes/{name}" => get(classes::show), put(classes::set), delete(classes::unset);
    "/v1/tenants" => get(tenants::list);
    "/v1/tenants/{name}" => get(tenants::show), put(tenants::set), delete(tenants::unset);
    "/v1/tenants/{name}/pause" => post(tenants::pause);
    "/v1/tenants/{name}/resume" => post(tenants::resume);
    "/v1/limits" => get(limits::list);
    "/v1/limits/{section}" => get(limits::show), put(limits::set), delete(limits::unset);
    "/v1/templates" => get(templates::list);
    "/v1/templates/preview" => post(templates::preview_unsaved);
    "/v1/templates/{name}" => get(templates::show), put(templates::set), delete(templates::unset);
    "/v1/templates/{name}/preview" => post(templates::preview);
    "/healthz" => get(overview::healthz);
    "/readyz" => get(overview::readyz);
    "/metrics" => get(overview::metrics);
    "/openapi.json" => get(document);
}

struct KeySecurity;

impl Modify for KeySecurity {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("An API key, `prk_…`, or the admin key."))
            .build();
        let components = openapi.components.get_or_insert_default();
        components.add_security_scheme("key", SecurityScheme::Http(scheme));
    }
}

/// The description as pretty JSON.
pub fn json() -> String {
    let mut document = serde_json::to_value(ApiDescription::openapi()).unwrap_or_default();
    openapi_problems::complete(&mut document);
    openapi_examples::add(&mut document);
    format!("{document:#}")
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "overview", security(()),
    responses((status = 200, description = "OpenAPI 3.1"), (status = 429, body = super::Problem),
        (status = 503, body = super::Problem)))]
pub(crate) async fn document() -> Response {
    ([("content-type", "application/json")], json()).into_response()
}
