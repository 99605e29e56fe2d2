//! The steps of the demo: the scripted cases, a crowd, a cancellation, a replay. Shows the states live.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::DemoArgs;
use super::cases::{self, DemoCase};
use super::services::DemoServices;
use crate::{SampleReceiver, ShownId};

pub(super) struct SentCase {
    pub(super) case: &'static DemoCase,
    pub(super) delivery: String,
}

pub(super) struct DemoRun<'a> {
    pub(super) services: &'a DemoServices,
    pub(super) cases: Vec<SentCase>,
    /// Every delivery id that a 202 named, and under which id its provider knows it.
    pub(super) accepted: HashMap<String, String>,
    pub(super) cancelled: Option<String>,
    pub(super) replayed: Option<String>,
    crowd: Vec<SampleReceiver>,
    deadline: Instant,
}

impl<'a> DemoRun<'a> {
    pub(super) fn new(services: &'a DemoServices, deadline: Instant) -> Self {
        Self {
            services,
            cases: Vec::new(),
            accepted: HashMap::new(),
            cancelled: None,
            replayed: None,
            crowd: Vec::new(),
            deadline,
        }
    }

    pub(super) async fn all_steps(&mut self, args: &DemoArgs) -> Result<()> {
        for case in cases::ALL {
            let delivery = self.send_case(case).await?;
            self.cases.push(SentCase { case, delivery });
        }
        self.cancel_tomorrow().await?;
        self.crowd(args).await?;
        self.watch().await?;
        self.replay().await?;
        self.watch().await
    }

    async fn send_case(&mut self, case: &DemoCase) -> Result<String> {
        let mut receiver = self.services.receiver(case.channel, Some(case.name), case.script)?;
        if let Some(Value::String(url)) = receiver.address.get_mut("url") {
            *url = url.replace(cases::HOST, case.host);
        }
        let message = json!({
            "to": {"address": receiver.address},
            "class": case.class,
            "ttl_s": case.ttl_s,
            "content": {"title": case.name, "body": case.what},
            "idempotency_key": format!("case-{}", case.name),
            "tags": ["case", case.name],
        });
        let answer = self.services.api.post("/v1/messages", &message).await?;
        let path = receiver.path();
        let known_as = match receiver.shown_id {
            ShownId::Delivery => None,
            ShownId::IdempotencyKey => message["idempotency_key"].as_str(),
            ShownId::Nothing => Some(&*path),
        };
        self.remember(&answer, known_as)
    }

    /// Notes a 202, and by which id the sandbox knows the delivery: its own, if there is no other.
    fn remember(&mut self, answer: &Value, known_as: Option<&str>) -> Result<String> {
        let delivery =
            answer["deliveries"][0]["id"].as_str().context("a 202 names its delivery")?;
        self.accepted.insert(delivery.to_owned(), known_as.unwrap_or(delivery).to_owned());
        Ok(delivery.to_owned())
    }

    /// Schedules a message for tomorrow and cancels it.
    async fn cancel_tomorrow(&mut self) -> Result<()> {
        let receiver = self.services.receiver("webhook", Some("tomorrow"), &["200"])?;
        let message = json!({
            "to": {"address": receiver.address},
            "class": "demo",
            "send_at": (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24)).to_string(),
            "content": {"title": "tomorrow"},
        });
        let answer = self.services.api.post("/v1/messages", &message).await?;
        let delivery = self.remember(&answer, None)?;
        let id = answer["id"].as_str().context("a 202 names its message")?;
        self.services.api.post(&format!("/v1/messages/{id}/cancel"), &json!({})).await?;
        self.cancelled = Some(delivery);
        Ok(())
    }

    /// Sends many messages at once, to receivers that fail by the profile.
    async fn crowd(&mut self, args: &DemoArgs) -> Result<()> {
        // Mostly one each, as subscribers are: an address that fails again and again is called rarely.
        for n in 0..args.messages.clamp(1, 2_000) {
            let channel = if n % 4 == 3 { "webhook" } else { "webpush" };
            self.crowd.push(self.services.receiver(channel, None, &[])?);
        }
        let lines = (0..args.messages).map(|n| format!("{}\n", self.order(n))).collect();
        let answers = self.services.batch(lines).await?;
        for line in answers.lines() {
            let answer: Value = serde_json::from_str(line)?;
            ensure!(answer["status"] == 202, "a message of the crowd was refused: {line}");
            self.remember(&answer, None)?;
        }
        let (count, sent) = (answers.lines().count(), args.messages);
        ensure!(count == sent, "the batch has {count} answers for {sent} lines");
        Ok(())
    }

    /// The n-th message of the crowd.
    fn order(&self, n: usize) -> Value {
        order(n, &self.crowd[n % self.crowd.len()])
    }

    /// Sends a few messages per second until the demo is stopped, one of them to another channel each time.
    pub(super) async fn go_on(&self, args: &DemoArgs) -> Result<()> {
        let mut others = Vec::new();
        for channel in self.services.other_channels() {
            others.push(self.services.receiver(channel, Some("regular"), &["200"])?);
        }
        let mut next = args.messages;
        for other in others.iter().cycle() {
            let some = 3 + next % 7;
            let mut lines: Vec<String> =
                (next..next + some).map(|n| self.order(n).to_string()).collect();
            next += some;
            lines.push(order(next, other).to_string());
            next += 1;
            self.services.batch(lines.join("\n")).await?;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    /// Shows the states live until every delivery has ended.
    async fn watch(&self) -> Result<()> {
        let style = ProgressStyle::with_template("{spinner} [{bar:32}] {pos}/{len} done   {msg}")?
            .progress_chars("━╸ ");
        let bar = ProgressBar::new(self.accepted.len() as u64).with_style(style);
        loop {
            let states = self.services.api.get("/v1/stats").await?["states"].clone();
            let n = |name: &str| states[name].as_u64().unwrap_or(0);
            let open = n("queued") + n("sending") + n("retrying") + n("parked");
            bar.set_position((self.accepted.len() as u64).saturating_sub(open));
            bar.set_message(format!(
                "sent {}  retrying {}  gone {}  expired {}  dead {}",
                n("sent"),
                n("retrying"),
                n("gone"),
                n("expired"),
                n("failed")
            ));
            if open == 0 {
                bar.finish();
                return Ok(());
            }
            if Instant::now() > self.deadline {
                bar.abandon();
                bail!("{open} deliveries have no end in time: {states}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The receiver is repaired: its dead letter is sent again.
    async fn replay(&mut self) -> Result<()> {
        let sent =
            self.cases.iter().find(|t| t.case.name == "malformed").context("the case to replay")?;
        let body = json!({"ids": [sent.delivery], "ttl_s": 600});
        let answer = self.services.api.post("/v1/dead-letters/replay", &body).await?;
        ensure!(answer["replayed"] == 1, "one dead letter was to be replayed: {answer}");
        self.replayed = Some(sent.delivery.clone());
        Ok(())
    }
}

fn order(n: usize, receiver: &SampleReceiver) -> Value {
    json!({
        "to": {"address": receiver.address},
        "class": "demo",
        "content": {
            "title": format!("Order {n}"),
            "body": "is on its way",
            // Text: the one kind of value that every provider takes.
            "data": {"order": n.to_string()},
        },
        "idempotency_key": format!("crowd-{n}"),
    })
}
