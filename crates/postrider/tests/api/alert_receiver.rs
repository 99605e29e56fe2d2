//! A receiver of webhooks and alerts whose answer a test chooses. What is under `/daily` is always well.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, Uri};
use serde_json::Value;

/// An alert arrives in this time.
pub(super) const ALERTED_IN: Duration = Duration::from_secs(30);

/// A receiver whose answer the test chooses.
pub(super) struct TestReceiver {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    pub(super) bodies: Arc<Mutex<Vec<Value>>>,
}

impl TestReceiver {
    pub(super) async fn start() -> Self {
        let (status, bodies) = (Arc::new(AtomicU16::new(200)), Arc::new(Mutex::new(Vec::new())));
        let (answer, kept) = (status.clone(), bodies.clone());
        let router =
            Router::new().fallback(async move |uri: Uri, headers: HeaderMap, body: Bytes| {
                let body: Value = serde_json::from_slice(&body).unwrap_or_default();
                kept.lock().unwrap().push(body);
                let status = StatusCode::from_u16(answer.load(Ordering::Relaxed)).unwrap();
                let signatures =
                    headers.get("webhook-signature").map(|text| text.to_str().unwrap());
                // Who wants another signature takes one that was made with a new secret, beside the old one.
                let is_renewed = signatures.is_some_and(|text| text.contains(' '));
                let is_healthy = uri.path().starts_with("/daily");
                if is_healthy || (status == 401 && is_renewed) { StatusCode::OK } else { status }
            });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, status, bodies }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn answers(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub(super) fn alerts(&self) -> Vec<Value> {
        self.bodies.lock().unwrap().iter().map(|body| body["alert"].clone()).collect()
    }

    /// Waits for an alert of this kind that tells this.
    pub(super) async fn alert(&self, kind: &str, event: &str, within: Duration) -> Value {
        let begin = Instant::now();
        loop {
            let is_it = |alert: &&Value| alert["kind"] == kind && alert["event"] == event;
            if let Some(alert) = self.alerts().iter().find(is_it) {
                return alert.clone();
            }
            let all = self.alerts();
            assert!(begin.elapsed() < within, "no alert that {kind} is {event}; came: {all:#?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
