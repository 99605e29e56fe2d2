//! What happens, told to an open page once per second: a few numbers, and the names of the parts that changed.

use std::collections::hash_map::DefaultHasher;
use std::convert::Infallible;
use std::hash::{Hash as _, Hasher as _};
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::json;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::api_calls::RefusedCall;
use super::json_read::JsonRead as _;
use super::page_context::PageContext;
use super::refusal_page::{PageResult, refusing};
use crate::api::OpenPermit;
use crate::keys::KeyEnd;

const TICK: Duration = Duration::from_secs(1);
/// A page fetches its chart at least so often, in ticks.
const CHART_EVERY: u64 = 30;
/// Problems and lanes are looked at so often, in ticks.
const LOOK_EVERY: u64 = 2;

/// One open page.
struct LiveFollower {
    page: PageContext,
    key_end: KeyEnd,
    ticks: Interval,
    count: u64,
    /// By part: what it looked like.
    seen: [u64; PARTS.len()],
    _place: OpenPermit,
}

/// Parts of pages that change, in the order of [`LiveFollower::seen`].
const PARTS: [&str; 7] = ["numbers", "dead", "problems", "lanes", "deliveries", "jobs", "notes"];

pub(super) async fn follow(page: PageContext) -> PageResult {
    let max = page.app.config().server.key_event_streams_max.max(1);
    let Some(place) = page.caller.gate.streams.take(max) else {
        let detail = "this key has as many event streams as server.key_event_streams_max allows";
        return Err(refusing(&page)(RefusedCall::new(429, "Too many pages are open", detail)));
    };
    let key_end = page.app.keys.end_of(&page.caller);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let seen = [0; PARTS.len()];
    let follower = LiveFollower { page, key_end, ticks, count: 0, seen, _place: place };
    let events = stream::unfold(follower, |mut follower| async {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    let answer: Response = Sse::new(events).keep_alive(KeepAlive::default()).into_response();
    Ok(answer)
}

impl LiveFollower {
    /// `None` when the key ends, the session ends or the server shuts down.
    async fn next(&mut self) -> Option<Event> {
        let app = self.page.app.clone();
        let keys = &app.keys;
        tokio::select! {
            biased;
            _ = self.key_end.wait(keys) => return None,
            () = app.wait_for_drain() => return None,
            _ = self.ticks.tick() => {}
        }
        let changed = self.changes().await?;
        self.count += 1;
        let at = app.clock.now().to_string();
        let data = json!({"at": at, "changed": changed}).to_string();
        Some(Event::default().event("tick").data(data))
    }

    /// The parts that changed; `None` if the session ended.
    async fn changes(&mut self) -> Option<Vec<&'static str>> {
        let calls = &self.page.calls;
        let mut now = self.seen;
        let stats = calls.get("/v1/stats").await;
        if stats.as_ref().is_err_and(|refused| matches!(refused.status, 401 | 403)) {
            return None;
        }
        if let Ok(stats) = stats {
            let states = stats.at("states").to_string();
            now[0] =
                hash(&[&states, &stats.at("totals").to_string(), &stats.at("rates").to_string()]);
            now[1] = hash(&[&stats.at("dead_letters").to_string()]);
            now[4] = hash(&[&states, &stats.at("totals.attempts").to_string()]);
        }
        if let Ok(jobs) = calls.get_with("/v1/jobs", &[("limit", Some("20"))]).await {
            now[5] = hash(&[&jobs.to_string()]);
        }
        if self.count.is_multiple_of(LOOK_EVERY) {
            if let Ok(notes) = calls.get("/v1/notes").await {
                now[6] = hash(&[&notes.to_string()]);
            }
            if let Ok(problems) = calls.get("/v1/problems").await {
                now[2] = hash(&[&problems.to_string()]);
            }
            if let Ok(lanes) = calls.get("/v1/lanes").await {
                now[3] = hash(&[&lanes.to_string()]);
            }
        }
        let mut changed: Vec<&str> = PARTS
            .into_iter()
            .zip(self.seen.iter().zip(&now))
            // At the first look all of them: the page may be older than the look.
            .filter(|(_, (before, now))| before != now)
            .map(|(name, _)| name)
            .collect();
        self.seen = now;
        if changed.contains(&"deliveries") {
            changed.push("delivery");
        }
        if self.count > 0 && self.count.is_multiple_of(CHART_EVERY) {
            changed.extend(["attempts", "histogram"]);
        }
        Some(changed)
    }
}

fn hash(texts: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    texts.hash(&mut hasher);
    hasher.finish().max(1)
}
