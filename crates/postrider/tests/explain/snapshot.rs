//! Snapshots of explanations, without the parts that differ from run to run.

pub(crate) fn check_snapshot(name: &str, text: &str) {
    let filters = vec![
        (r"(msg|dlv|adr|key)_[0-9a-z]{26}", "${1}_…"),
        (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "[time]"),
        (r"127\.0\.0\.1:\d+", "[sandbox]"),
        (r"\b[0-9a-f]{32}\b", "[hash]"),
        (r#""(latency_ms|ttl_left_s)": \d+"#, r#""$1": [n]"#),
        // What a provider seems to take is found by trying, from 4 on.
        (r#""provider_limit": \d+"#, r#""provider_limit": [n]"#),
        (r"\d+ of ([4-9]|\d\d+) calls under way", "[n] of [n] calls under way"),
        (r"; cut because \d+ of \d+ addresses refused, at \[time\]", ""),
        (r"answers slowed from \d+ to \d+ ms", "answers slowed from [n] to [n] ms"),
        (r"answers of its address take \d+ ms", "answers of its address take [n] ms"),
        (r", \d+ long ones (beside|among) them", ""),
        (r"could be opened \d+ times in a row", "could be opened [n] times in a row"),
        // Two addresses share a vote now and then: each folder has a hash of its own.
        (r"while \d+ others of the tenant", "while [n] others of the tenant"),
        (r"\d+ of \d+ of the tenant's addresses", "[n] of [n] of the tenant's addresses"),
        (r"\d+ retries left", "[n] retries left"),
        (r"seems to take [\d.]+ calls", "seems to take [n] calls"),
        (r"0 of \d calls under way", "0 of [n] calls under way"),
        (r"\d+ pending, \d+ in flight", "[n] pending, [n] in flight"),
        (r#""(pending|in_flight|provider_in_flight)": \d+"#, r#""$1": [n]"#),
        (
            r"(?m)^(\d+ +\[time\].*(?:retry|done|park|letter|gone|again|expire|drop)) +\d+ *",
            "$1  [n]  ",
        ),
        (r"(?m)(\S)   *", "$1  "),
        (r"(?m) +$", ""),
    ];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/explain/snapshots");
    insta::with_settings!({
        filters => filters, omit_expression => true, prepend_module_to_snapshot => false,
        snapshot_path => folder,
    }, {
        insta::assert_snapshot!(name, text);
    });
}
