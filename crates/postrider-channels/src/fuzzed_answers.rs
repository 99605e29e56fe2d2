//! The readers of single providers' answers, called with changed answers: none may panic.

use http::{HeaderMap, StatusCode};

use crate::pool::Response;

/// Calls a reader with changed answers, under several statuses.
pub(crate) fn fuzz_answers(target: &str, seeds: &[&str], read: impl Fn(Response)) {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let seeds: Vec<_> = seeds.iter().map(|seed| seed.as_bytes()).collect();
    postrider_testkit::fuzz::fuzz(target, &corpus, &seeds, |bytes| {
        for status in [200u16, 202, 400, 401, 404, 410, 429, 500, 503] {
            let status = StatusCode::from_u16(status).unwrap();
            // The input stands for the body, and its start for each header that a reader looks at.
            let mut headers = HeaderMap::new();
            if let Ok(value) = http::HeaderValue::from_bytes(bytes.get(..64).unwrap_or(bytes)) {
                for name in
                    ["retry-after", "x-ratelimit-reset", "apns-id", "x-wns-error-description"]
                {
                    headers.insert(name, value.clone());
                }
            }
            read(Response {
                status,
                headers,
                body: bytes.to_vec().into(),
                credentials: Default::default(),
            });
        }
    });
}
