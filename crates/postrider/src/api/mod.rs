//! The HTTP API: routes, access rights, request and response bodies. Decides nothing about a message:
//! the intake and the store do.

mod account_orders;
mod accounts;
mod addresses;
mod alerts;
mod api_keys;
mod audience;
mod audit;
mod auth;
mod batch;
mod callbacks;
mod caller_address;
mod channel_schema;
mod cursor;
pub use cursor::read_cursor;
mod dead_letters;
mod deliveries;
pub(crate) mod delivery_filter;
mod encryption;
mod event_secrets;
mod event_subscriptions;
mod events;
mod explain;
mod extract;
mod held;
mod history;
mod job_result;
mod jobs;
mod lanes;
mod lines;
mod logged_events;
mod messages;
mod notes;
pub mod openapi;
mod openapi_examples;
mod openapi_problems;
mod overview;
mod page;
mod parameters;
mod portal_links;
mod prelude;
mod problem;
mod problems;
mod provider_pauses;
mod receipts;
mod request_limits;
mod schema;
mod settings;
mod sign_in;
mod signing_keys;
mod strikes;
mod templates;
mod views;

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use postrider_channels::accounts::AccountListing;
use postrider_channels::callbacks::ProviderCallbacks;
use postrider_channels::pool::Pool;
use postrider_core::ports::store::{Store, StoreHealth};
use postrider_core::{Channel, ChannelKind, Clock, Timestamp};
use postrider_dispatch::lanes::OperatorOrder;
use postrider_dispatch::{DispatcherStatus, Lanes, MessageIntake};
use postrider_store::sealed::DataKeys;
use tokio::sync::{Notify, watch};

use self::request_limits::{AddressBuckets, FailedSignIns};
use crate::audit::AuditTrail;
use crate::config::Config;
use crate::events::EventRecorder;
use crate::keys::session::SignInCodes;
use crate::keys::{ApiKeys, Caller, SigningKeys};
use crate::live::{AudienceSettings, LiveConfig, NoteBoard, OperatorActions, TemplateStore};
use crate::quotas::TenantQuotas;
use crate::receipts::{ReceiptRecorder, ReceiptTokens};
use crate::rollups::RollupCounter;
use crate::serve::CredentialMonitor;
use crate::serve::regions::RegionWatch;
use crate::telemetry::Metrics;
use crate::traces::Tracer;
use audit::{audit, note_audit};
pub(crate) use caller_address::{PeerAddress, caller_address};
use extract::CallRules;
pub(crate) use overview::load_and_capacity;
pub use problem::Problem;
pub use request_limits::{CallGate, OpenPermit};
pub(crate) use request_limits::{KeyCallPlace, RequestBucket, network_of};
pub(crate) use views::DeliveryBody;

/// The parts of a server that handlers use.
pub struct ApiParts {
    pub live: LiveConfig,
    pub operator: OperatorActions,
    pub templates: Arc<TemplateStore>,
    pub audience: AudienceSettings,
    pub notes: NoteBoard,
    pub store: Arc<dyn Store>,
    pub intake: Arc<MessageIntake>,
    pub lanes: Arc<Lanes>,
    pub channels: Vec<Arc<dyn Channel>>,
    pub clock: Arc<dyn Clock>,
    pub keys: ApiKeys,
    pub signing: Arc<SigningKeys>,
    pub metrics: Arc<Metrics>,
    pub(crate) rollups: Arc<RollupCounter>,
    pub(crate) events: Arc<EventRecorder>,
    pub(crate) receipts: ReceiptRecorder,
    pub(crate) receipt_tokens: Arc<ReceiptTokens>,
    /// What reads the calls of providers, by channel.
    pub(crate) callbacks: HashMap<ChannelKind, Arc<dyn ProviderCallbacks>>,
    /// Absent if spans are not made.
    pub(crate) tracer: Option<Arc<Tracer>>,
    pub audit: Arc<AuditTrail>,
    /// Absent if the store is not encrypted.
    pub data_keys: Option<Arc<DataKeys>>,
    pub pool: Pool,
    /// The accounts of the channels that have any.
    pub books: Vec<Arc<dyn AccountListing>>,
    /// Checks their credentials.
    pub watch: Arc<CredentialMonitor>,
    pub(crate) regions: Arc<RegionWatch>,
}

