//! `events`: reads events, and subscribes webhooks to them.

use std::time::{Duration, Instant};

use http::Method;

use super::prelude::*;

/// How long `--follow` waits before it asks again.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  postrider events create --url https://example.com/events --type 'delivery.*' --type address.gone
  postrider events secrets evs_…                       with what the receiver verifies signatures
  postrider events test evs_…                          sends an event and says whether it was received
  postrider events read --follow --type delivery.failed
With an admin key and --tenant '*', a subscription is to the events of all tenants and of the server.")]
pub(super) enum EventsCommand {
    /// Print events, one JSON object per line, oldest first.
    Read {
        /// Behind this position; `start` for the oldest that is kept, or `now`.
        #[arg(long, default_value = "start", value_name = "POSITION")]
        after: String,
        /// Such as delivery.failed or delivery.*; can be repeated.
        #[arg(long = "type", value_name = "TYPE")]
        types: Vec<String>,
        #[arg(long)]
        channel: Option<String>,
        #[arg(long)]
        class: Option<String>,
        #[arg(long)]
        tag: Option<String>,
        /// Go on with new events.
        #[arg(long)]
        follow: bool,
    },
    /// List the subscriptions, and how far they are.
    List,
    /// Show one subscription.
    Show { id: String },
    /// Subscribe to events.
    Create {
        #[command(flatten)]
        subscription: SubscriptionArgs,
        /// From this position on; `start` for all that is kept.
        #[arg(long, value_name = "POSITION")]
        after: Option<String>,
    },
    /// Replace a subscription as a whole. One that was stopped goes on.
    Set {
        id: String,
        #[command(flatten)]
        subscription: SubscriptionArgs,
    },
    /// End a subscription.
    Delete { id: String },
    /// Send a test event, and say whether it was received.
    Test { id: String },
    /// Show the secrets with which the receiver verifies signatures.
    Secrets { id: String },
    /// Create a new secret. The old one signs beside it for a while.
    RotateSecret { id: String },
}

/// What a subscription consists of.
#[derive(Debug, Args)]
pub(super) struct SubscriptionArgs {
    /// The webhook that gets the events. Without it, they are only logged, to be read.
    #[arg(long)]
    url: Option<String>,
    /// For people.
    #[arg(long)]
    name: Option<String>,
    /// Such as delivery.failed or delivery.*; can be repeated. All if absent.
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only of these channels.
    #[arg(long = "channel")]
    channels: Vec<String>,
    /// Only of these classes.
    #[arg(long = "class")]
    classes: Vec<String>,
    /// Only of messages with one of these tags.
    #[arg(long = "tag")]
    tags: Vec<String>,
    /// Log events, and send them when it is set without this.
    #[arg(long)]
    paused: bool,
}

impl SubscriptionArgs {
    fn body(self) -> Value {
        json!({
            "name": self.name.unwrap_or_default(),
            "url": self.url,
            "events": {
                "types": self.types, "channels": self.channels, "classes": self.classes, "tags": self.tags,
            },
            "enabled": !self.paused,
        })
    }
}

const COLUMNS: [(&str, &str); 7] = [
    ("ID", "/id"),
    ("STATE", "/state"),
    ("NAME", "/name"),
    ("TYPES", "/events/types"),
    ("RECEIVED", "/received"),
    ("LAST", "/received_at"),
    ("URL", "/url"),
];

pub(super) async fn run(command: EventsCommand, session: ServerSession) -> CliResult {
    const ALL: &str = "/v1/event-subscriptions";
    let one = |id: &str| Ok::<_, CliError>(format!("{ALL}/{}", path_segment(id)?));
    match command {
        EventsCommand::Read { after, types, channel, class, tag, follow } => {
            let types = Some(types.join(",")).filter(|types| !types.is_empty());
            let filter = [("types", types), ("channel", channel), ("class", class), ("tag", tag)];
            read(&session.client, after, &filter, follow).await
        }
        EventsCommand::List => {
            session.get(ALL, |list| table(items(list, "subscriptions"), &COLUMNS)).await
        }
        EventsCommand::Show { id } => session.get(&one(&id)?, detail).await,
        EventsCommand::Create { subscription, after } => {
            let mut body = subscription.body();
            body["after"] = after.into();
            session.post(ALL, &body, detail).await
        }
        EventsCommand::Set { id, subscription } => {
            let body = subscription.body();
            let changed = session.client.json(Method::PUT, &one(&id)?, Some(&body)).await?;
            session.out.show(&changed, detail)
        }
        EventsCommand::Delete { id } => session.delete(&one(&id)?, "deleted", &id).await,
        EventsCommand::Test { id } => test(&one(&id)?, session).await,
        EventsCommand::Secrets { id } => {
            session.get(&format!("{}/secrets", one(&id)?), secrets).await
        }
        EventsCommand::RotateSecret { id } => {
            session.post(&format!("{}/secrets/rotate", one(&id)?), &json!({}), secrets).await
        }
    }
}

async fn read(
    client: &Client,
    mut after: String,
    filter: &[(&str, Option<String>)],
    follow: bool,
) -> CliResult {
    loop {
        let mut query = vec![("after", Some(after)), ("limit", Some("1000".to_owned()))];
        query.extend_from_slice(filter);
        let page = client.get(&with_query("/v1/events", &query)).await?;
        for event in items(&page, "events") {
            output::print(&event.to_string())?;
        }
        after = cell(&page, "/next");
        if page["has_more"] == true {
            continue;
        }
        if !follow {
            return Ok(());
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

async fn test(path: &str, session: ServerSession) -> CliResult {
    let ServerSession { client, out } = session;
    let mut tested = client.post(&format!("{path}/test"), &json!({})).await?;
    // Deliveries of events belong to a tenant that only an admin sees.
    let (own, delivery) = (cell(&tested, "/tenant"), cell(&tested, "/delivery"));
    let client = client.for_tenant(Some(own));
    let state = super::alerts::final_state(&client, &delivery, Instant::now()).await;
    let state = match state {
        Err(CliError::Client(ClientError::Refused(_))) => {
            "unknown: only an admin key sees the delivery".to_owned()
        }
        state => state?,
    };
    tested["state"] = state.clone().into();
    out.show(&tested, |tested| {
        format!("{} {}", cell(tested, "/delivery"), cell(tested, "/state"))
    })?;
    if state == "sent" || state.starts_with("unknown") { Ok(()) } else { Err(CliError::Silent) }
}

fn secrets(list: &Value) -> String {
    let columns = [("ID", "/id"), ("ACTIVE", "/active"), ("SECRET", "/secret")];
    table(items(list, "secrets"), &columns)
}

fn detail(subscription: &Value) -> String {
    let rows = [
        ("subscription", "/id"),
        ("name", "/name"),
        ("tenant", "/tenant"),
        ("url", "/url"),
        ("state", "/state"),
        ("types", "/events/types"),
        ("channels", "/events/channels"),
        ("classes", "/events/classes"),
        ("tags", "/events/tags"),
        ("received", "/received"),
        ("last received", "/received_at"),
        ("on its way", "/delivery"),
        ("failing since", "/failing_since"),
        ("stopped", "/stopped"),
    ];
    let shown = rows
        .iter()
        .filter(|(_, field)| subscription.pointer(field).is_some_and(|value| !value.is_null()));
    shown.map(|(name, field)| format!("{name:<14} {}\n", cell(subscription, field))).collect()
}
