//! `send`: one message from options, or a file of messages as a batch.

use std::path::{Path, PathBuf};

use bytes::BytesMut;
use clap::Args;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value, json};
use tokio::io::AsyncReadExt as _;

use super::output::{cell, items};
use super::templates::TemplateVariableArgs;
use super::{CliError, CliResult, ConnectionArgs, output};
use crate::client::{Client, ClientError, ProblemResponse};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  postrider send --webhook https://example.com/hook --title Shipped --body 'Order 91'
  postrider send --recipient u-42 --class otp --body 'Your code is 123456' --ttl 120
  postrider send --email ada@example.org --title Shipped --body 'Order 91 is on its way'
  postrider send --fcm TOKEN --title Shipped --body 'Order 91'
  postrider send --apns TOKEN --topic com.example.app --title Shipped
  postrider send --sms +4915112345678 --class otp --body 'Your code is 123456'
  postrider send --email ada@example.org --template shipped --locale de --var order.number=91
  postrider send --address adr_… --data '{\"order\":91}' --idempotency-key ord-91:shipped
  postrider send --json-message '{\"to\":…,\"content\":…}'
  postrider send --file messages.ndjson")]
pub(super) struct SendArgs {
    /// To a webhook's URL.
    #[arg(long, value_name = "URL", group = "to")]
    webhook: Option<String>,
    /// To an e-mail address; --title is its subject.
    #[arg(long, value_name = "ADDRESS", group = "to")]
    email: Option<String>,
    /// To a device by its FCM registration token.
    #[arg(long, value_name = "TOKEN", group = "to")]
    fcm: Option<String>,
    /// To an Apple device by its token, with --topic.
    #[arg(long, value_name = "TOKEN", group = "to", requires = "topic")]
    apns: Option<String>,
    /// The app's bundle id, for --apns.
    #[arg(long, value_name = "BUNDLE", requires = "apns")]
    topic: Option<String>,
    /// Where the Apple device was registered: production or sandbox; found out if not given.
    #[arg(long, value_name = "PLACE", requires = "apns")]
    environment: Option<String>,
    /// To a phone, e.g. +4915112345678
    #[arg(long, value_name = "PHONE", group = "to")]
    sms: Option<String>,
    /// To the incoming webhook of Slack, Discord or Teams.
    #[arg(long, value_name = "URL", group = "to")]
    chat: Option<String>,
    /// To a registered address, adr_…, or an inline one as JSON.
    #[arg(long, value_name = "ADDRESS", group = "to")]
    address: Option<String>,
    /// To all addresses of a recipient.
    #[arg(long, group = "to")]
    recipient: Option<String>,
    /// The whole message as JSON.
    #[arg(long, value_name = "JSON", group = "to")]
    json_message: Option<String>,
    /// Many messages: a file of NDJSON, or - for standard input.
    #[arg(long, value_name = "FILE", group = "to")]
    file: Option<PathBuf>,
    #[arg(long)]
    title: Option<String>,
    #[arg(long)]
    body: Option<String>,
    #[arg(long)]
    url: Option<String>,
    /// Any JSON.
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// Words from a template, with --locale, --var and --vars; --title and the like win over it.
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    #[command(flatten)]
    wish: TemplateVariableArgs,
    #[arg(long)]
    class: Option<String>,
    /// Seconds; 0 means now or never.
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<u32>,
    /// Not before this, e.g. 2026-11-15T06:00:00Z
    #[arg(long, value_name = "TIME")]
    send_at: Option<String>,
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[arg(long, value_name = "KEY")]
    collapse_key: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

pub(super) async fn run(args: SendArgs) -> CliResult {
    let client = args.connection.client()?;
    if let Some(file) = &args.file {
        return batch(&client, file, args.connection.json).await;
    }
    let answer = client.post("/v1/messages", &message(&args)?).await?;
    args.connection.output().show(&answer, |answer| {
        let known = if answer["duplicate"] == true { " (seen before)" } else { "" };
        let mut text = format!("{}{known}", cell(answer, "/id"));
        for delivery in items(answer, "deliveries") {
            text += &format!("\n{} {}", cell(delivery, "/id"), cell(delivery, "/state"));
        }
        text
    })
}

fn message(args: &SendArgs) -> Result<Value, CliError> {
    if let Some(text) = &args.json_message {
        return from_json("--json-message", text);
    }
    let to = if let Some(url) = &args.webhook {
        json!({"address": {"channel": "webhook", "url": url}})
    } else if let Some(email) = &args.email {
        json!({"address": {"channel": "email", "email": email}})
    } else if let Some(token) = &args.fcm {
        json!({"address": {"channel": "fcm", "token": token}})
    } else if let Some(token) = &args.apns {
        let mut address = json!({"channel": "apns", "token": token, "topic": args.topic});
        if let Some(environment) = &args.environment {
            address["environment"] = environment.clone().into();
        }
        json!({ "address": address })
    } else if let Some(phone) = &args.sms {
        json!({"address": {"channel": "sms", "phone": phone}})
    } else if let Some(url) = &args.chat {
        json!({"address": {"channel": "chat", "url": url}})
    } else if let Some(address) = &args.address {
        let inline = address.trim_start().starts_with('{');
        json!({"address": if inline { from_json("--address", address)? } else { json!(address) }})
    } else if let Some(recipient) = &args.recipient {
        json!({"recipient": recipient})
    } else {
        let whom = "say to whom: --webhook, --fcm, --apns, --email, --sms, --chat, --address, --recipient, --json-message or --file";
        return Err(CliError::Usage(whom.to_owned()));
    };
    let mut content = Map::new();
    for (name, value) in [("title", &args.title), ("body", &args.body), ("url", &args.url)] {
        content.extend(value.clone().map(|v| (name.to_owned(), v.into())));
    }
    if let Some(data) = &args.data {
        content.insert("data".to_owned(), from_json("--data", data)?);
    }
    let mut message = json!({"to": to, "content": content});
    match &args.template {
        Some(name) => {
            let mut template = args.wish.fields()?;
            template.insert("name".to_owned(), name.clone().into());
            message["template"] = Value::Object(template);
        }
        None if !args.wish.is_empty() => {
            let usage = "--locale, --var and --vars fill in a template: name it with --template";
            return Err(CliError::Usage(usage.to_owned()));
        }
        None => {}
    }
    let texts = [
        ("class", &args.class),
        ("send_at", &args.send_at),
        ("idempotency_key", &args.idempotency_key),
        ("collapse_key", &args.collapse_key),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            message[name] = value.clone().into();
        }
    }
    if let Some(ttl) = args.ttl {
        message["ttl_s"] = ttl.into();
    }
    Ok(message)
}

