//! `encryption`: state, rotation of the master key, end of a tenant's key.

use super::prelude::*;

#[derive(Debug, Subcommand)]
#[command(after_help = "Rotation:
  1. Put the new key into encryption.key and the old one into encryption.previous_keys.
  2. postrider encryption rotate
  3. When `postrider encryption status` does not name the old key any more, remove it.")]
pub(super) enum EncryptionCommand {
    /// Whether the store is encrypted, and by which master keys.
    Status,
    /// Read the master keys again, and wrap all data keys by the first one. Nothing stops meanwhile.
    Rotate,
    /// Make a new key for the hashes of endpoints. Registered addresses keep their ids.
    RotateHashKey,
    /// Destroy the data key of a tenant. Nothing brings its data back.
    Destroy {
        tenant: String,
        /// The name of the tenant once more.
        #[arg(long, value_name = "TENANT")]
        confirm: String,
    },
}

pub(super) async fn run(command: EncryptionCommand, session: ServerSession) -> CliResult {
    match command {
        EncryptionCommand::Status => session.get("/v1/encryption", status).await,
        EncryptionCommand::Rotate => {
            let text = |done: &Value| {
                format!(
                    "{} data keys wrapped anew\n{}",
                    done["rewrapped"],
                    status(&done["encryption"])
                )
            };
            session.post("/v1/encryption/rotate", &Value::Null, text).await
        }
        EncryptionCommand::RotateHashKey => {
            let text = |body: &Value| {
                format!("endpoints are hashed with a new key; {} keys are known", body["hash_keys"])
            };
            session.post("/v1/encryption/hash-key/rotate", &Value::Null, text).await
        }
        EncryptionCommand::Destroy { tenant, confirm } => {
            let path = format!("/v1/encryption/tenants/{}/destroy", path_segment(&tenant)?);
            let text = |_: &Value| format!("the data key of {tenant} is destroyed");
            session.post(&path, &json!({"confirm": confirm}), text).await
        }
    }
}

fn status(body: &Value) -> String {
    if body["enabled"] != true {
        return "the store is not encrypted".to_owned();
    }
    let mut text =
        format!("encrypted; new data keys are wrapped by {}\n", cell(body, "/master_key"));
    for (name, count) in body["data_keys"].as_object().into_iter().flatten() {
        text += &format!("{name} wraps {count} data keys\n");
    }
    text + &format!("{} data keys were destroyed\n", body["destroyed"])
}
