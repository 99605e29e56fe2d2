//! `alerts`: the routes that problems are told by, and a test of them.

use std::time::{Duration, Instant};

use super::prelude::*;

/// How long a test waits for its alerts to be sent.
const WAIT: Duration = Duration::from_secs(20);

#[derive(Debug, Subcommand)]
pub(super) enum AlertsCommand {
    /// List the routes (admin key).
    List,
    /// Send a test alert through every route, and say whether each was sent.
    Test {
        /// Only through this route.
        #[arg(long, value_name = "NAME")]
        route: Option<String>,
    },
}

pub(super) async fn run(command: AlertsCommand, session: ServerSession) -> CliResult {
    match command {
        AlertsCommand::List => {
            let columns = [
                ("ROUTE", "/name"),
                ("KIND", "/kind"),
                ("SEVERITY", "/severity"),
                ("BACKUP", "/backup"),
                ("ONLY A BACKUP", "/is_backup"),
            ];
            let text = |list: &Value| match items(list, "routes") {
                [] => "no route: add [alerts.routes.NAME] to the configuration".to_owned(),
                routes => table(routes, &columns),
            };
            session.get("/v1/alerts", text).await
        }
        AlertsCommand::Test { route } => test(route, session).await,
    }
}

async fn test(route: Option<String>, session: ServerSession) -> CliResult {
    let ServerSession { client, out } = session;
    let body = route.map_or_else(|| json!({}), |route| json!({"route": route}));
    let mut sent = client.post("/v1/alerts/test", &body).await?;
    let routes = client.get("/v1/alerts").await?;
    let client = client.for_tenant(Some(cell(&routes, "/tenant")));
    let begin = Instant::now();
    for alert in sent["alerts"].as_array_mut().into_iter().flatten() {
        alert["state"] = match alert["delivery"].as_str() {
            Some(id) => final_state(&client, id, begin).await?.into(),
            None => "refused".into(),
        };
    }
    let columns =
        [("ROUTE", "/route"), ("KIND", "/kind"), ("STATE", "/state"), ("REFUSED", "/refused")];
    out.show(&sent, |sent| table(items(sent, "alerts"), &columns))?;
    let is_sent = |alert: &Value| alert["state"] == "sent" || alert["state"] == "delivered";
    match items(&sent, "alerts").iter().all(is_sent) {
        true => Ok(()),
        false => Err(CliError::Silent),
    }
}

/// Waits until the delivery is final, for a while.
pub(super) async fn final_state(
    client: &Client,
    id: &str,
    begin: Instant,
) -> Result<String, CliError> {
    loop {
        let found = client.get(&format!("/v1/deliveries/{}", path_segment(id)?)).await?;
        let state = cell(&found, "/state");
        let is_pending = ["queued", "sending", "retrying", "parked"].contains(&state.as_str());
        if !is_pending || begin.elapsed() >= WAIT {
            return Ok(state);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
