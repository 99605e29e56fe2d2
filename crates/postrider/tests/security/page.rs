//! The status page: no link has a key, and none replaces a session.

use std::process::Command;

use serde_json::json;

use crate::fixture::{Attacker, server};

#[tokio::test]
async fn a_link_to_the_page_opens_it_once() {
    let server = server("");
    let admin = Attacker::admin(&server);
    let reader = admin.scoped("read", "acme").await;
    let made = reader.call("POST", "/v1/sign-in-codes", "").await;
    assert_eq!(made.status, 201, "{}", made.body);
    let code = json!({"code": made.json()["code"]});
    let nobody = reader.with_key("none");
    let session = nobody.post("/v1/sign-in", &code).await;
    assert_eq!(session.status, 200, "{}", session.body);
    let session = reader.with_key(session.json()["key"].as_str().unwrap());
    assert_eq!(nobody.post("/v1/sign-in", &code).await.status, 401, "it was used");
    // The session has the rights of its key, makes no more codes, and ends with its key.
    assert_eq!(session.get("/v1/stats").await.status, 200);
    assert_eq!(session.post("/v1/messages", &json!({})).await.status, 403);
    assert_eq!(session.call("POST", "/v1/sign-in-codes", "").await.status, 403);
    let path = format!("/v1/keys/{}", reader.key_id());
    assert_eq!(admin.call("DELETE", &path, "").await.status, 204);
    assert_eq!(session.get("/v1/stats").await.status, 401);
}

#[tokio::test]
async fn guessing_codes_is_slowed_down() {
    let server = server("");
    let attacker = Attacker::admin(&server).from([127, 0, 0, 7]).with_key("none");
    let mut statuses = Vec::new();
    for n in 0..40 {
        let guess = json!({"code": format!("code_{n}")});
        statuses.push(attacker.post("/v1/sign-in", &guess).await.status);
    }
    assert_eq!(statuses[0], 401);
    assert_eq!(statuses[39], 429, "{statuses:?}");
}

/// Runs the page's script with a session and a fragment, and prints the session and the calls that follow.
const HARNESS: &str = r#"
const [script, session, hash] = process.argv.slice(1);
const store = new Map(session ? [["postrider-key", session]] : []);
const calls = [];
const element = () => new Proxy({ classList: { add() {}, remove() {} }, addEventListener() {}, showModal() {}, matches: () => false, value: "" }, {});
const elements = {};
globalThis.at = (id) => elements[id] ??= element();
globalThis.sessionStorage = { getItem: (k) => store.get(k) ?? null, setItem: (k, v) => store.set(k, v) };
globalThis.location = { hash, pathname: "/" };
globalThis.history = { replaceState: () => { globalThis.location.hash = ""; } };
globalThis.document = { hidden: false };
globalThis.setTimeout = () => 0;
globalThis.fetch = async (path, options) => { calls.push([path, options.headers.Authorization]); throw new Error("offline"); };
const source = require("fs").readFileSync(script, "utf8").replace(/^import .*$/gm, "");
Function("at", `return (async () => {${source}})()`)(at).then(() => setImmediate(() => {
  console.log(JSON.stringify({ session: store.get("postrider-key") ?? null, calls, hash: location.hash, asked: at("key").value }));
}));
"#;

fn opened(session: &str, hash: &str) -> serde_json::Value {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/page/page.js");
    let output =
        Command::new("node").args(["-e", HARNESS, script, session, hash]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    serde_json::from_str(&text)
        .unwrap_or_else(|_| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_foreign_link_neither_replaces_a_session_nor_signs_anybody_in() {
    for hash in ["#code=code_evil", "#key=prk_evil"] {
        let page = opened("prk_mine", hash);
        assert_eq!(page["session"], "prk_mine", "{page}");
        assert_eq!(page["calls"][0][1], "Bearer prk_mine", "{page}");
        assert_eq!(page["hash"], "", "the code is not left in the address");
        let page = opened("", hash);
        assert_eq!(page["session"], json!(null), "{page}");
        assert_eq!(page["calls"], json!([]), "nothing happens before a click: {page}");
    }
    assert_eq!(opened("", "#code=code_mine")["asked"], "code_mine", "a click is enough");
}
