//! `problems`: what is wrong, and what is done about it.

use super::prelude::*;

#[derive(Debug, Subcommand)]
pub(super) enum ProblemsCommand {
    /// List what is wrong, the worst first.
    List {
        /// unresolved, open, acknowledged, muted, resolved or all.
        #[arg(long, default_value = "unresolved")]
        state: String,
        /// Such as breaker_open.
        #[arg(long)]
        kind: Option<String>,
        /// notice, warning or critical: this and worse.
        #[arg(long)]
        severity: Option<String>,
        #[arg(long)]
        channel: Option<String>,
    },
    /// Show one problem: what it touches, what Postrider does about it, and what can be done.
    Show { id: String },
    /// Say that you take care of it. It stays open until its cause ends.
    Acknowledge { id: String },
    /// Take an acknowledgement back.
    Unacknowledge { id: String },
    /// Send no alerts about it for a while.
    Mute {
        id: String,
        /// For how long, in seconds; an hour if absent.
        #[arg(long, value_name = "SECONDS")]
        for_s: Option<u64>,
    },
    /// Send alerts about it again.
    Unmute { id: String },
}

pub(super) async fn run(command: ProblemsCommand, session: ServerSession) -> CliResult {
    let act = async |id: &str, action: &str, body: Value| {
        let path = format!("/v1/problems/{}/{action}", path_segment(id)?);
        session.post(&path, &body, detail).await
    };
    match command {
        ProblemsCommand::List { state, kind, severity, channel } => {
            let path = with_query(
                "/v1/problems",
                &[
                    ("state", Some(state)),
                    ("kind", kind),
                    ("severity", severity),
                    ("channel", channel),
                    ("limit", Some("1000".to_owned())),
                ],
            );
            session.get(&path, list).await
        }
        ProblemsCommand::Show { id } => {
            session.get(&format!("/v1/problems/{}", path_segment(&id)?), detail).await
        }
        ProblemsCommand::Acknowledge { id } => act(&id, "acknowledge", json!({})).await,
        ProblemsCommand::Unacknowledge { id } => act(&id, "unacknowledge", json!({})).await,
        ProblemsCommand::Mute { id, for_s } => act(&id, "mute", json!({"for_s": for_s})).await,
        ProblemsCommand::Unmute { id } => act(&id, "unmute", json!({})).await,
    }
}

fn list(listing: &Value) -> String {
    let problems = items(listing, "problems");
    if problems.is_empty() {
        return "nothing is wrong".to_owned();
    }
    let columns = [
        ("PROBLEM", "/id"),
        ("SEVERITY", "/severity"),
        ("STATE", "/state"),
        ("SINCE", "/since"),
        ("COUNT", "/count"),
        ("WHAT", "/what"),
    ];
    table(problems, &columns)
}

fn detail(problem: &Value) -> String {
    let text = |field: &str| cell(problem, field);
    let mut lines = vec![
        format!("{}: {} ({})", text("/id"), text("/title"), text("/severity")),
        text("/what"),
        String::new(),
        format!("state        {}", text("/state")),
        format!("since        {}", text("/since")),
        format!("count        {}, at most {}", text("/count"), text("/peak")),
    ];
    let tenants = items(problem, "tenants").iter();
    let tenants: Vec<_> = tenants.map(|tenant| cell(tenant, "/tenant")).collect();
    if !tenants.is_empty() {
        lines.push(format!("tenants      {}", tenants.join(", ")));
    }
    for (name, field) in [
        ("resolved", "/resolved_at"),
        ("acknowledged", "/acknowledged/at"),
        ("muted until", "/muted/until"),
        ("status page", "/status_page"),
    ] {
        if problem.pointer(field).is_some() {
            lines.push(format!("{name:<12} {}", text(field)));
        }
    }
    lines.extend([
        String::new(),
        format!("Postrider: {}", text("/doing")),
        format!("You can:   {}", text("/remedy")),
    ]);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_what_it_is_and_what_can_be_done() {
        let problem = json!({
            "id": "prb_1", "title": "A provider fails", "severity": "critical", "what": "https://a: it fails",
            "state": "muted", "since": "2026-11-18T06:00:00.000Z", "count": 3, "peak": 9,
            "tenants": [{"tenant": "acme", "count": 3}], "muted": {"until": "2026-11-18T07:00:00.000Z"},
            "doing": "Its deliveries wait.", "remedy": "Look at its status page.",
        });
        insta::assert_snapshot!(detail(&problem), @r"
        prb_1: A provider fails (critical)
        https://a: it fails

        state        muted
        since        2026-11-18T06:00:00.000Z
        count        3, at most 9
        tenants      acme
        muted until  2026-11-18T07:00:00.000Z

        Postrider: Its deliveries wait.
        You can:   Look at its status page.
        ");
        assert_eq!(list(&json!({"problems": []})), "nothing is wrong");
    }
}
