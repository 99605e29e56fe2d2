//! What chat services answer to an incoming webhook. Its URL is address and credential in one, so
//! that a refused credential means that the address is gone.

use super::built_in::{ANY, Block, RETRY, is, says};
use super::row::Verdict;
use crate::model::outcome::Scope;

pub(super) fn blocks() -> [Block; 4] {
    [any(), slack(), discord(), teams()]
}

/// Any chat service; the others fall back to these rows.
fn any() -> Block {
    use Verdict::*;
    let rows = vec![
        (200, 299, ANY, Accepted),
        (300, 399, ANY, RETRY),
        (400, 499, ANY, DropMessage),
        (404, 404, ANY, Gone),
        (408, 408, ANY, RETRY),
        (410, 410, ANY, Gone),
        (429, 429, ANY, Verdict::wait(Scope::Target, 60)),
        (500, 599, ANY, RETRY),
    ];
    ("chat", rows)
}

/// The code is the body's word.
fn slack() -> Block {
    use Verdict::*;
    let mut rows = vec![(500, 500, is("rollup_error"), RETRY)];
    let message = ["invalid_payload", "no_text", "invalid_blocks", "too_many_attachments"];
    rows.extend(message.map(|code| (400, 400, is(code), DropMessage)));
    rows.push((403, 403, is("action_prohibited"), DropMessage));
    rows.push((403, 403, is("posting_to_general_channel_denied"), DropMessage));
    let gone = ["no_service", "no_team", "team_disabled", "channel_not_found", "invalid_token"];
    rows.extend(gone.map(|code| (400, 410, is(code), Gone)));
    rows.extend(["user_not_found", "channel_is_archived"].map(|code| (400, 410, is(code), Gone)));
    rows.push((429, 429, is("rate_limited"), Verdict::wait(Scope::Target, 60)));
    ("chat.slack", rows)
}

/// The code is the body's number.
fn discord() -> Block {
    use Verdict::*;
    let rows = vec![
        (404, 404, is("10015"), Gone),
        (401, 401, is("50027"), Gone),
        (400, 400, is("50035"), DropMessage),
        (400, 400, is("50006"), DropMessage),
        (403, 403, ANY, DropMessage),
        (429, 429, is("global"), Verdict::wait(Scope::Host, 60)),
        (429, 429, ANY, Verdict::wait(Scope::Target, 60)),
    ];
    ("chat.discord", rows)
}

/// An old connector says 200 also where it could not post, and the reason in the body.
fn teams() -> Block {
    use Verdict::*;
    let rows = vec![
        (200, 200, says("returned HTTP error 429"), Verdict::wait(Scope::Target, 60)),
        (200, 200, says("returned HTTP error 413"), DropMessage),
        (200, 200, says("returned HTTP error 4"), DropMessage),
        (200, 200, says("returned HTTP error 5"), RETRY),
        (401, 401, ANY, Gone),
        (403, 403, ANY, Gone),
        (413, 413, ANY, DropMessage),
    ];
    ("chat.teams", rows)
}