/// The state that all handlers share.
pub struct ApiState {
    parts: ApiParts,
    pub started_at: Timestamp,
    draining: watch::Sender<bool>,
    failed_sign_ins: FailedSignIns,
    /// Who sends receipts, and all of them together.
    receipt_senders: AddressBuckets,
    receipt_rate: RequestBucket,
    pub(crate) sign_in_codes: SignInCodes,
    pub quotas: TenantQuotas,
    /// Absent if the server sends nothing.
    dispatcher: OnceLock<DispatcherStatus>,
    listen: OnceLock<SocketAddr>,
    /// A job was made or changed here.
    pub(crate) jobs_wake: Notify,
}

pub type SharedState = Arc<ApiState>;

impl std::ops::Deref for ApiState {
    type Target = ApiParts;

    fn deref(&self) -> &ApiParts {
        &self.parts
    }
}

impl ApiState {
    pub fn new(parts: ApiParts) -> Self {
        let started_at = parts.clock.now();
        let draining = watch::Sender::new(false);
        Self {
            parts,
            started_at,
            draining,
            failed_sign_ins: FailedSignIns::default(),
            receipt_senders: AddressBuckets::default(),
            receipt_rate: RequestBucket::default(),
            sign_in_codes: SignInCodes::default(),
            quotas: TenantQuotas::default(),
            dispatcher: OnceLock::new(),
            listen: OnceLock::new(),
            jobs_wake: Notify::new(),
        }
    }

    /// The configuration in force.
    pub fn config(&self) -> Arc<Config> {
        self.live.now()
    }

    /// What the store and the servers that share it lack.
    pub(crate) fn health(&self) -> StoreHealth {
        let mut health = self.store.check_health();
        health.problems.extend(self.regions.problems());
        health
    }

    /// An order of this caller, given now.
    fn order(&self, caller: &Caller) -> OperatorOrder {
        OperatorOrder::new(key_name(caller), self.clock.now())
    }

    /// From now on `/readyz` answers 503, and event streams end.
    pub fn begin_drain(&self) {
        self.draining.send_replace(true);
    }

    /// Uses the present keys for the hashes of endpoints. Sessions and receipts are signed with them, too.
    pub(crate) fn use_hash_keys(&self) {
        self.intake.use_hash_keys(&self.signing.hash_keys());
        self.receipt_tokens.use_keys(&self.signing.hash_keys());
        self.keys.sign_sessions_with(&self.signing.hash_key());
    }

    /// From now on the server is ready only while the dispatcher works.
    pub fn watch_dispatcher(&self, status: DispatcherStatus) {
        let _ = self.dispatcher.set(status);
    }

    /// Notes the address that the API has.
    pub(crate) fn listens_on(&self, address: SocketAddr) {
        let _ = self.listen.set(address);
    }

    /// Absent before the API listens.
    pub(crate) fn listen_address(&self) -> Option<SocketAddr> {
        self.listen.get().copied()
    }

    fn has_dispatcher_ended(&self) -> bool {
        self.dispatcher.get().is_some_and(|status| !status.is_running())
    }

    /// Whether it does what its role says: a server that sends has a dispatcher that works.
    pub(crate) fn is_dispatching(&self) -> bool {
        match self.dispatcher.get() {
            Some(status) => status.is_running(),
            None => !self.config().server.role.sends(),
        }
    }

    /// A worker sends and shows, and leaves accepting to other servers.
    fn refuse_if_worker(&self) -> Result<(), Problem> {
        if self.config().server.role.accepts() {
            return Ok(());
        }
        let detail = "this server only sends (server.role = \"worker\"); use one with the role \"api\" or \"all\"";
        Err(Problem::new(503, "not_accepting", "This server accepts no messages", detail))
    }

    /// Returns when the server begins to shut down.
    pub(crate) async fn wait_for_drain(&self) {
        let mut draining = self.draining.subscribe();
        // The sender lives as long as this state.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    /// The names of tenants that are configured or have a key.
    pub(crate) fn known_tenants(&self) -> Vec<String> {
        const SHOWN: usize = 500;
        let config = self.config();
        let mut names: BTreeSet<String> = config.tenants.keys().map(ToString::to_string).collect();
        let keys = self.keys.list().into_iter().filter(|(key, _)| !key.all_tenants);
        names.extend(keys.map(|(key, _)| key.tenant.to_string()));
        names.insert(crate::keys::DEFAULT_TENANT.to_owned());
        names.into_iter().take(SHOWN).collect()
    }

    fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }
}

