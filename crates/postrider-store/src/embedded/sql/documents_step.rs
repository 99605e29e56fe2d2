//! The layout step that turns settings, API keys and signing keys into documents.

use std::collections::BTreeMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postrider_core::KeyId;
use postrider_core::ports::store::StoreError;
use serde_json::{Value, json};

use super::documents::NEWEST;
use super::prelude::*;
use super::schema::open_reader;
use super::statement::is_local;
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
    after: "",
};

/// The old tables, each with its key. A table of which something cannot be read gets another name (see
/// [`tables_set_aside`]), because its pages cannot be freed unread.
const OLD_TABLES: [(&str, &str); 3] =
    [("setting", "name"), ("api_key", "id"), ("signing_key", "id")];
const READER_CACHE_KIB: u32 = 1 << 10;
const SET_ASIDE: &str = "_damaged";

/// The old rows are read with a connection of their own, because nothing can be written any more in a transaction that
/// met a damaged page. The steps before this one change no row of these tables.
fn move_rows(conn: &Connection) -> StoreResult<()> {
    let [settings, api_keys, signing_keys] = OLD_TABLES;
    let reader = open_reader(Path::new(conn.path().unwrap_or_default()), READER_CACHE_KIB)?;
    let conns = (conn, &reader);
    let mut all = move_table(conns, settings, |row| Ok((get(row, "name")?, get(row, "json")?)))?;
    all.extend(move_table(conns, api_keys, api_key)?);
    all.extend(key_lists(move_table(conns, signing_keys, signing_key)?));
    let insert = "INSERT INTO document (name, version, json) VALUES (?1, ?2, ?3)";
    for (version, (name, text)) in (1_i64..).zip(&all) {
        run(conn, insert, params![name, version, text])?;
    }
    set_meta(conn, NEWEST, all.len() as i64)
}

/// Tables of older layouts that could not be read as a whole when the folder was upgraded.
pub(crate) fn tables_set_aside(conn: &Connection) -> StoreResult<Vec<String>> {
    let names = OLD_TABLES.map(|(table, _)| format!("'{table}{SET_ASIDE}'")).join(", ");
    let select = format!("SELECT name FROM sqlite_master WHERE name IN ({names}) ORDER BY name");
    all_rows(conn, &select, [], |row| get(row, 0))
}

/// Takes all rows that can be read out of an old table, in the order of their keys.
fn move_table<T>(
    (conn, reader): (&Connection, &Connection),
    (table, key): (&str, &str),
    read: impl Fn(&Row<'_>) -> StoreResult<T>,
) -> StoreResult<Vec<T>> {
    let mut rows = BTreeMap::new();
    let mut error = None;
    // A table that an earlier step of this upgrade made has no rows.
    let there = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1";
    if value::<i64>(reader, there, [table])?.is_some() {
        let forward = format!("SELECT * FROM {table} ORDER BY {key}");
        error = read_until_damage(reader, &forward, &read, &mut rows)?;
        if error.is_some() {
            // Ends at the same page.
            let backward = format!("{forward} DESC");
            error = read_until_damage(reader, &backward, &read, &mut rows)?.or(error);
        }
    }
    let end = match error {
        None => format!("DROP TABLE {table}"),
        Some(error) => {
            tracing::error!(
                %error,
                table,
                moved = rows.len(),
                "some rows of an old table cannot be read; the others are taken over"
            );
            format!("ALTER TABLE {table} RENAME TO {table}{SET_ASIDE}")
        }
    };
    conn.execute_batch(&end).map_err(sql)?;
    Ok(rows.into_values().collect())
}

/// Reads rows by their first column, up to a page that cannot be read. Leaves out rows that make no sense. Returns the
/// last error of this kind.
fn read_until_damage<T>(
    conn: &Connection,
    select: &str,
    read: impl Fn(&Row<'_>) -> StoreResult<T>,
    found: &mut BTreeMap<Vec<u8>, T>,
) -> StoreResult<Option<StoreError>> {
    let mut statement = conn.prepare(select).map_err(sql)?;
    let mut rows = statement.query([]).map_err(sql)?;
    let mut damage = None;
    loop {
        let row = match rows.next().map_err(sql) {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(damage),
            Err(error) if is_local(&error) => return Ok(Some(error)),
            Err(error) => return Err(error),
        };
        let key = row.get_ref(0).map(|key| key.as_bytes().unwrap_or_default().to_vec());
        match key.map_err(sql).and_then(|key| Ok((key, read(row)?))) {
            Ok((key, row)) => drop(found.insert(key, row)),
            Err(error) if is_local(&error) => damage = Some(error),
            Err(error) => return Err(error),
        }
    }
}

fn api_key(row: &Row<'_>) -> StoreResult<(String, String)> {
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
}

/// The name of its document, and the key.
fn signing_key(row: &Row<'_>) -> StoreResult<(String, Value)> {
    let (tenant, kind): (String, String) = (get(row, "tenant")?, get(row, "kind")?);
    let owner = if tenant.is_empty() { "-" } else { &tenant };
    let key = json!({
        "id": key_id(row)?.to_string(),
        "secret": base64(row, "secret")?,
        "created_at": get::<i64>(row, "created")?,
        "retired_at": get::<Option<i64>>(row, "retired")?,
    });
    Ok((format!("key/signing/{owner}/{kind}"), key))
}

/// One document for the keys of one tenant and kind, oldest first.
fn key_lists(keys: Vec<(String, Value)>) -> impl Iterator<Item = (String, String)> {
    let mut lists: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (name, key) in keys {
        lists.entry(name).or_default().push(key);
    }
    lists.into_iter().map(|(name, keys)| (name, json!({ "keys": keys }).to_string()))
}

fn key_id(row: &Row<'_>) -> StoreResult<KeyId> {
    get(row, "id").map(|bytes| KeyId(u128::from_be_bytes(bytes)))
}

fn base64(row: &Row<'_>, column: &str) -> StoreResult<String> {
    get::<Vec<u8>>(row, column).map(|bytes| STANDARD.encode(bytes))
}
