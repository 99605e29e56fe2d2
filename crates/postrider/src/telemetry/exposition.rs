//! The two texts of a scrape: OpenMetrics for those who ask for it, and the older Prometheus format for all others,
//! such as `curl` and `promtool`. They have the same samples and differ in how they describe counters.

/// The media type of OpenMetrics.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of the older format.
pub const CLASSIC: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a caller that sent this `Accept` header takes OpenMetrics.
pub fn takes_open_metrics(accept: Option<&str>) -> bool {
    accept.is_some_and(|accept| accept.contains("application/openmetrics-text"))
}

/// OpenMetrics text in the older format: there, a counter is described by the name of its samples, which ends with
/// `_total`, and there is no end mark.
pub(super) fn classic(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + 1024);
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
            continue;
        }
        let Some(typed) = line.strip_prefix("# TYPE ") else {
            if !line.starts_with('#') {
                text.push_str(line);
                text.push('\n');
            }
            continue;
        };
        let (name, kind) = typed.split_once(' ').unwrap_or((typed, "untyped"));
        let suffix = if kind == "counter" { "_total" } else { "" };
        let help = help.take().map_or("", |(_, help)| help);
        text.push_str(&format!("# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_described_by_the_name_of_its_samples() {
        let open = "# HELP a_calls Calls.\n# TYPE a_calls counter\na_calls_total{x=\"1\"} 3\n\
            # HELP a_size Size.\n# TYPE a_size gauge\n# UNIT a_size bytes\na_size 4\n# EOF\n";
        let expected = "# HELP a_calls_total Calls.\n# TYPE a_calls_total counter\n\
            a_calls_total{x=\"1\"} 3\n# HELP a_size Size.\n# TYPE a_size gauge\na_size 4\n";
        assert_eq!(classic(open), expected);
    }

    #[test]
    fn open_metrics_is_for_those_who_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2";
        assert!(takes_open_metrics(Some(prometheus)));
        assert!(!takes_open_metrics(Some("*/*")));
        assert!(!takes_open_metrics(None));
    }
}
