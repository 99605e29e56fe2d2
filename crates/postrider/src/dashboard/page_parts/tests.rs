//! Pages over an API that does not answer, or of which a part fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use http_body_util::BodyExt as _;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use postrider_store::{MemoryStore, SystemClock};
use serde_json::json;

use super::*;
use crate::config::{Config, Environment};
use crate::dashboard::api_calls::ApiCalls;
use crate::serve::{Running, start_with};

/// The pages of a server over an API that answers nothing while it is told so.
struct SlowServer {
    _running: Running,
    pages: TowerToHyperService<Router>,
    session: String,
    is_stuck: Arc<AtomicBool>,
    is_broken: Arc<AtomicBool>,
}

impl SlowServer {
    async fn start() -> Self {
        let mut config = Config::parse("", "test", &Environment::empty()).unwrap();
        config.server.listen = ([127, 0, 0, 1], 0).into();
        let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
        let running = start_with(config, store).await.unwrap();
        let app = running.app.clone();
        let key = running.new_admin_key.clone().unwrap();
        let [is_stuck, is_broken] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (stuck, broken) = (is_stuck.clone(), is_broken.clone());
        let slow = from_fn(move |request: Request, next: Next| {
            let (stuck, broken) = (stuck.clone(), broken.clone());
            async move {
                if stuck.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
                if broken.load(Ordering::Relaxed) && request.uri().path() == "/v1/problems" {
                    return StatusCode::SERVICE_UNAVAILABLE.into_response();
                }
                next.run(request).await
            }
        });
        let calls = ApiCalls::new(
            TowerToHyperService::new(crate::api::router(app.clone())),
            &HeaderMap::new(),
            None,
        );
        let code = calls.with_bearer(&key).post("/v1/sign-in-codes", &json!({})).await.unwrap();
        let session = calls.post("/v1/sign-in", &json!({"code": code["code"]})).await.unwrap();
        let session = session["key"].as_str().unwrap().to_owned();
        let pages = super::super::router(app.clone(), crate::api::router(app).layer(slow));
        let pages = TowerToHyperService::new(pages);
        Self { _running: running, pages, session, is_stuck, is_broken }
    }

    async fn first_page(&self) -> String {
        let cookie = format!("{}={}", super::super::cookies::SESSION, self.session);
        let asked = Request::builder().uri("/").header(header::COOKIE, cookie).body(Body::empty());
        let Ok(answer) = self.pages.call(asked.unwrap()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }
}

#[tokio::test]
async fn the_first_page_is_shown_while_the_store_does_not_answer() {
    let server = SlowServer::start().await;
    server.is_stuck.store(true, Ordering::Relaxed);
    let begin = std::time::Instant::now();
    let unknown = server.first_page().await;
    assert!(begin.elapsed() < 2 * WAIT_MAX, "all parts are waited for at once");
    assert!(unknown.contains("Not available now") && !unknown.contains("Nothing is wrong"));
    server.is_stuck.store(false, Ordering::Relaxed);
    let known = server.first_page().await;
    assert!(known.contains("Nothing is wrong") && !known.contains("As of "), "{known}");
    server.is_stuck.store(true, Ordering::Relaxed);
    let old = server.first_page().await;
    assert!(old.contains("Nothing is wrong") && old.contains("there is no answer now"), "{old}");
}

#[tokio::test]
async fn one_part_that_fails_leaves_the_others() {
    let server = SlowServer::start().await;
    server.is_broken.store(true, Ordering::Relaxed);
    let shown = server.first_page().await;
    assert_eq!(shown.matches("Not available now").count(), 1, "{shown}");
    assert!(shown.contains("Latest dead letters") && shown.contains("sent / s"), "{shown}");
}

#[test]
fn old_answers_make_room_for_new_ones() {
    let answers = PageAnswers::default();
    let key = |n: usize| AnswerKey { part: "stats", tenant: n.to_string(), sees_server: true };
    for n in 0..KEPT_MAX + 10 {
        answers.keep(key(n), &json!(n), Timestamp(i64::try_from(n).unwrap()));
    }
    assert_eq!(answers.0.lock().unwrap().len(), KEPT_MAX);
    assert!(answers.find(&key(9)).is_none() && answers.find(&key(10)).is_some());
}
