//! Encryption at rest: shows its state, rotates the master key, and destroys the key of a tenant.

use std::collections::BTreeMap;
use std::sync::Arc;

use postrider_store::sealed::{DataKeys, SealingStatus};

use super::auth::parse_tenant;
use super::prelude::*;
use crate::jobs::kept::{delete_jobs, jobs};
use crate::keys::RotationLimits;

/// Whether and how the store is encrypted.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EncryptionBody {
    pub enabled: bool,
    /// The name of the master key that wraps new data keys. It says nothing about the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master_key: Option<String>,
    /// How many data keys each master key wraps. A master key that is not named here is not needed any more.
    pub data_keys: BTreeMap<String, u64>,
    /// Data keys that were destroyed and not replaced.
    pub destroyed: u64,
    /// Keys for the hashes of endpoints: the one in use, and older ones for what was hashed with them.
    pub hash_keys: usize,
}

impl EncryptionBody {
    fn new(status: Option<SealingStatus>, app: &SharedState) -> Self {
        let hash_keys = app.signing.hash_keys().len();
        match status {
            Some(status) => Self {
                enabled: true,
                master_key: Some(status.master),
                data_keys: status.data_keys,
                destroyed: status.destroyed,
                hash_keys,
            },
            None => Self {
                enabled: false,
                master_key: None,
                data_keys: BTreeMap::new(),
                destroyed: 0,
                hash_keys,
            },
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RewrapBody {
    /// Data keys that were wrapped anew.
    pub rewrapped: u64,
    pub encryption: EncryptionBody,
}

/// What to destroy.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DestroyRequest {
    /// The name of the tenant once more. Nothing brings the data back.
    pub confirm: String,
}

fn keys(app: &SharedState) -> ApiResult<&Arc<DataKeys>> {
    app.data_keys.as_ref().ok_or_else(|| {
        let detail = "the store is not encrypted; set encryption.key to turn it on";
        Problem::new(409, "not_encrypted", "There is no encryption", detail)
    })
}

/// Whether the store is encrypted, and by which master keys.
#[utoipa::path(get, path = "/v1/encryption", tag = "administration",
    responses((status = 200, body = EncryptionBody), (status = "4XX", body = Problem)))]
pub(crate) async fn show(
    State(app): State<SharedState>,
    _: ServerReadAccess,
) -> ApiResult<Json<EncryptionBody>> {
    show_status(&app).await
}

async fn show_status(app: &SharedState) -> ApiResult<Json<EncryptionBody>> {
    let status = match &app.data_keys {
        Some(keys) => Some(keys.status().await?),
        None => None,
    };
    Ok(Json(EncryptionBody::new(status, app)))
}

/// Read the configuration and the master keys again, and wrap every data key by `encryption.key`. Nothing stops
/// meanwhile. Can be interrupted and repeated.
#[utoipa::path(post, path = "/v1/encryption/rotate", tag = "administration",
    responses((status = 200, body = RewrapBody), (status = "4XX", body = Problem)))]
pub(crate) async fn rotate(
    State(app): State<SharedState>,
    access: AdminAccess,
) -> ApiResult<Json<RewrapBody>> {
    let keys = keys(&app)?;
    app.live.reload().await?;
    let section = app.config().encryption.clone();
    let read = tokio::task::spawn_blocking(move || section.masters()).await;
    let refused =
        |why: String| Problem::new(422, "master_key", "The master key cannot be used", why);
    let masters = read.map_err(|error| refused(error.to_string()))?;
    let masters = masters.map_err(|error| refused(error.to_string()))?;
    keys.use_masters(masters).await.map_err(|error| refused(error.to_string()))?;
    let rewrapped = keys.rewrap().await?;
    audit(&access.caller, "encryption.rotate", &"master key", rewrapped);
    let encryption = EncryptionBody::new(Some(keys.status().await?), &app);
    Ok(Json(RewrapBody { rewrapped, encryption }))
}

/// Make a new key for the hashes of endpoints. Registered addresses get new hashes in the background and keep their
/// ids; older keys are kept for dead letters and marks. Sessions of the status page end.
#[utoipa::path(post, path = "/v1/encryption/hash-key/rotate", tag = "administration",
    responses((status = 200, body = EncryptionBody), (status = "4XX", body = Problem)))]
pub(crate) async fn rotate_hash_key(
    State(app): State<SharedState>,
    access: AdminAccess,
) -> ApiResult<Json<EncryptionBody>> {
    let per_minute = app.config().limits.rotations_per_minute;
    app.signing.rotate_hash_key(&RotationLimits { keys_max: 0, per_minute }).await?;
    app.use_hash_keys();
    tokio::spawn(crate::rehash::rehash_addresses(app.clone()));
    audit(&access.caller, "encryption.rotate_hash_key", &"hash key", 1);
    show_status(&app).await
}

/// Destroy the data key of a tenant: its bodies, addresses, recipients and signing keys cannot be read any more, what
/// is pending is cancelled, and its event subscriptions and jobs are gone. What the tenant sends from now on gets a new
/// key.
#[utoipa::path(post, path = "/v1/encryption/tenants/{name}/destroy", tag = "administration",
    params(("name" = String, Path)), request_body = DestroyRequest,
    responses((status = 204), (status = "4XX", body = Problem)))]
pub(crate) async fn destroy(
    State(app): State<SharedState>,
    access: AdminAccess,
    Path(name): Path<String>,
    JsonBody(request): JsonBody<DestroyRequest>,
) -> ApiResult<StatusCode> {
    let tenant = parse_tenant("name", &name)?;
    if request.confirm != name {
        let allowed = "the name of the tenant whose key is destroyed";
        return Err(Problem::field("confirm", quoted(&request.confirm), allowed));
    }
    let own_jobs = jobs(&*app.store, Some(&tenant)).await?;
    if !keys(&app)?.destroy(&tenant).await? {
        return Err(Problem::not_found("data key of the tenant", shortened(&name)));
    }
    app.signing.forget(&tenant).await?;
    for subscription in app.events.subscriptions.of(Some(&tenant)) {
        app.events.subscriptions.delete(&subscription.id).await?;
    }
    delete_jobs(&*app.store, &own_jobs).await?;
    audit(&access.caller, "encryption.destroy", &tenant, 1);
    note_audit(|draft| draft.tenant = Some(tenant.clone()));
    Ok(StatusCode::NO_CONTENT)
}
