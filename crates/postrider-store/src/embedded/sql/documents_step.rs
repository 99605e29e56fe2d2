//! The layout step that turns settings, API keys and signing keys into documents.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_core::KeyId;
use serde_json::{Value, json};

use super::documents::NEWEST;
use super::prelude::*;
use super::upgrade::LayoutStep;

/// `version` is that of the last change, over all documents. See `documents`.
pub(crate) const DOCUMENTS: LayoutStep = LayoutStep {
    before: "
CREATE TABLE document (
  name TEXT PRIMARY KEY NOT NULL, version INTEGER NOT NULL, json TEXT, expires INTEGER);
CREATE INDEX document_version ON document (version);
CREATE INDEX document_deleted ON document (version) WHERE json IS NULL;
CREATE INDEX document_expires ON document (expires) WHERE expires IS NOT NULL;
",
    rows: &[],
    convert: Some(move_rows),
    after: "
DROP TABLE setting;
DROP TABLE api_key;
DROP TABLE signing_key;
",
};

fn move_rows(conn: &Connection) -> StoreResult<()> {
    let mut all = settings(conn)?;
    all.extend(api_keys(conn)?);
    all.extend(signing_keys(conn)?);
    let insert = "INSERT INTO document (name, version, json) VALUES (?1, ?2, ?3)";
    for (version, (name, text)) in (1_i64..).zip(&all) {
        run(conn, insert, params![name, version, text])?;
    }
    set_meta(conn, NEWEST, all.len() as i64)
}

/// Names with texts.
type NamedTexts = Vec<(String, String)>;

fn settings(conn: &Connection) -> StoreResult<NamedTexts> {
    let select = "SELECT name, json FROM setting ORDER BY name";
    all_rows(conn, select, [], |row| Ok((get(row, 0)?, get(row, 1)?)))
}

fn api_keys(conn: &Connection) -> StoreResult<NamedTexts> {
    all_rows(conn, "SELECT * FROM api_key ORDER BY id", [], |row| {
        let scope: Value = parse(&get::<String>(row, "scope")?, "an API key's scope")?;
        let key = json!({
            "tenant": get::<String>(row, "tenant")?,
            "name": get::<String>(row, "name")?,
            "scope": scope,
            "secret_hash": base64(row, "secret_hash")?,
            "created_at": get::<i64>(row, "created")?,
            "revoked_at": get::<Option<i64>>(row, "revoked")?,
        });
        Ok((format!("key/api/{}", key_id(row)?), key.to_string()))
    })
}

/// One document for the keys of one tenant and kind, oldest first.
fn signing_keys(conn: &Connection) -> StoreResult<NamedTexts> {
    let mut lists: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    all_rows(conn, "SELECT * FROM signing_key ORDER BY id", [], |row| {
        let (tenant, kind): (String, String) = (get(row, "tenant")?, get(row, "kind")?);
        let owner = if tenant.is_empty() { "-" } else { &tenant };
        lists.entry(format!("key/signing/{owner}/{kind}")).or_default().push(json!({
            "id": key_id(row)?.to_string(),
            "secret": base64(row, "secret")?,
            "created_at": get::<i64>(row, "created")?,
            "retired_at": get::<Option<i64>>(row, "retired")?,
        }));
        Ok(())
    })?;
    let text = |keys: Vec<Value>| json!({ "keys": keys }).to_string();
    Ok(lists.into_iter().map(|(name, keys)| (name, text(keys))).collect())
}

fn key_id(row: &Row<'_>) -> StoreResult<KeyId> {
    get(row, "id").map(|bytes| KeyId(u128::from_be_bytes(bytes)))
}

fn base64(row: &Row<'_>, column: &str) -> StoreResult<String> {
    get::<Vec<u8>>(row, column).map(|bytes| STANDARD.encode(bytes))
}
