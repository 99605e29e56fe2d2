//! The history: counts and latencies by minute or hour, and the rates of the last five minutes.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_core::Timestamp;
use postrider_core::policy::latency_histogram::BUCKETS_MS;
use postrider_core::policy::rollup::{RollupFigures, RollupKind};
use postrider_core::ports::store::{RollupFilter, RollupOwner, RollupSpan};

use super::parameters::{name, time};
use super::prelude::*;
use crate::rollups::{RollupPoint, points};
use crate::telemetry::RatesBody;

/// Minutes or hours of one answer.
const POINTS_MAX: i64 = 2_400;
/// Rows of one answer.
const ROWS_MAX: usize = 50_000;
const GROUPS: [&str; 5] = ["channel", "provider", "class", "tenant", "outcome"];

/// Which counts to show.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// `minute` or `hour`. Without it, no other parameter is allowed, and the answer has `rates` only.
    pub resolution: Option<String>,
    /// The begin of the first minute or hour. Default: an hour before `until`, or a day if the resolution is `hour`.
    pub from: Option<String>,
    /// Default: now.
    pub until: Option<String>,
    /// `attempts`, `deliveries`, `held` or `overhead`; all if absent.
    pub kind: Option<String>,
    pub channel: Option<String>,
    pub provider: Option<String>,
    pub class: Option<String>,
    pub outcome: Option<String>,
    /// What rows are told apart by, with commas between: `channel`, `provider`, `class`, `tenant`, `outcome`. Default:
    /// `channel,outcome`. `tenant` needs a key for all tenants.
    pub by: Option<String>,
}

/// The rates of the last five minutes, or the history that was asked for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct History {
    /// Without parameters: one entry per second, the oldest first. Each is the average of ten seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rates: Option<Vec<RatesBody>>,
    #[serde(flatten)]
    pub counts: Option<CountHistory>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CountHistory {
    pub resolution: &'static str,
    pub from: Time,
    pub until: Time,
    /// The upper ends of the buckets of `latency`, in milliseconds. One more bucket has what took longer.
    pub buckets_ms: Vec<u64>,
    /// By time. A minute or hour in which nothing happened is left out.
    pub points: Vec<HistoryPoint>,
}

/// One minute or hour.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryPoint {
    /// When it began.
    pub at: Time,
    pub rows: Vec<HistoryRow>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistoryRow {
    /// `attempts`, `deliveries`, `held` or `overhead`.
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// `other` for those that got no row of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The outcome of the attempts; the final state of the deliveries, or the reason if they are dead letters; the
    /// check that held calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// How many; with `held`, how many seconds.
    pub count: u64,
    /// Of these, attempts that were not the first of their delivery.
    pub repeats: u64,
    /// Of these, attempts that were answered with status 400.
    pub bad_requests: u64,
    /// The sum of all times.
    pub sum_ms: u64,
    /// The end of the bucket that half of the times are at or before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p95_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ms: Option<u64>,
    /// How many are in each bucket.
    pub latency: Vec<u64>,
}

/// The columns that rows are told apart by, in the order of [`GROUPS`].
type GroupKey = [Option<Arc<str>>; 5];

/// What was asked for.
struct HistoryWish {
    filter: RollupFilter,
    kind: Option<RollupKind>,
    equal: [Option<String>; 4],
    by: [bool; 5],
}

impl HistoryWish {
    fn new(
        query: HistoryQuery,
        span: RollupSpan,
        access: &ReadAccess,
        now: Timestamp,
    ) -> ApiResult<Self> {
        let kinds = || RollupKind::ALL.map(RollupKind::name).join(", ");
        let known = |text: &str| RollupKind::ALL.into_iter().find(|kind| kind.name() == text);
        let kind = name("kind", query.kind, known, kinds)?;
        let by = groups(query.by.as_deref().unwrap_or("channel,outcome"))?;
        let until = time("until", query.until)?.unwrap_or(now);
        let default_ms = if span == RollupSpan::Minute { 3_600_000 } else { 86_400_000 };
        let from =
            time("from", query.from)?.unwrap_or(Timestamp(until.0.saturating_sub(default_ms)));
        let from = span.begin(from);
        let count = until.0.saturating_sub(from.0) / span.ms();
        if count > POINTS_MAX {
            let (found, unit) = (format!("{count} {}s", span.name()), span.name());
            let allowed =
                format!("a range of at most {POINTS_MAX} {unit}s; ask for a part, or for hours");
            return Err(Problem::field("from", found, allowed));
        }
        let of = match (&access.view, by[3]) {
            (Some(_), true) if !access.sees_server() => {
                let allowed = "no tenant: this key sees one tenant only";
                return Err(Problem::field("by", "\"tenant\"", allowed));
            }
            (Some(tenant), _) => RollupOwner::Tenant(tenant.clone()),
            (None, true) => RollupOwner::Everybody,
            (None, false) => RollupOwner::Server,
        };
        let equal = [query.channel, query.provider, query.class, query.outcome];
        Ok(Self { filter: RollupFilter { span, from, until, of }, kind, equal, by })
    }

