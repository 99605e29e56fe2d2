//! The providers' answers to checks of a credential, and the providers' clock.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use postrider_sandbox::{Sandbox, SandboxConfig, start};

use crate::client::{Reply, now_s};
use crate::{over_h2, sandbox};

async fn get(sandbox: &Sandbox, path: &str, authorization: &str) -> Reply {
    let request = Request::get(format!("{}{path}", sandbox.https_origin()))
        .header("authorization", authorization)
        .body(Full::<Bytes>::default())
        .expect("a request");
    over_h2(sandbox).await.send(request).await.expect("an answer")
}

#[tokio::test]
async fn a_question_about_a_credential_is_answered_and_counted_nowhere() {
    let sandbox = sandbox().await;
    // AC1:good and AC1:wrong
    let account = "/2010-04-01/Accounts/AC1.json";
    for (path, authorization, status) in [
        ("/v3/scopes", "Bearer SG.x", 200),
        ("/v3/scopes", "Bearer wrong", 401),
        ("/v2/email/account", "", 403),
        (account, "Basic QUMxOmdvb2Q=", 200),
        (account, "Basic QUMxOndyb25n", 401),
    ] {
        let reply = get(&sandbox, path, authorization).await;
        assert_eq!(reply.status.as_u16(), status, "{path} with {authorization}");
    }
    let sum = sandbox.received();
    assert_eq!((&sum["total"], &sum["refused"]), (&0.into(), &serde_json::json!({})), "{sum}");
}

#[tokio::test]
async fn a_provider_of_another_time_says_so_in_every_answer() {
    let config = SandboxConfig { clock_offset_s: -3600, ..SandboxConfig::default() };
    let sandbox = start(config).await.expect("a sandbox");
    let reply = get(&sandbox, "/sandbox", "").await;
    let date = reply.header("date").expect("a date");
    let parser = jiff::fmt::rfc2822::DateTimeParser::new();
    let at = parser.parse_timestamp(date).expect("a time").as_second();
    assert!((at - (now_s() - 3600)).abs() < 60, "{date}");
}
