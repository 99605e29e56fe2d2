//! What a message becomes for APNs.

use super::*;

fn read(text: &str) -> Result<ApnsDraft, Vec<FieldError>> {
    let content = Content::parse(text).unwrap();
    draft(&content, &ApnsContent::of(&content).unwrap())
}

fn fields(text: &str) -> Vec<String> {
    read(text).unwrap_err().into_iter().map(|error| error.field).collect()
}

#[test]
fn common_fields_become_an_alert_with_the_rest_beside_aps() {
    let draft =
        read(r#"{"title":"a","body":"b","url":"https://x.example","data":{"n":1}}"#).unwrap();
    let payload: Value = serde_json::from_slice(&draft.payload).unwrap();
    let expected = json!({"aps": {"alert": {"title": "a", "body": "b"}},
        "url": "https://x.example", "data": {"n": 1}});
    assert_eq!((payload, draft.push_type.name), (expected, "alert"));
}

#[test]
fn data_alone_wakes_the_app_in_the_background() {
    let draft = read(r#"{"data":{"n":1}}"#).unwrap();
    assert_eq!(draft.push_type.name, "background");
    assert!(String::from_utf8_lossy(&draft.payload).contains(r#""content-available":1"#));
}

#[test]
fn a_payload_of_its_own_goes_out_byte_for_byte() {
    let own = r#"{"aps": {"alert": "x" },  "k": 1}"#;
    let draft = read(&format!(r#"{{"title":"no","apns":{{"payload":{own}}}}}"#)).unwrap();
    assert_eq!((&*draft.payload, draft.push_type.name), (own.as_bytes(), "alert"));
    let silent = r#"{"apns":{"payload":{"aps":{"content-available":1}}}}"#;
    assert_eq!(read(silent).unwrap().push_type.name, "background");
}

#[test]
fn what_apple_would_refuse_is_refused_with_its_field() {
    assert_eq!(fields(r#"{"apns":{"payload":[]}}"#), ["apns.payload"]);
    assert_eq!(fields(r#"{"apns":{"payload":{"alert":"x"}}}"#), ["apns.payload"]);
    assert_eq!(fields(r#"{"title":"x","apns":{"push_type":"shout"}}"#), ["apns.push_type"]);
    assert_eq!(fields(r#"{"title":"x","apns":{"push_type":"background"}}"#), ["apns.payload"]);
    assert_eq!(fields(r#"{"title":"x","apns":{"priority":7}}"#), ["apns.priority"]);
    assert_eq!(fields(r#"{"data":{},"apns":{"priority":10}}"#), ["apns.priority"]);
}

#[test]
fn a_payload_may_have_4096_bytes_and_a_call_5120() {
    let sized = |len: usize, kind: &str| {
        let frame = r#"{"aps":{"alert":""}}"#.len();
        let text = "x".repeat(len - frame);
        let payload = format!(r#"{{"aps":{{"alert":"{text}"}}}}"#);
        read(&format!(r#"{{"apns":{{"payload":{payload},"push_type":"{kind}"}}}}"#))
    };
    assert!(sized(4096, "alert").is_ok());
    let error = sized(4097, "alert").unwrap_err().remove(0);
    assert_eq!((&*error.field, &*error.found), ("apns.payload", "4097 bytes"));
    assert!(sized(5120, "voip").is_ok() && sized(5121, "voip").is_err());
}

#[test]
fn the_topic_grows_by_what_the_push_type_asks() {
    let topic = |name: &str| {
        let kind = TYPES.into_iter().find(|kind| kind.name == name).unwrap();
        kind.topic("com.example.app").into_owned()
    };
    assert_eq!(topic("alert"), "com.example.app");
    assert_eq!(topic("voip"), "com.example.app.voip");
    assert_eq!(topic("complication"), "com.example.app.complication");
    assert_eq!(topic("fileprovider"), "com.example.app.pushkit.fileprovider");
    assert_eq!(topic("location"), "com.example.app.location-query");
    assert_eq!(topic("liveactivity"), "com.example.app.push-type.liveactivity");
    assert_eq!(topic("pushtotalk"), "com.example.app.voip-ptt");
    let voip = TYPES.into_iter().find(|kind| kind.name == "voip").unwrap();
    assert_eq!(voip.topic("com.example.app.voip"), "com.example.app.voip");
}

#[test]
fn a_collapse_id_has_at_most_64_bytes() {
    let tenant = TenantId::new("acme");
    assert_eq!(collapse_id(&tenant, "ord-91"), "ord-91");
    let long = "k".repeat(65);
    assert!(collapse_id(&tenant, &long).len() <= 64);
    assert_eq!(collapse_id(&tenant, &"k".repeat(64)).len(), 64);
    assert!(collapse_id(&tenant, "schlüssel").is_ascii());
}