pub fn router(app: SharedState) -> Router {
    let mut router = Router::new();
    let described = openapi::routes().into_iter().map(|(path, _, methods)| (path, methods));
    for (path, methods) in described.chain(page::routes()) {
        let rules =
            (path.starts_with("/v1/") && !PUBLIC_PATHS.contains(&path)).then(|| CallRules {
                path,
                takes_query: QUERY_PATHS.contains(&path),
                is_stream: STREAM_PATHS.contains(&path),
            });
        let methods = match rules {
            Some(rules) => {
                let state = (app.clone(), rules);
                methods.route_layer(from_fn_with_state(state, extract::guarded))
            }
            None if HEALTH_PATHS.contains(&path) => methods,
            None => {
                methods.route_layer(from_fn_with_state(app.clone(), extract::guarded_without_key))
            }
        };
        router = router.route(path, methods);
    }
    router.fallback(unknown_path).method_not_allowed_fallback(wrong_method).with_state(app)
}

/// What the monitoring reads, without a key.
pub fn metrics_router(app: SharedState) -> Router {
    Router::new()
        .route("/metrics", get(overview::open_metrics))
        .route("/healthz", get(overview::healthz))
        .route("/readyz", get(overview::readyz))
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
}

/// Paths that answer however often they are called: who asks decides whether the server goes on running.
const HEALTH_PATHS: [&str; 2] = ["/healthz", "/readyz"];

/// Paths that everybody may call, without a key. They have limits of their own, and no call is in the audit log.
const PUBLIC_PATHS: [&str; 2] = ["/v1/receipts/{token}", "/v1/callbacks/{account}/{token}"];

/// Paths that take query parameters. Each handler refuses unknown ones.
const QUERY_PATHS: [&str; 14] = [
    "/v1/jobs",
    "/v1/events",
    "/v1/problems",
    "/v1/stats/history",
    "/v1/webhook-secrets",
    "/v1/deliveries",
    "/v1/dead-letters",
    "/v1/addresses",
    "/v1/strikes",
    "/v1/lanes",
    "/v1/audit",
    "/v1/recipients",
    "/v1/recipients/{id}/would-send",
    "/v1/suppressions",
];

/// Paths whose answers take as long as the caller likes.
const STREAM_PATHS: [&str; 4] =
    ["/v1/messages/batch", "/v1/recipients/import", "/v1/events", "/v1/jobs/{id}/result"];

async fn unknown_path(request: Request) -> Problem {
    let path: String = request.uri().path().chars().take(200).collect();
    let detail = format!("there is nothing at {path}; /openapi.json lists every call");
    Problem::new(404, "not_found", "Not found", detail)
}

async fn wrong_method(request: Request) -> Problem {
    let detail = format!(
        "{} is not allowed here; the Allow header lists the allowed methods",
        request.method().as_str().chars().take(20).collect::<String>()
    );
    Problem::new(405, "method", "The method is not allowed", detail)
}

/// The id of the caller's key.
fn key_name(caller: &Caller) -> String {
    caller.key.map_or_else(|| "configured admin key".to_owned(), |id| id.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_described_and_every_description_is_a_route() {
        let document: serde_json::Value = serde_json::from_str(&openapi::json()).unwrap();
        let described: Vec<String> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| {
                item.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
            })
            .collect();
        let mut routed = Vec::new();
        for (path, methods, _) in openapi::routes() {
            routed.extend(methods.iter().map(|method| format!("{method} {path}")));
        }
        routed.sort();
        let mut described_sorted = described;
        described_sorted.sort();
        assert_eq!(described_sorted, routed);
        assert_eq!(document["openapi"], "3.1.0");
    }

    #[test]
    fn every_reference_in_the_description_leads_somewhere() {
        fn follow(value: &serde_json::Value, document: &serde_json::Value) {
            if let Some(target) = value.get("$ref").and_then(|r| r.as_str()) {
                let pointer = target.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{target} leads nowhere");
            }
            let inside: Vec<_> = match value {
                serde_json::Value::Object(map) => map.values().collect(),
                serde_json::Value::Array(list) => list.iter().collect(),
                _ => Vec::new(),
            };
            inside.into_iter().for_each(|value| follow(value, document));
        }
        let document: serde_json::Value = serde_json::from_str(&openapi::json()).unwrap();
        follow(&document, &document);
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, call) in item.as_object().unwrap() {
                let described = call["summary"].is_string() && call["responses"].is_object();
                assert!(described, "{method} {path} lacks a summary or responses");
            }
        }
    }
}