fn from_json(option: &str, text: &str) -> Result<Value, CliError> {
    serde_json::from_str(text).map_err(|e| CliError::Usage(format!("{option} is not JSON: {e}")))
}

/// Streams a file to the batch call; prints refused lines, or with `json` every result.
async fn batch(client: &Client, file: &Path, json: bool) -> CliResult {
    let from_stdin = file == Path::new("-");
    let size = if from_stdin { 0 } else { std::fs::metadata(file)?.len() };
    let bar = ProgressBar::new(size);
    if let Ok(style) =
        ProgressStyle::with_template("{spinner} {bar:30} {bytes}/{total_bytes} {msg} ({elapsed})")
    {
        bar.set_style(style);
    }
    let path = if from_stdin { Path::new("/dev/stdin") } else { file };
    let source = tokio::fs::File::open(path).await?;
    let chunks = futures_util::stream::unfold((source, bar.clone()), |(mut source, bar)| async {
        let mut buffer = BytesMut::with_capacity(64 * 1024);
        match source.read_buf(&mut buffer).await {
            Ok(0) => None,
            Ok(n) => {
                bar.inc(n as u64);
                Some((Ok(hyper::body::Frame::data(buffer.freeze())), (source, bar)))
            }
            Err(error) => Some((Err(error), (source, bar))),
        }
    });
    let body = http_body_util::BodyExt::boxed(StreamBody::new(chunks));
    let path = "/v1/messages/batch";
    let response = client.send(http::Method::POST, path, "application/x-ndjson", body).await?;
    let (parts, body) = response.into_parts();
    if !parts.status.is_success() {
        let bytes = body.collect().await.map_err(broken)?.to_bytes();
        let problem = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let refused = ProblemResponse { status: parts.status.as_u16(), problem };
        return Err(ClientError::Refused(Box::new(refused)).into());
    }
    let tally = read_results(body, &bar, json).await?;
    bar.finish_and_clear();
    if !json {
        output::print(&format!("{} accepted, {} refused", tally.accepted, tally.refused))?;
    }
    if tally.refused > 0 { Err(CliError::Silent) } else { Ok(()) }
}

#[derive(Default)]
struct Tally {
    accepted: u64,
    refused: u64,
}

async fn read_results(
    body: hyper::body::Incoming,
    bar: &ProgressBar,
    json: bool,
) -> Result<Tally, CliError> {
    let mut tally = Tally::default();
    let mut stream = body.into_data_stream();
    let mut begun = Vec::new();
    while let Some(chunk) = stream.next().await {
        begun.extend_from_slice(&chunk.map_err(broken)?);
        let Some(end) = memchr::memrchr(b'\n', &begun) else { continue };
        let rest = begun.split_off(end + 1);
        for line in begun.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
            result(line, &mut tally, bar, json)?;
        }
        begun = rest;
        bar.set_message(format!("{} accepted, {} refused", tally.accepted, tally.refused));
    }
    Ok(tally)
}

fn result(line: &[u8], tally: &mut Tally, bar: &ProgressBar, json: bool) -> CliResult {
    let text = String::from_utf8_lossy(line);
    let value: Value =
        serde_json::from_slice(line).map_err(|e| ClientError::Unexpected(e.to_string()))?;
    let accepted = value["status"] == 202;
    tally.accepted += u64::from(accepted);
    tally.refused += u64::from(!accepted);
    if json {
        return output::print(&text);
    }
    if !accepted {
        let why = cell(&value, "/error/detail");
        // People count from one.
        let number = value["index"].as_u64().map_or(0, |index| index + 1);
        bar.suspend(|| eprintln!("message {number}: {} {why}", value["status"]));
    }
    Ok(())
}

fn broken(error: hyper::Error) -> ClientError {
    ClientError::Broken(error.to_string())
}
