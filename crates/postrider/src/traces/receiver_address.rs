//! Where spans are sent, and in which form.

use std::collections::BTreeMap;

use postrider_channels::accounts::SecretRef;
use serde::{Deserialize, Serialize};
use url::Url;

/// The forms of OTLP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SpanProtocol {
    /// Protocol Buffers over HTTP; usually port 4318.
    #[default]
    Http,
    /// gRPC; usually port 4317.
    Grpc,
}

impl std::fmt::Display for SpanProtocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Http => "http",
            Self::Grpc => "grpc",
        })
    }
}

/// A receiver of spans, as an exporter needs it.
#[derive(Debug, Clone)]
pub(crate) struct SpanReceiver {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) has_tls: bool,
    /// The authority and the path of a request.
    pub(super) authority: String,
    pub(super) path: String,
    pub(super) protocol: SpanProtocol,
    /// Names with values, which may be secret.
    pub(super) headers: Vec<(String, String)>,
}

impl SpanReceiver {
    /// Checks a URL; the error says what is allowed.
    pub(crate) fn check(text: &str) -> Result<Url, &'static str> {
        const ALLOWED: &str = "a URL such as http://127.0.0.1:4318";
        let url = Url::parse(text).map_err(|_| ALLOWED)?;
        let is_web = matches!(url.scheme(), "http" | "https") && url.host().is_some();
        let has_secret = !url.username().is_empty() || url.password().is_some();
        if !is_web || has_secret || url.query().is_some() || url.fragment().is_some() {
            return Err(ALLOWED);
        }
        Ok(url)
    }

    /// Reads the secret headers. Blocks.
    pub(crate) fn open(
        endpoint: &str,
        protocol: SpanProtocol,
        headers: &BTreeMap<String, SecretRef>,
    ) -> anyhow::Result<Self> {
        let url = Self::check(endpoint)
            .map_err(|allowed| anyhow::anyhow!("traces.endpoint: allowed: {allowed}"))?;
        let own = url.path().trim_end_matches('/');
        let path = match (protocol, own) {
            (SpanProtocol::Grpc, _) => {
                "/opentelemetry.proto.collector.trace.v1.TraceService/Export".to_owned()
            }
            (SpanProtocol::Http, "") => "/v1/traces".to_owned(),
            (SpanProtocol::Http, own) => own.to_owned(),
        };
        let read = |(name, secret): (&String, &SecretRef)| {
            let value =
                secret.read().map_err(|why| anyhow::anyhow!("traces.headers.{name}: {why}"))?;
            Ok((name.clone(), value.trim().to_owned()))
        };
        let host = url.host_str().unwrap_or_default();
        let port = url.port_or_known_default().unwrap_or(4318);
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            has_tls: url.scheme() == "https",
            authority: format!("{host}:{port}"),
            path,
            protocol,
            headers: headers.iter().map(read).collect::<anyhow::Result<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_without_a_path_gets_the_usual_one() {
        let open = |endpoint: &str, protocol| {
            let opened = SpanReceiver::open(endpoint, protocol, &BTreeMap::new()).unwrap();
            (opened.authority, opened.path)
        };
        let http = open("http://127.0.0.1:4318", SpanProtocol::Http);
        assert_eq!(http, ("127.0.0.1:4318".to_owned(), "/v1/traces".to_owned()));
        assert_eq!(
            open("https://x.example/otlp/v1/traces/", SpanProtocol::Http).1,
            "/otlp/v1/traces"
        );
        assert!(open("https://x.example", SpanProtocol::Grpc).1.ends_with("TraceService/Export"));
        for wrong in ["", "x", "ftp://x", "http://user:secret@x", "http://x/?key=1"] {
            assert!(SpanReceiver::check(wrong).is_err(), "{wrong}");
        }
    }
}
