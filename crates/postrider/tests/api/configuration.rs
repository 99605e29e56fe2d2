//! The configuration is reloaded while the server runs.

use http::Method;
use postrider::config::{Config, Environment};
use serde_json::json;

use postrider_testkit::ADMIN_KEY;
use postrider_testkit::server::{ServerFixture, message, reply};

pub(crate) struct File(tempfile::TempDir);

impl File {
    pub(crate) fn new(more: &str) -> Self {
        let file = Self(tempfile::tempdir().unwrap());
        file.write(more);
        file
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.path().join("postrider.toml")
    }

    pub(crate) fn write(&self, more: &str) {
        let text = format!(
            "store.url = \"memory:\"\nadmin.key = \"{ADMIN_KEY}\"\n[server]\nlisten = \"127.0.0.1:0\"\n{more}"
        );
        std::fs::write(self.path(), text).unwrap();
    }

    pub(crate) async fn serve(&self) -> ServerFixture {
        let path = self.path();
        let read = move || Config::load(Some(&path), &Environment::empty());
        let running = postrider::serve::start_from(Box::new(read)).await.unwrap();
        ServerFixture { running }
    }
}

pub(crate) async fn reload(server: &ServerFixture) -> postrider_testkit::server::TestReply {
    reply(&server.admin(), Method::POST, "/v1/config/reload", "").await
}

#[tokio::test]
async fn what_the_file_says_anew_holds_without_a_restart_and_the_rest_is_named() {
    let file = File::new("metrics_public = true\n");
    let server = file.serve().await;
    let mut news = message();
    news["class"] = json!("news");
    assert_eq!(server.post(news.to_string()).await.status, 422);
    file.write("metrics_public = false\nrole = \"api\"\n[classes.news]\nttl_s = 60\n");
    let told = reload(&server).await;
    assert_eq!(told.status, 200, "{}", told.body);
    assert_eq!(told.body["changed"], json!(["classes.news", "server.metrics_public"]));
    assert_eq!(told.body["needs_restart"], json!(["server.role"]));
    assert_eq!(server.post(news.to_string()).await.status, 202);
    assert_eq!(server.admin().get("/v1/classes").await.unwrap()["classes"]["news"]["ttl_s"], 60);
}

#[tokio::test]
async fn a_file_that_cannot_be_used_changes_nothing_and_says_what_is_wrong() {
    let file = File::new("[classes.news]\nttl_s = 60\n");
    let server = file.serve().await;
    file.write("[classes.news]\nttl_s = 90\n[breaker]\ngone_share = 2.0\n");
    let told = reload(&server).await;
    let wrong = json!([{"field": "breaker.gone_share", "found": "2", "allowed": "above 0, up to 1 (everything is believed)"}]);
    assert_eq!((told.status, &told.body["errors"]), (422, &wrong));
    let classes = server.admin().get("/v1/classes").await.unwrap();
    assert_eq!(classes["classes"]["news"]["ttl_s"], 60);
}

#[tokio::test]
async fn only_an_operator_may_have_the_configuration_read_anew() {
    let server = File::new("").serve().await;
    let key = server.key("tenant", "acme").await;
    let told = reply(&server.client(&key), Method::POST, "/v1/config/reload", "").await;
    assert_eq!(told.status, 403);
}
