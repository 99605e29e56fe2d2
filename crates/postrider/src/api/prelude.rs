//! What nearly every handler of the API uses.

pub(super) use axum::Json;
pub(super) use axum::extract::{Path, State};
pub(super) use axum::http::StatusCode;
pub(super) use axum::response::{IntoResponse, Response};
pub(super) use postrider_core::TenantId;
pub(super) use serde::{Deserialize, Serialize};
pub(super) use serde_json::{Map, Value};
pub(super) use utoipa::{IntoParams, ToSchema};

pub(super) use super::auth::{
    AddressAccess, AdminAccess, ContentAccess, ManageAccess, PublicKeyAccess, ReadAccess,
    ReplayAccess, SendAccess, ServerReadAccess,
};
pub(super) use super::extract::{JsonBody, RawJson, StrictQuery};
pub(super) use super::parameters::{limit, quoted, shortened};
pub(super) use super::problem::{ApiResult, Problem};
pub(super) use super::views::{Time, page};
pub(super) use super::{SharedState, audit, key_name, note_audit};
