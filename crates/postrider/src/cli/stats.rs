//! `stats history`: counts and latencies by minute or hour.

use super::prelude::*;

#[derive(Debug, Subcommand)]
pub(super) enum StatsCommand {
    /// Counts and latencies by minute or hour.
    #[command(after_help = "Examples:
  postrider stats history                                     the last hour by minute
  postrider stats history --resolution hour --by provider,outcome
  postrider stats history --kind deliveries --channel email --from 2026-11-15T06:00:00Z --json")]
    History(HistoryArgs),
}

#[derive(Debug, Args)]
pub(super) struct HistoryArgs {
    /// minute or hour.
    #[arg(long, default_value = "minute")]
    resolution: String,
    /// The begin, such as 2026-11-15T06:00:00Z. Default: an hour ago, or a day ago for hours.
    #[arg(long)]
    from: Option<String>,
    /// The end. Default: now.
    #[arg(long)]
    until: Option<String>,
    /// attempts, deliveries, held or overhead.
    #[arg(long, default_value = "attempts")]
    kind: String,
    #[arg(long)]
    channel: Option<String>,
    #[arg(long)]
    provider: Option<String>,
    #[arg(long)]
    class: Option<String>,
    #[arg(long)]
    outcome: Option<String>,
    /// What rows are told apart by: channel, provider, class, tenant, outcome, with commas between.
    #[arg(long, default_value = "channel,outcome")]
    by: String,
}

pub(super) async fn run(command: StatsCommand, session: ServerSession) -> CliResult {
    let StatsCommand::History(args) = command;
    let path = with_query(
        "/v1/stats/history",
        &[
            ("resolution", Some(args.resolution)),
            ("from", args.from),
            ("until", args.until),
            ("kind", Some(args.kind)),
            ("channel", args.channel),
            ("provider", args.provider),
            ("class", args.class),
            ("outcome", args.outcome),
            ("by", Some(args.by)),
        ],
    );
    session.get(&path, text).await
}

fn text(history: &Value) -> String {
    let mut rows = Vec::new();
    for point in items(history, "points") {
        for row in items(point, "rows") {
            let mut row = row.clone();
            row["at"] = point["at"].clone();
            rows.push(row);
        }
    }
    const GROUPS: [(&str, &str); 5] = [
        ("CHANNEL", "/channel"),
        ("PROVIDER", "/provider"),
        ("CLASS", "/class"),
        ("TENANT", "/tenant"),
        ("OUTCOME", "/outcome"),
    ];
    let is_told = |(_, field): &&(&str, &str)| rows.iter().any(|row| row.pointer(field).is_some());
    let told = GROUPS.iter().filter(is_told).copied();
    let figures = [
        ("COUNT", "/count"),
        ("REPEATS", "/repeats"),
        ("P50 MS", "/p50_ms"),
        ("P95 MS", "/p95_ms"),
        ("P99 MS", "/p99_ms"),
    ];
    let columns: Vec<_> = [("BEGAN", "/at")].into_iter().chain(told).chain(figures).collect();
    table(&rows, &columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_the_columns_that_rows_are_told_apart_by() {
        let history = json!({"points": [{"at": "2026-11-18T06:00:00.000Z", "rows": [
            {"kind": "attempts", "outcome": "accepted", "count": 12, "repeats": 1, "p50_ms": 25, "p95_ms": 50, "p99_ms": 50},
        ]}]});
        insta::assert_snapshot!(text(&history), @r"
        BEGAN                     OUTCOME   COUNT  REPEATS  P50 MS  P95 MS  P99 MS
        2026-11-18T06:00:00.000Z  accepted  12     1        25      50      50
        ");
    }
}
