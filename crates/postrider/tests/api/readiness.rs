//! Who cannot send is not ready.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use postrider_dispatch::{Dispatcher, DispatcherConfig, NoObserver};
use postrider_testkit::server::{ServerFixture, reply};

#[tokio::test]
async fn a_server_whose_dispatcher_ended_is_not_ready() {
    let server = ServerFixture::with("[server]\nrole = \"api\"\n").await;
    let app = &server.running.app;
    let ready = async || reply(&server.admin(), Method::GET, "/readyz", "").await;
    let dispatcher = Dispatcher::start(DispatcherConfig {
        consumer: app.store.consumer("node").await.unwrap(),
        channels: Vec::new(),
        lanes: app.lanes.clone(),
        clock: app.clock.clone(),
        observer: Arc::new(NoObserver),
        log: None,
        seed: 1,
    });
    app.watch_dispatcher(dispatcher.status());
    assert_eq!(ready().await.status, 200);
    dispatcher.drain(Duration::ZERO).await;
    let refused = ready().await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.body["detail"], "the dispatcher ended; the server has to be restarted");
}
