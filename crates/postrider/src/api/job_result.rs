//! `GET /v1/jobs/{id}/result`: an export, read from the store while it is downloaded. Nothing is kept on disk for it.

use axum::body::Body;
use bytes::Bytes;
use futures_util::stream;
use postrider_core::DeliveryId;
use postrider_core::ports::store::{DeliveryFilter, StoreError};

use super::jobs::find;
use super::prelude::*;
use crate::jobs::counting::{narrowed, page};
use crate::jobs::export;
use crate::jobs::record::{ExportFormat, JobKind, JobState};
use crate::keys::KeyEnd;

/// Deliveries of one part.
const PART: usize = 500;

/// A download that goes on.
struct ExportReader {
    app: SharedState,
    filter: DeliveryFilter,
    format: ExportFormat,
    key_end: KeyEnd,
    place: ExportPlace,
}

enum ExportPlace {
    Head,
    Behind(Option<DeliveryId>),
    End,
}

/// The deliveries of a finished export: as NDJSON, one delivery as `GET /v1/deliveries/{id}` shows it per line, or as
/// CSV. They are read while they are downloaded, so that states can be newer than the job. Without end-points and
/// payloads. The download ends early when the key is revoked.
#[utoipa::path(get, path = "/v1/jobs/{id}/result", tag = "jobs", params(("id" = String, Path)),
    responses((status = 200, description = "The export", content((String = "application/x-ndjson"), (String = "text/csv"))),
        (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(crate) async fn result(
    State(app): State<SharedState>,
    access: ReadAccess,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    let job = find(&app, access.view.as_ref(), &id).await?;
    if job.kind != JobKind::Export || job.state != JobState::Done {
        let detail = format!("the job is a {} that is {}", job.kind.name(), job.state.name());
        return Err(Problem::new(409, "no_result", "Only a finished export has a result", detail));
    }
    let format = job.format.unwrap_or(ExportFormat::Ndjson);
    let filter = job.filter.clone().read(&app, job.tenant.clone()).await?;
    audit(&access.caller, "job.result", &job.id, job.progress.done);
    let name = format!("attachment; filename=\"{}.{}\"", job.id, format.name());
    let headers =
        [("content-type", export::content_type(format).to_owned()), ("content-disposition", name)];
    let reader = ExportReader {
        key_end: app.keys.end_of(&access.caller),
        filter: narrowed(filter.clone().unwrap_or_default(), job.kind, job.created_at),
        format,
        // Without a filter nothing can match.
        place: if filter.is_some() { ExportPlace::Head } else { ExportPlace::End },
        app,
    };
    let parts = stream::try_unfold(reader, |mut reader| async move {
        let part = reader.next().await?;
        Ok::<_, StoreError>(part.map(|part| (part, reader)))
    });
    Ok((headers, Body::from_stream(parts)).into_response())
}

impl ExportReader {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        loop {
            let cursor = match self.place {
                ExportPlace::End => return Ok(None),
                ExportPlace::Head => {
                    self.place = ExportPlace::Behind(None);
                    let head = export::head(self.format);
                    if !head.is_empty() {
                        return Ok(Some(Bytes::from_static(head.as_bytes())));
                    }
                    None
                }
                ExportPlace::Behind(cursor) => cursor,
            };
            let found = tokio::select! {
                biased;
                _ = self.key_end.wait(&self.app.keys) => return Err(StoreError::Closed),
                found = page(&self.app, JobKind::Export, &self.filter, cursor, PART) => found?,
            };
            self.place = match found.next {
                Some(next) => ExportPlace::Behind(Some(next)),
                None => ExportPlace::End,
            };
            let mut part = Vec::with_capacity(found.items.len() * 512);
            for delivery in found.items {
                export::line(self.format, delivery, &mut part);
            }
            if !part.is_empty() {
                return Ok(Some(part.into()));
            }
        }
    }
}
