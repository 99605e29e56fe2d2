//! What FCM HTTP v1 refuses in a message of the caller's own: unknown names, values of another type,
//! times and priorities that do not exist. Pure, so that the intake can ask. Leaves what is inside of the
//! platforms' notifications to Google, where names are added every year.

use postrider_core::{FieldError, model::json_fields};
use serde_json::{Map, Value};

use super::TRAITS;
use super::render::seconds;

const PATH: &str = "fcm.message";
const TARGETS: [&str; 4] = ["token", "fid", "topic", "condition"];
const RESERVED: [&str; 3] = ["from", "message_type", "collapse_key"];
/// Both spellings of proto3's JSON.
const MESSAGE: &[&str] =
    &["name", "data", "notification", "android", "webpush", "apns", "fcmOptions", "fcm_options"];
const NOTIFICATION: &[&str] = &["title", "body", "image"];
const ANDROID: &[&str] = &[
    "collapseKey",
    "collapse_key",
    "priority",
    "ttl",
    "restrictedPackageName",
    "restricted_package_name",
    "data",
    "notification",
    "fcmOptions",
    "fcm_options",
    "directBootOk",
    "direct_boot_ok",
    "bandwidthConstrainedOk",
    "bandwidth_constrained_ok",
    "restrictedSatelliteOk",
    "restricted_satellite_ok",
];
const WEBPUSH: &[&str] = &["headers", "data", "notification", "fcmOptions", "fcm_options"];
const APNS: &[&str] = &[
    "headers",
    "payload",
    "fcmOptions",
    "fcm_options",
    "liveActivityToken",
    "live_activity_token",
];

const LABEL: &[&str] = &["analyticsLabel", "analytics_label"];

/// Everything that is wrong with a message of the caller's own.
pub(super) fn own(message: &Map<String, Value>) -> Vec<FieldError> {
    let mut checks = FcmChecks { errors: Vec::new() };
    if let Some(target) = TARGETS.iter().find(|name| message.contains_key(**name)) {
        let allowed = "a message without a target; that is what `to` says";
        checks.wrong(&format!("{PATH}.{target}"), "a target", allowed);
    }
    checks.names(PATH, message, MESSAGE);
    if let Some(shown) = checks.object(message, PATH, "notification") {
        let path = format!("{PATH}.notification");
        checks.names(&path, shown, NOTIFICATION);
        NOTIFICATION.iter().for_each(|name| checks.text(shown, &path, name));
    }
    checks.object(message, PATH, "data");
    checks.data(message.get("data"), &format!("{PATH}.data"));
    checks.text(message, PATH, "name");
    checks.options(message, PATH, LABEL);
    checks.android(message);
    checks.webpush(message);
    checks.apns(message);
    checks.errors
}

/// What is wrong with `data` that was made of a message's common data.
pub(super) fn common_data(message: &Map<String, Value>) -> Vec<FieldError> {
    let mut checks = FcmChecks { errors: Vec::new() };
    checks.data(message.get("data"), "data");
    checks.errors
}

struct FcmChecks {
    errors: Vec<FieldError>,
}

impl FcmChecks {
    fn wrong(&mut self, field: &str, found: impl Into<String>, allowed: impl Into<String>) {
        self.errors.push(FieldError::new(field, found, allowed));
    }

    fn names(&mut self, path: &str, of: &Map<String, Value>, known: &[&str]) {
        for name in of.keys().filter(|name| !known.contains(&name.as_str())) {
            if path == PATH && TARGETS.contains(&name.as_str()) {
                continue;
            }
            let camel: Vec<_> = known.iter().filter(|name| !name.contains('_')).copied().collect();
            self.wrong(&format!("{path}.{}", short(name)), "unknown field", camel.join(", "));
        }
    }

