//! `google-auth` against the sandbox's token endpoint, and its token against the sandbox's FCM.

use postrider_sandbox::SandboxConfig;
use serde_json::json;

use crate::tools;

const SEND: &str = r#"
import json, sys
import google.auth.exceptions
import google.auth.transport.requests
import requests
from google.oauth2 import service_account
given = json.load(sys.stdin)
session = requests.Session()
session.trust_env = False
session.verify = given["ca_file"]
transport = google.auth.transport.requests.Request(session=session)
scopes = ["https://www.googleapis.com/auth/firebase.messaging"]
def token(info, scopes=scopes):
    credentials = service_account.Credentials.from_service_account_info(info, scopes=scopes)
    try:
        credentials.refresh(transport)
        return credentials.token
    except google.auth.exceptions.RefreshError as error:
        return error.args[1]["error"]
def send(token, message):
    url = given["origin"] + "/v1/projects/" + given["account"]["project_id"] + "/messages:send"
    answer = session.post(url, json={"message": message}, headers={"Authorization": "Bearer " + token})
    body = answer.json()
    return [answer.status_code, body.get("error", {}).get("status", "accepted")]
good = token(given["account"])
device = "dQw4w9WgXcQ:APA91bHun4MxP5egoKMwt2KZFBaFUH"
print(json.dumps({
    "good": good.startswith("ya29."),
    "stranger": token({**given["account"], "client_email": "stranger@elsewhere.example"}),
    "scope": token(given["account"], ["https://www.googleapis.com/auth/drive"]),
    "sent": send(good, {"token": device, "android": {"ttl": "60s"}, "data": {"a": "b"}}),
    "number": send(good, {"token": device, "data": {"a": 1}}),
    "reserved": send(good, {"token": device, "data": {"google.a": "b"}}),
    "nobody": send("ya29.stolen", {"token": device}),
}))
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn google_auth_gets_a_token_that_fcm_takes() {
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    let sandbox = postrider_sandbox::start(SandboxConfig::default()).await.unwrap();
    std::fs::write(&ca_file, &sandbox.ca_pem).unwrap();
    let given = json!({
        "account": sandbox.fcm_service_account(),
        "origin": sandbox.https_origin(),
        "ca_file": ca_file,
    });
    let told = tokio::task::spawn_blocking(move || tools::ask(SEND, &given)).await.unwrap();
    let expected = json!({
        "good": true,
        "stranger": "invalid_grant",
        "scope": "invalid_scope",
        "sent": [200, "accepted"],
        "number": [400, "INVALID_ARGUMENT"],
        "reserved": [400, "INVALID_ARGUMENT"],
        "nobody": [401, "UNAUTHENTICATED"],
    });
    assert_eq!(told, expected);
}
