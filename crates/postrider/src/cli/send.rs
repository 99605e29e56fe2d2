//! `send`: one message from options, or a file of messages as a batch.

use std::path::{Path, PathBuf};

use bytes::BytesMut;
use clap::{Arg, ArgMatches, Command, FromArgMatches};
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, StreamBody};
use indicatif::{ProgressBar, ProgressStyle};
use postrider_channels::definition::SendOption;
use postrider_channels::registry;
use tokio::io::AsyncReadExt as _;

use super::prelude::*;
use super::templates::TemplateVariableArgs;
use crate::client::complete;

#[derive(Debug, Args)]
#[command(after_help = examples())]
pub(super) struct SendArgs {
    #[command(flatten)]
    to_channel: ChannelOptions,
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

/// The options of the channels, and their names.
fn send_options() -> impl Iterator<Item = (&'static str, SendOption)> {
    registry::all()
        .filter_map(|channel| Some((channel.section().name, channel.facts().send_option?)))
}

fn examples() -> String {
    let of_channels = send_options().filter_map(|(_, option)| option.example);
    let others = [
        "--recipient u-42 --class otp --body 'Your code is 123456' --ttl 120",
        "--email ada@example.org --template shipped --locale de --var order.number=91",
        "--address adr_… --data '{\"order\":91}' --idempotency-key ord-91:shipped",
        "--json-message '{\"to\":…,\"content\":…}'",
        "--file messages.ndjson",
    ];
    let lines = of_channels.chain(others).map(|example| format!("\n  postrider send {example}"));
    std::iter::once("Examples:".to_owned()).chain(lines).collect()
}

/// One option per channel, and the address that they make together.
#[derive(Debug)]
struct ChannelOptions {
    address: Option<Map<String, Value>>,
}

impl Args for ChannelOptions {
    fn augment_args(command: Command) -> Command {
        send_options().fold(command, |command, (channel, option)| {
            let main = Arg::new(channel)
                .long(channel)
                .value_name(option.value_name)
                .help(option.help)
                .group("to");
            let required = option.more.iter().filter(|field| field.is_required);
            let main = required.fold(main, |main, field| main.requires(field.name));
            option.more.iter().fold(command.arg(main), |command, field| {
                let more = Arg::new(field.name).long(field.name).value_name(field.value_name);
                command.arg(more.help(field.help).requires(channel))
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ChannelOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let value = |name: &str| matches.get_one::<String>(name).cloned();
        let address = send_options().find_map(|(channel, option)| {
            let mut address = Map::from_iter([("channel".to_owned(), channel.into())]);
            address.insert(option.field.to_owned(), value(channel)?.into());
            for field in option.more {
                address.extend(value(field.name).map(|text| (field.name.to_owned(), text.into())));
            }
            Some(address)
        });
        Ok(Self { address })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

pub(super) async fn run(args: SendArgs) -> CliResult {
    let session = args.connection.session()?;
    if let Some(file) = &args.file {
        return batch(&session, file).await;
    }
    let text = |answer: &Value| {
        let known = if answer["duplicate"] == true { " (seen before)" } else { "" };
        let mut text = format!("{}{known}", cell(answer, "/id"));
        for delivery in items(answer, "deliveries") {
            text += &format!("\n{} {}", cell(delivery, "/id"), cell(delivery, "/state"));
        }
        text
    };
    session.post("/v1/messages", &message(&args)?, text).await
}

fn message(args: &SendArgs) -> Result<Value, CliError> {
    if let Some(text) = &args.json_message {
        return from_json("--json-message", text);
    }
    let to = if let Some(address) = &args.to_channel.address {
        json!({ "address": address })
    } else if let Some(address) = &args.address {
        let inline = address.trim_start().starts_with('{');
        json!({"address": if inline { from_json("--address", address)? } else { json!(address) }})
    } else if let Some(recipient) = &args.recipient {
        json!({"recipient": recipient})
    } else {
        let channels: String =
            send_options().map(|(channel, _)| format!("--{channel}, ")).collect();
        return Err(CliError::Usage(format!(
            "say to whom: {channels}--address, --recipient, --json-message or --file"
        )));
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
async fn batch(session: &ServerSession, file: &Path) -> CliResult {
    let json = session.out.json;
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
    let call = session.client.send(http::Method::POST, path, "application/x-ndjson", body);
    let response = call.await?;
    if !response.status().is_success() {
        return Ok(complete(response).await.map(drop)?);
    }
    let tally = read_results(response.into_body(), &bar, json).await?;
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
        begun.extend_from_slice(&chunk.map_err(|e| ClientError::Broken(e.to_string()))?);
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
        let why = super::output::harmless(&why);
        bar.suspend(|| eprintln!("message {number}: {} {why}", value["status"]));
    }
    Ok(())
}
