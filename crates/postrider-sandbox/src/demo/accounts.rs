//! The demo's accounts at the sandbox's providers, one per channel that needs one. Their secrets lie in
//! the demo's own folder and end with it.

use std::path::Path;

use anyhow::{Context, Result};

use crate::Sandbox;

/// The part of a configuration file that names them.
pub(super) fn at(sandbox: &Sandbox, folder: &Path) -> Result<String> {
    let keep = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text)
            .with_context(|| format!("cannot write {}", path.display()))
            .map(|()| format!("credential = \"file:{}\"", path.display()))
    };
    let key = sandbox.apns_key();
    let apple = |field: &str| key[field].as_str().context("the sandbox has no key for APNs");
    let https = sandbox.https_origin();
    let firebase = keep("firebase.json", &sandbox.fcm_service_account().to_string())?;
    let (signing_key, password) = (keep("apple.p8", apple("key")?)?, keep("password", "demo")?);
    Ok(format!(
        "[chat.hosts]\n\"{slack}\" = \"slack\"\n\
         [accounts.firebase]\nchannel = \"fcm\"\nendpoint = \"{https}\"\n{firebase}\n\
         [accounts.apple]\nchannel = \"apns\"\nteam_id = \"{team}\"\nkey_id = \"{key_id}\"\n\
         endpoint = \"{https}\"\n{signing_key}\n\
         [accounts.relay]\nchannel = \"email\"\nhost = \"localhost\"\nport = {smtp}\nuser = \"shop\"\n\
         from = \"shop@shop.example\"\n{password}\n\
         [accounts.phone]\nchannel = \"sms\"\naccount_sid = \"AC1\"\nfrom = \"+15550100\"\n\
         endpoint = \"{https}\"\n{password}\n",
        slack = sandbox.https,
        team = apple("team_id")?,
        key_id = apple("key_id")?,
        smtp = sandbox.smtp.port(),
    ))
}
