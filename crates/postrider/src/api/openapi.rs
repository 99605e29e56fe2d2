//! The OpenAPI 3.1 description, generated from the handlers themselves.

use axum::response::{IntoResponse, Response};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use super::settings::{classes, limits, tenants};
use super::{
    accounts, addresses, api_keys, batch, configuration, dead_letters, deliveries, events, lanes,
    messages, overview, signing_keys, strikes, templates,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Postrider",
        description = "A patient mail carrier: send a message, get 202 when it is on disk, and see what happened to it. Errors are RFC 9457 problem details. An admin key acts for the tenant `default`, or for the tenant in the header `Postrider-Tenant`.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0")
    ),
    servers((url = "/")),
    paths(
        messages::accept,
        batch::batch,
        messages::show,
        messages::cancel,
        messages::content,
        deliveries::list,
        deliveries::show,
        deliveries::explanation,
        dead_letters::list,
        dead_letters::replay,
        dead_letters::discard,
        addresses::create,
        addresses::list,
        addresses::show,
        addresses::delete,
        strikes::list,
        strikes::forgive,
        signing_keys::vapid,
        signing_keys::rotate_vapid,
        signing_keys::webhook,
        signing_keys::rotate_webhook,
        api_keys::list,
        api_keys::create,
        api_keys::revoke,
        overview::stats,
        overview::history,
        lanes::list,
        lanes::show,
        lanes::pause,
        lanes::resume,
        lanes::breaker,
        accounts::list,
        configuration::reload,
        events::events,
        classes::list,
        classes::show,
        classes::set,
        classes::unset,
        tenants::list,
        tenants::show,
        tenants::set,
        tenants::unset,
        tenants::pause,
        tenants::resume,
        limits::list,
        limits::show,
        limits::set,
        limits::unset,
        templates::list,
        templates::show,
        templates::set,
        templates::unset,
        templates::preview,
        templates::preview_unsaved,
        overview::healthz,
        overview::readyz,
        overview::metrics,
        document,
    ),
    components(schemas(super::channel_schema::AddressRequest)),
    security(("key" = [])),
    modifiers(&KeySecurity)
)]
struct ApiDescription;

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
    ApiDescription::openapi().to_pretty_json().unwrap_or_else(|_| "{}".to_owned())
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "overview", security(()), responses((status = 200, description = "OpenAPI 3.1")))]
pub(crate) async fn document() -> Response {
    ([("content-type", "application/json")], json()).into_response()
}
