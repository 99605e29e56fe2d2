//! What can be ordered about a problem: its lanes with what holds each, their breaker by force, and a replay of its
//! dead letters. Acknowledging and muting are in `problem_pages.rs`.

use maud::{Markup, html};
use serde_json::{Value, json};

use super::action_form::button;
use super::api_calls::{PageCallResult, RefusedCall};
use super::cookies::ActionNotice;
use super::job_plan::JobWish;
use super::json_read::JsonRead as _;
use super::lanes_page::lane_rows;
use super::page_context::PageContext;
use super::problem_pages::encoded;
use super::problem_samples::ProblemPlace;
use super::words::provider;
use crate::keys::KeyScope;

/// Lanes that the page shows: those that are held before others.
const SHOWN: usize = 12;
const READ: &str = "200";
/// What a breaker can be forced to, with words for its button and for afterwards.
const FORCES: [(&str, &str, &str); 3] = [
    ("open", "Send nothing", "Nothing is sent there until you take it back."),
    (
        "closed",
        "Send anyway",
        "Everything is sent there, whatever the failures, until you take it back.",
    ),
    ("auto", "By the failures", "The breaker decides by the failures again."),
];

/// The lanes of a problem's place, with what was not shown of them.
pub(super) struct ProblemLanes {
    lanes: Vec<Value>,
    more: bool,
}

/// A problem of the whole server has all lanes.
pub(super) async fn lanes(page: &PageContext, problem: &Value) -> PageCallResult<ProblemLanes> {
    let place = ProblemPlace::of(problem);
    let query = [("channel", place.channel), ("provider", place.provider), ("limit", Some(READ))];
    let found = page.calls.get_with("/v1/lanes", &query).await?;
    let mut lanes = found.list("lanes").to_vec();
    // The most pending first, as the API answers.
    lanes.sort_by_key(|lane| lane.text("state") == "ready");
    let more = found.has("has_more") || lanes.len() > SHOWN;
    lanes.truncate(SHOWN);
    Ok(ProblemLanes { lanes, more })
}

pub(super) fn lanes_part(page: &PageContext, problem: &Value, found: &ProblemLanes) -> Markup {
    let place = ProblemPlace::of(problem);
    let all: Vec<&Value> = found.lanes.iter().collect();
    let link = page.link_with("/lanes", &place.of_lanes());
    html! {
        h2 { "Lanes" span.count { (all.len()) @if found.more { "+" } } a.more href=(link) { "All of them" } }
        @if all.is_empty() { p.quiet { "Nothing is pending there, and no lane is paused." } }
        @else { (lane_rows(page, &all)) }
    }
}

/// Buttons that change something for many: each after a second click.
pub(super) fn orders(page: &PageContext, problem: &Value, found: &ProblemLanes) -> Markup {
    let is_resolved = problem.text("state") == "resolved";
    html! {
        @if problem.has("channel") {
            @if !is_resolved { (breaker(page, problem, found)) }
            (replay(page, problem))
        }
    }
}

fn breaker(page: &PageContext, problem: &Value, found: &ProblemLanes) -> Markup {
    let Some(lane) = found.lanes.first() else { return html! {} };
    let place = ProblemPlace::of(problem);
    let of = match place.account {
        Some(_) => format!(
            "every account of {} that lane {} can use",
            lane.text("channel"),
            lane.number("id")
        ),
        None => format!("all lanes of {}", provider(lane.text("provider"))),
    };
    let to = page.link(&format!("/problems/{}/breaker", problem.text("id")));
    let id = lane.number("id").to_string();
    html! {
        details.confirm {
            summary.button { "Force the breaker …" }
            div.stack {
                p { "Of " (of) ", for all tenants, until you take it back. “Send anyway” also ends a wait that the provider asked for." }
                div.actions {
                    @for (force, label, _) in FORCES {
                        (button(page, &to, label, KeyScope::Admin, &[("force", force), ("lane", &id)]))
                    }
                }
            }
        }
    }
}

/// A job is of one tenant: the one that is looked at, or each that the problem names.
fn replay(page: &PageContext, problem: &Value) -> Markup {
    let filter = ProblemPlace::of(problem).of_deliveries();
    let link = |tenant: Option<&str>| JobWish::new("replay", tenant, &filter).link(page);
    let named = problem.list("tenants").iter().map(|tenant| tenant.text("tenant"));
    let named: Vec<&str> = page.one_tenant().map_or_else(|| named.collect(), |own| vec![own]);
    html! {
        @match named.as_slice() {
            [] | [_] => a.button href=(link(named.first().copied())) { "Replay its dead letters …" },
            several => details.confirm {
                summary.button { "Replay its dead letters …" }
                div.stack {
                    p { "Of which tenant? You see how many there are before anything happens." }
                    div.actions { @for name in several { a.chip href=(link(Some(name))) { (name) } } }
                }
            }
        }
    }
}

/// Forces the breaker of a lane.
pub(super) async fn force(
    page: &PageContext,
    problem: &str,
    lane: Option<&str>,
    force: Option<&str>,
) -> PageCallResult<ActionNotice> {
    let chosen = FORCES.iter().find(|(name, ..)| Some(*name) == force).zip(lane);
    let Some(((force, _, text), lane)) = chosen else {
        return Err(RefusedCall::new(
            422,
            "Not an order",
            "Say which lane, and open, closed or auto.",
        ));
    };
    let path = format!("/v1/lanes/{}/breaker", encoded(lane));
    page.calls.post(&path, &json!({"force": force})).await?;
    let path = format!("/problems/{problem}/breaker-auto");
    let undo = (*force != "auto").then(|| page.link_with(&path, &[("lane", lane)]));
    Ok(ActionNotice { text: (*text).to_owned(), is_bad: false, undo })
}
