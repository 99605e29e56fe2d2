//! Receipts of deliveries, by a token instead of a key: any browser may send them. Refuses what is forged, too late or
//! too much, and never asks the store about it.

use std::time::Duration;

use axum::extract::{FromRequest as _, Request};
use axum::http::HeaderValue;
use axum::http::header::ACCESS_CONTROL_ALLOW_ORIGIN;
use postrider_core::ports::store::{NewReceipt, ReceiptResult};
use postrider_core::{ReceiptKind, Timestamp};

use super::auth::CallerIp;
use super::extract::SmallBody;
use super::prelude::*;
use crate::receipts::{ReceiptAnswer, ReceiptTokenRefusal};

/// How long a sender waits whose receipt cannot be taken now.
const LATER: Duration = Duration::from_secs(5);

/// What became of a notification.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct ReceiptRequest {
    /// `displayed`, `clicked`, `dismissed`, or `late`: it was shown too late, as something else.
    #[schema(example = "displayed")]
    pub event: String,
    /// When it happened, in milliseconds since 1970. A time that cannot be is replaced by the present.
    #[serde(default)]
    pub at: Option<i64>,
}

/// What browsers may report.
const REPORTED: [ReceiptKind; 4] =
    [ReceiptKind::Displayed, ReceiptKind::Clicked, ReceiptKind::Dismissed, ReceiptKind::Late];

/// Report what became of a delivery. Needs no key: the token is in the push. Takes JSON as text/plain, so that a
/// browser asks for no permission first.
#[utoipa::path(post, path = "/v1/receipts/{token}", tag = "deliveries", security(()),
    params(("token" = String, Path, description = "As the URL in the push has it")),
    request_body(content = ReceiptRequest, content_type = "text/plain"),
    responses((status = 204, description = "It is recorded, or was before"),
        (status = 404, description = "No token of this server", body = Problem),
        (status = 409, description = "The delivery is still being sent; report again later", body = Problem),
        (status = 410, description = "The token is too old, or the delivery is forgotten", body = Problem),
        (status = 422, description = "No such event", body = Problem),
        (status = 429, description = "Too many receipts; Retry-After says when to come back", body = Problem)))]
pub(crate) async fn report(
    State(app): State<SharedState>,
    Path(token): Path<String>,
    CallerIp(from): CallerIp,
    request: Request,
) -> Response {
    let mut answer = match taken(&app, &token, from, request).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(refused) => refused.counted(&app).into_response(),
    };
    let any = HeaderValue::from_static("*");
    answer.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, any);
    answer
}

/// Why a receipt is not recorded.
pub(super) struct RefusedReceipt {
    /// As metrics name it.
    reason: &'static str,
    problem: Problem,
}

impl RefusedReceipt {
    pub(super) fn new(reason: &'static str, problem: Problem) -> Self {
        Self { reason, problem }
    }

    pub(super) fn counted(self, app: &SharedState) -> Problem {
        app.metrics.receipt_not_recorded(self.reason);
        self.problem
    }
}

impl From<ReceiptTokenRefusal> for RefusedReceipt {
    fn from(why: ReceiptTokenRefusal) -> Self {
        match why {
            ReceiptTokenRefusal::Forged => {
                let detail = "this is no token of this server";
                Self::new("forged", Problem::new(404, "not_found", "Not found", detail))
            }
            ReceiptTokenRefusal::Expired => {
                let detail = "the token has expired (receipts.token_valid_s)";
                Self::new("expired", Problem::new(410, "gone", "It is too late for this", detail))
            }
        }
    }
}

async fn taken(
    app: &SharedState,
    token: &str,
    from: Option<std::net::IpAddr>,
    request: Request,
) -> Result<(), RefusedReceipt> {
    let section = app.config().receipts.clone();
    let limited = |wait| {
        let detail = "there are too many receipts (receipts.address_per_s, receipts.per_s_max)";
        RefusedReceipt::new("limited", Problem::too_many(detail, wait))
    };
    let malformed = |problem| RefusedReceipt::new("malformed", problem);
    app.receipt_senders
        .take_at(from, section.address_per_s, section.address_burst)
        .map_err(limited)?;
    let delivery = app.receipt_tokens.delivery(token, app.clock.now())?;
    app.receipt_rate.take_at(section.per_s_max, section.burst_max).map_err(limited)?;
    let SmallBody(body) = SmallBody::from_request(request, app).await.map_err(malformed)?;
    let (kind, at) = read(&body).map_err(malformed)?;
    recorded(app, NewReceipt { delivery, kind, at }).await
}

/// Records a receipt, or finds that it was recorded before.
pub(super) async fn recorded(app: &SharedState, receipt: NewReceipt) -> Result<(), RefusedReceipt> {
    let (reason, problem) = match app.receipts.record(receipt).await {
        ReceiptAnswer::Stored(Ok(ReceiptResult::Recorded { .. })) => return Ok(()),
        ReceiptAnswer::Stored(Ok(ReceiptResult::Repeated)) => {
            app.metrics.receipt_not_recorded("repeated");
            return Ok(());
        }
        ReceiptAnswer::Stored(Ok(ReceiptResult::Early)) => {
            let detail = "the delivery is still being sent; send the receipt again later";
            let problem = Problem::new(409, "too_early", "It is too early for this", detail);
            ("early", Problem { retry_after_s: Some(5), ..problem })
        }
        ReceiptAnswer::Stored(Ok(ReceiptResult::Unknown)) => {
            let detail = "the delivery is no longer known";
            ("unknown", Problem::new(410, "gone", "It is too late for this", detail))
        }
        ReceiptAnswer::Stored(Err(error)) => ("failed", error.into()),
        ReceiptAnswer::Full => {
            ("full", Problem::too_many("too many receipts wait to be written", LATER))
        }
    };
    Err(RefusedReceipt::new(reason, problem))
}

fn read(body: &[u8]) -> Result<(ReceiptKind, Option<Timestamp>), Problem> {
    let request: ReceiptRequest = super::extract::parse(body)?;
    let kind = REPORTED.into_iter().find(|kind| kind.name() == request.event);
    let kind = kind.ok_or_else(|| {
        let allowed = "displayed, clicked, dismissed or late";
        Problem::field("event", quoted(&request.event), allowed)
    })?;
    Ok((kind, request.at.map(Timestamp)))
}
