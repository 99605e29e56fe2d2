//! The dashboard: pages rendered on the server. A page asks the API of this server for everything that it shows and
//! does, with the caller's session, so that rights, limits and the audit log are those of the API.

mod action_form;
mod api_calls;
mod assets;
mod audit_page;
mod chart;
mod cookies;
mod dead_groups;
mod dead_page;
mod deliveries_facets;
mod deliveries_page;
mod deliveries_search;
mod delivery_page;
mod delivery_person;
mod delivery_timeline;
mod job_plan;
mod job_plan_page;
mod jobs_page;
mod json_read;
mod lanes_page;
mod layout;
mod live_stream;
mod notes;
mod now_page;
mod page_context;
mod page_parts;
mod problem_orders;
mod problem_pages;
mod problem_samples;
mod provider_orders;
mod providers_page;
mod query;
mod refusal_page;
mod role;
mod settings_change;
mod settings_page;
mod sign_in_page;
mod words;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use hyper_util::service::TowerToHyperService;

use crate::api::SharedState;
use page_parts::PageAnswers;

/// The server's state, and its API as a service.
#[derive(Clone)]
pub(crate) struct DashboardState {
    app: SharedState,
    api: TowerToHyperService<Router>,
    last_answers: Arc<PageAnswers>,
}

/// The pages and their files before the API, of which they are made.
pub(crate) fn router(app: SharedState, api: Router) -> Router {
    let pages = Router::new()
        .route("/", get(now_page::show))
        .route("/live", get(live_stream::follow))
        .route("/problems/{id}", get(problem_pages::show))
        .route("/problems/{id}/{action}", post(problem_pages::act))
        .route("/deliveries", get(deliveries_page::show))
        .route("/deliveries/{id}", get(delivery_page::show))
        .route("/deliveries/{id}/content", post(delivery_page::content))
        .route("/deliveries/{id}/{action}", post(delivery_page::act))
        .route("/dead", get(dead_page::show))
        .route("/jobs", get(jobs_page::list))
        .route("/jobs/plan", get(job_plan_page::show).post(job_plan_page::act))
        .route("/jobs/{id}", get(jobs_page::show))
        .route("/jobs/{id}/result", get(jobs_page::result))
        .route("/jobs/{id}/{action}", post(jobs_page::act))
        .route("/lanes", get(lanes_page::list))
        .route("/lanes/{id}", get(lanes_page::show))
        .route("/lanes/{id}/{action}", post(lanes_page::act))
        .route("/providers", get(providers_page::show))
        .route("/providers/{action}", post(provider_orders::act_on_provider))
        .route("/accounts/{name}/{action}", post(provider_orders::act_on_account))
        .route("/notes", post(notes::pin))
        .route("/notes/{id}/remove", post(notes::remove))
        .route("/settings", get(settings_page::show).post(settings_page::act))
        .route("/audit", get(audit_page::show))
        .route("/sign-in", get(sign_in_page::show).post(sign_in_page::sign_in))
        .route("/sign-out", post(sign_in_page::sign_out))
        .route("/assets/{name}", get(assets::show))
        .layer(axum::middleware::from_fn(assets::with_headers));
    let state = DashboardState {
        app,
        api: TowerToHyperService::new(api.clone()),
        last_answers: Arc::default(),
    };
    pages.with_state(state).fallback_service(api)
}