    fn object<'a>(
        &mut self,
        of: &'a Map<String, Value>,
        path: &str,
        name: &str,
    ) -> Option<&'a Map<String, Value>> {
        match of.get(name)? {
            Value::Object(found) => Some(found),
            other => {
                self.wrong(&format!("{path}.{name}"), json_fields::kind(other), "an object");
                None
            }
        }
    }

    fn text(&mut self, of: &Map<String, Value>, path: &str, name: &str) {
        if let Some(other) = of.get(name).filter(|value| !value.is_string()) {
            self.wrong(&format!("{path}.{name}"), json_fields::kind(other), "a string");
        }
    }

    /// A map of strings without the names that Google keeps to itself.
    fn data(&mut self, data: Option<&Value>, path: &str) {
        for (name, value) in data.and_then(Value::as_object).into_iter().flatten() {
            let field = format!("{path}.{}", short(name));
            if !value.is_string() {
                self.wrong(&field, json_fields::kind(value), "a string");
            }
            let reserved = RESERVED.contains(&name.as_str())
                || name.starts_with("google.")
                || name.starts_with("gcm.");
            if reserved || name.is_empty() {
                let found = if reserved { "a reserved name" } else { "an empty name" };
                let allowed = "another name: FCM keeps from, message_type, collapse_key, google.* and gcm.* to itself";
                self.wrong(&field, found, allowed);
            }
        }
    }

    fn options(&mut self, of: &Map<String, Value>, path: &str, known: &[&str]) {
        for name in ["fcmOptions", "fcm_options"] {
            let Some(options) = self.object(of, path, name) else { continue };
            let path = format!("{path}.{name}");
            self.names(&path, options, known);
            known.iter().for_each(|name| self.text(options, &path, name));
        }
    }

    fn headers(&mut self, block: &Map<String, Value>, path: &str) {
        let path = format!("{path}.headers");
        for (name, value) in block.get("headers").and_then(Value::as_object).into_iter().flatten() {
            let field = format!("{path}.{}", short(name));
            match value.as_str() {
                None => self.wrong(&field, json_fields::kind(value), "a string"),
                Some(text) if text.chars().any(char::is_control) => {
                    self.wrong(&field, "a control character", "one line of text");
                }
                Some(_) => {}
            }
        }
    }

    fn android(&mut self, message: &Map<String, Value>) {
        let path = format!("{PATH}.android");
        let Some(android) = self.object(message, PATH, "android") else { return };
        self.names(&path, android, ANDROID);
        self.object(android, &path, "notification");
        self.object(android, &path, "data");
        self.data(android.get("data"), &format!("{path}.data"));
        self.text(android, &path, "collapseKey");
        self.text(android, &path, "collapse_key");
        self.text(android, &path, "restrictedPackageName");
        self.text(android, &path, "restricted_package_name");
        self.options(android, &path, LABEL);
        for name in ANDROID.iter().filter(|name| name.ends_with("Ok") || name.ends_with("_ok")) {
            if let Some(other) = android.get(*name).filter(|value| !value.is_boolean()) {
                self.wrong(&format!("{path}.{name}"), json_fields::kind(other), "true or false");
            }
        }
        if let Some(priority) = android.get("priority") {
            let known = ["NORMAL", "HIGH", "normal", "high"];
            if !priority.as_str().is_some_and(|text| known.contains(&text)) {
                let found = priority.as_str().map_or(json_fields::kind(priority).into(), short);
                self.wrong(&format!("{path}.priority"), found, "NORMAL or HIGH");
            }
        }
        if let Some(ttl) = android.get("ttl") {
            let read = ttl.as_str().and_then(seconds);
            if read.is_none_or(|ttl| ttl.as_secs_f64() > f64::from(TRAITS.ttl_s_max)) {
                let found = ttl.as_str().map_or(json_fields::kind(ttl).into(), short);
                let allowed = "seconds as text, \"0s\" to \"2419200s\"";
                self.wrong(&format!("{path}.ttl"), found, allowed);
            }
        }
    }

    fn webpush(&mut self, message: &Map<String, Value>) {
        let path = format!("{PATH}.webpush");
        let Some(webpush) = self.object(message, PATH, "webpush") else { return };
        self.names(&path, webpush, WEBPUSH);
        self.object(webpush, &path, "headers");
        self.headers(webpush, &path);
        self.object(webpush, &path, "notification");
        self.object(webpush, &path, "data");
        self.data(webpush.get("data"), &format!("{path}.data"));
        self.options(webpush, &path, &["link", "analyticsLabel", "analytics_label"]);
        for name in ["fcmOptions", "fcm_options"] {
            let link = webpush.get(name).and_then(|options| options.get("link"));
            let Some(link) = link else { continue };
            if !link.as_str().is_some_and(|link| link.starts_with("https://")) {
                let found =
                    if link.is_string() { "another scheme" } else { json_fields::kind(link) };
                self.wrong(&format!("{path}.{name}.link"), found, "https://…");
            }
        }
    }

    fn apns(&mut self, message: &Map<String, Value>) {
        let path = format!("{PATH}.apns");
        let Some(apns) = self.object(message, PATH, "apns") else { return };
        self.names(&path, apns, APNS);
        self.object(apns, &path, "headers");
        self.headers(apns, &path);
        self.object(apns, &path, "payload");
        self.text(apns, &path, "liveActivityToken");
        self.text(apns, &path, "live_activity_token");
        self.options(apns, &path, &["image", "analyticsLabel", "analytics_label"]);
    }
}

fn short(name: impl AsRef<str>) -> String {
    name.as_ref().chars().take(64).collect()
}