    fn group(&self, point: &RollupPoint<'_>) -> Option<(RollupKind, GroupKey)> {
        // With all tenants, the counts of the server are the same once more.
        let is_sum = self.filter.of == RollupOwner::Everybody && point.tenant.is_none();
        let key = point.key;
        let fields = [&key.channel, &key.provider, &key.class, &key.outcome];
        let is_equal = |(wanted, found): (&Option<String>, &&Arc<str>)| {
            wanted.as_deref().is_none_or(|wanted| wanted == &***found)
        };
        let is_asked = self.kind.is_none_or(|kind| kind == key.kind)
            && self.equal.iter().zip(&fields).all(is_equal);
        if is_sum || !is_asked {
            return None;
        }
        let tenant = point.tenant.map(|tenant| tenant.0.clone());
        let [channel, provider, class, outcome] = fields.map(|field| Some(field.clone()));
        let mut all = [channel, provider, class, tenant, outcome];
        for (field, is_told) in all.iter_mut().zip(self.by) {
            *field = field.take().filter(|text| is_told && !text.is_empty());
        }
        Some((key.kind, all))
    }
}

fn groups(text: &str) -> ApiResult<[bool; 5]> {
    let mut by = [false; 5];
    for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let known = GROUPS.iter().position(|group| *group == name);
        let allowed = || format!("names with commas between: {}", GROUPS.join(", "));
        by[known.ok_or_else(|| Problem::field("by", quoted(name), allowed()))?] = true;
    }
    Ok(by)
}

/// Counts and latencies by minute or hour. Without parameters, the rates of the whole server in the last five minutes,
/// for a key for all tenants.
#[utoipa::path(get, path = "/v1/stats/history", tag = "overview", params(HistoryQuery),
    responses((status = 200, body = History), (status = "4XX", body = Problem)))]
pub(crate) async fn history(
    State(app): State<SharedState>,
    access: ReadAccess,
    StrictQuery(query): StrictQuery<HistoryQuery>,
) -> ApiResult<Json<History>> {
    let spans = || RollupSpan::COUNTED.map(RollupSpan::name).join(" or ");
    let known = |text: &str| RollupSpan::COUNTED.into_iter().find(|span| span.name() == text);
    let Some(span) = name("resolution", query.resolution.clone(), known, spans)? else {
        return rates(&app, &access, &query).map(Json);
    };
    let now = app.clock.now();
    let wish = HistoryWish::new(query, span, &access, now)?;
    let mut found: BTreeMap<Timestamp, BTreeMap<(RollupKind, GroupKey), RollupFigures>> =
        BTreeMap::new();
    let mut rows = 0;
    points(&*app.store, wish.filter.clone(), now, |point| {
        if let Some(group) = wish.group(&point) {
            let row = found.entry(point.at).or_default().entry(group);
            rows += usize::from(matches!(row, std::collections::btree_map::Entry::Vacant(_)));
            row.or_default().add(point.figures);
        }
        rows <= ROWS_MAX
    })
    .await?;
    if rows > ROWS_MAX {
        let allowed =
            format!("at most {ROWS_MAX} rows; ask for a shorter time, or tell fewer things apart");
        return Err(Problem::field("by", format!("more than {ROWS_MAX} rows"), allowed));
    }
    let point = |(at, rows): (Timestamp, BTreeMap<_, _>)| HistoryPoint {
        at: at.into(),
        rows: rows.iter().map(|((kind, group), figures)| row(*kind, group, figures)).collect(),
    };
    Ok(Json(History {
        rates: None,
        counts: Some(CountHistory {
            resolution: span.name(),
            from: wish.filter.from.into(),
            until: wish.filter.until.into(),
            buckets_ms: BUCKETS_MS.to_vec(),
            points: found.into_iter().map(point).collect(),
        }),
    }))
}

fn row(kind: RollupKind, group: &GroupKey, figures: &RollupFigures) -> HistoryRow {
    let [channel, provider, class, tenant, outcome] =
        group.clone().map(|field| field.map(|text| text.to_string()));
    let times = &figures.times;
    HistoryRow {
        kind: kind.name(),
        channel,
        provider,
        class,
        tenant,
        outcome,
        count: figures.count,
        repeats: figures.repeats,
        bad_requests: figures.bad_requests,
        sum_ms: times.sum_ms(),
        p50_ms: times.quantile_ms(0.5),
        p95_ms: times.quantile_ms(0.95),
        p99_ms: times.quantile_ms(0.99),
        latency: times.counts().to_vec(),
    }
}

/// As it was before there were rollups.
fn rates(app: &SharedState, access: &ReadAccess, query: &HistoryQuery) -> ApiResult<History> {
    let given = [
        &query.from,
        &query.until,
        &query.kind,
        &query.channel,
        &query.provider,
        &query.class,
        &query.outcome,
        &query.by,
    ];
    if given.iter().any(|field| field.is_some()) {
        return Err(Problem::field("resolution", "nothing", "minute or hour"));
    }
    if !access.sees_server() {
        let detail = "rates are those of the whole server, which only a key for all tenants sees; \
                      add resolution=minute for the counts of this tenant";
        return Err(Problem::new(403, "forbidden", "The key may not do this", detail));
    }
    Ok(History { rates: Some(app.metrics.totals.history()), counts: None })
}
