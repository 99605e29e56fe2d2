//! Promises of documents. Real time only limits the wait for a broken store.

use super::fixture::*;

const NOW: Duration = Duration::ZERO;
const FOREVER: Duration = Duration::from_secs(1_000_000);
const NONE: DocumentVersion = DocumentVersion::NONE;

impl StoreFixture<'_> {
    async fn put(&self, name: &str, json: Option<&str>) -> DocumentVersion {
        match self.store.put_document(name, json, None, None).await.unwrap() {
            PutResult::Written(version) => version,
            PutResult::Conflict(present) => panic!("nothing was expected: {present:?}"),
        }
    }

    async fn put_expecting(
        &self,
        name: &str,
        json: Option<&str>,
        expected: DocumentVersion,
    ) -> PutResult {
        self.store.put_document(name, json, Some(expected), None).await.unwrap()
    }

    async fn put_for(&self, name: &str, json: &str, ttl: Duration) {
        self.store.put_document(name, Some(json), None, Some(ttl)).await.unwrap();
    }

    /// Names and texts.
    async fn texts(&self, prefix: &str) -> Vec<(String, String)> {
        let all = self.store.documents(prefix).await.unwrap().into_iter();
        all.map(|document| (document.name, document.json.unwrap())).collect()
    }

    async fn changes(&self, since: DocumentVersion) -> DocumentChanges {
        self.store.changes(since, NOW).await.unwrap()
    }

    /// Names, each with the present text.
    async fn changed(&self, since: DocumentVersion) -> Vec<(String, Option<String>)> {
        let changes = self.changes(since).await.documents.into_iter();
        changes.map(|document| (document.name, document.json)).collect()
    }

    async fn prune_documents(&self) {
        self.store.prune(&Retention::of(secs(86_400))).await.unwrap();
    }
}

fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> [(String, String); N] {
    pairs.map(|(name, json)| (name.to_owned(), json.to_owned()))
}

fn change(name: &str, json: Option<&str>) -> (String, Option<String>) {
    (name.to_owned(), json.map(str::to_owned))
}

pub async fn documents_are_kept_and_listed_by_name(fixture: &StoreFixture<'_>) {
    fixture.put("pause/2", Some("true")).await;
    fixture.put("pause/1", Some("1")).await;
    fixture.put("pause/1", Some(r#"{"by":"ann"}"#)).await;
    fixture.put("limits", Some("[]")).await;
    fixture.put("limits", None).await;
    fixture.put("nothing", None).await;
    fixture.put("paused", Some("{}")).await;
    let fixture = &fixture.after_crash().await;
    let pauses = [("pause/1", r#"{"by":"ann"}"#), ("pause/2", "true")];
    assert_eq!(fixture.texts("pause/").await, pairs(pauses));
    let [first, second] = pauses;
    assert_eq!(fixture.texts("").await, pairs([first, second, ("paused", "{}")]));
    assert!(fixture.texts("limits").await.is_empty());
}

pub async fn versions_grow_over_all_documents_also_after_a_restart(fixture: &StoreFixture<'_>) {
    let first = fixture.put("a", Some("1")).await;
    let second = fixture.put("b", Some("1")).await;
    let third = fixture.put("a", Some("1")).await;
    assert!(NONE < first && first < second && second < third);
    let deleted = fixture.put("a", None).await;
    assert!(third < deleted, "a deletion is a change");
    assert_eq!(fixture.put("a", None).await, deleted, "a second one is not");
    let fixture = &fixture.after_crash().await;
    assert_eq!(fixture.changes(NONE).await.upto, deleted);
    let fourth = fixture.put("b", None).await;
    fixture.clock.advance(secs(90_000));
    fixture.prune_documents().await;
    let fixture = &fixture.after_crash().await;
    let fifth = fixture.put("a", Some("2")).await;
    assert!(deleted < fourth && fourth < fifth, "also if nothing is left of the last one");
    assert_eq!(fixture.store.documents("").await.unwrap()[0].version, fifth);
}

pub async fn a_document_is_written_only_over_the_expected_version(fixture: &StoreFixture<'_>) {
    let PutResult::Written(first) = fixture.put_expecting("a", Some("1"), NONE).await else {
        panic!("it did not exist")
    };
    let refused = fixture.put_expecting("a", Some("2"), NONE).await;
    let PutResult::Conflict(Some(present)) = refused else { panic!("{refused:?}") };
    assert_eq!((present.version, present.json.as_deref()), (first, Some("1")));
    let PutResult::Written(second) = fixture.put_expecting("a", Some("2"), first).await else {
        panic!("nobody changed it")
    };
    assert!(matches!(
        fixture.put_expecting("a", None, first).await,
        PutResult::Conflict(Some(present)) if present.version == second
    ));
    assert_eq!(fixture.texts("").await, pairs([("a", "2")]));
    let fixture = &fixture.after_crash().await;
    assert!(matches!(fixture.put_expecting("a", None, second).await, PutResult::Written(_)));
    let gone = fixture.put_expecting("a", Some("3"), second).await;
    assert_eq!(gone, PutResult::Conflict(None), "there is none any more");
    assert!(matches!(fixture.put_expecting("a", Some("3"), NONE).await, PutResult::Written(_)));
}

pub async fn only_one_of_many_makes_a_new_document(fixture: &StoreFixture<'_>) {
    let mut tasks = Vec::new();
    for number in 0..8 {
        let store = fixture.store.store().clone();
        tasks.push(tokio::spawn(async move {
            let json = number.to_string();
            store.put_document("first", Some(&json), Some(NONE), None).await.unwrap()
        }));
    }
    let (mut written, mut seen) = (0, Vec::new());
    for task in tasks {
        match task.await.unwrap() {
            PutResult::Written(version) => {
                written += 1;
                seen.push(version);
            }
            PutResult::Conflict(present) => seen.push(present.unwrap().version),
        }
    }
    seen.dedup();
    assert_eq!((written, seen.len()), (1, 1), "all end with the same one");
}

pub async fn a_document_ends_with_its_time(fixture: &StoreFixture<'_>) {
    let before = fixture.put("other", Some("0")).await;
    fixture.put_for("a", "1", secs(10)).await;
    let listed = fixture.store.documents("a").await.unwrap().remove(0);
    assert_eq!(listed.expires_at, Some(fixture.now() + secs(10)));
    assert_eq!(fixture.changes(before).await.documents, [listed]);
    fixture.clock.advance(secs(9));
    let fixture = &fixture.after_crash().await;
    assert_eq!(fixture.texts("a").await, pairs([("a", "1")]));
    fixture.clock.advance(secs(1));
    assert!(fixture.texts("a").await.is_empty());
    assert_eq!(fixture.changed(before).await, [change("a", None)]);
    fixture.prune_documents().await;
    assert_eq!(fixture.changed(before).await, [change("a", None)], "it is a deletion now");
    assert!(matches!(fixture.put_expecting("a", Some("2"), NONE).await, PutResult::Written(_)));
    fixture.clock.advance(secs(100_000));
    fixture.prune_documents().await;
    let left = pairs([("a", "2"), ("other", "0")]);
    assert_eq!(fixture.texts("").await, left, "the new one has no end");
}

pub async fn nothing_ends_its_time_while_the_clock_is_in_doubt(fixture: &StoreFixture<'_>) {
    let since = fixture.put("other", Some("0")).await;
    fixture.put("deleted", Some("0")).await;
    fixture.put("deleted", None).await;
    fixture.clock.doubt(secs(100_000));
    fixture.clock.advance(secs(7_200));
    fixture.prune_documents().await;
    assert!(!fixture.changes(since).await.complete, "the deletion is still known");
}

pub async fn changes_tell_the_present_state_of_what_changed(fixture: &StoreFixture<'_>) {
    let empty = fixture.changes(NONE).await;
    assert_eq!((empty.upto, empty.documents.len(), empty.complete), (NONE, 0, true));
    fixture.put("a", Some("1")).await;
    let since = fixture.put("b", Some("1")).await;
    fixture.put("c", Some("1")).await;
    fixture.put("c", Some("2")).await;
    fixture.put("new and gone", Some("1")).await;
    fixture.put("new and gone", None).await;
    let upto = fixture.put("a", None).await;
    let fixture = &fixture.after_crash().await;
    let changes = fixture.changes(since).await;
    assert_eq!((changes.upto, changes.complete), (upto, false));
    let expected = [change("a", None), change("c", Some("2")), change("new and gone", None)];
    assert_eq!(fixture.changed(since).await, expected);
    assert!(fixture.changed(upto).await.is_empty());
    let all = fixture.changes(NONE).await;
    assert!(all.complete);
    assert_eq!(all.documents, fixture.store.documents("").await.unwrap());
}

pub async fn waiting_for_changes_ends_with_one_or_in_time(fixture: &StoreFixture<'_>) {
    let since = fixture.put("a", Some("1")).await;
    for json in [Some("2"), None] {
        let since = fixture.changes(since).await.upto;
        let waiting = fixture.store.changes(since, FOREVER);
        tokio::pin!(waiting);
        let asleep = tokio::time::timeout(Duration::from_millis(30), &mut waiting).await.is_err();
        assert!(asleep, "nothing changed yet");
        let version = fixture.put("a", json).await;
        let woken = tokio::time::timeout(secs(20), waiting).await.unwrap().unwrap();
        assert_eq!(woken.upto, version);
        assert_eq!(woken.documents[0].json.as_deref(), json);
    }
    let upto = fixture.changes(since).await.upto;
    let late = fixture.store.changes(upto, Duration::from_millis(5)).await.unwrap();
    assert_eq!((late.upto, late.documents.len(), late.complete), (upto, 0, false));
}

pub async fn forgotten_deletions_are_told_by_listing_everything(fixture: &StoreFixture<'_>) {
    fixture.put("kept", Some("1")).await;
    let since = fixture.put("old", Some("1")).await;
    let deleted = fixture.put("old", None).await;
    fixture.clock.advance(secs(1_800));
    fixture.prune_documents().await;
    assert_eq!(fixture.changed(since).await, [change("old", None)], "within the hour");
    fixture.clock.advance(secs(1_800));
    fixture.prune_documents().await;
    let fixture = &fixture.after_crash().await;
    let changes = fixture.changes(since).await;
    assert!(changes.complete);
    assert_eq!(fixture.changed(since).await, [change("kept", Some("1"))]);
    assert_eq!(changes.upto, deleted);
    assert!(!fixture.changes(deleted).await.complete, "who knew of it misses nothing");
}

pub async fn only_so_many_deletions_are_remembered(fixture: &StoreFixture<'_>) {
    let since = fixture.put("kept", Some("1")).await;
    for number in 0..1_010 {
        let name = format!("short/{number}");
        fixture.put(&name, Some("1")).await;
        fixture.put(&name, None).await;
    }
    let changes = fixture.changes(since).await;
    assert!(changes.complete && changes.documents.len() == 1);
    let late = DocumentVersion(changes.upto.0 - 100);
    let recent = fixture.changes(late).await;
    assert!(!recent.complete && recent.documents.len() == 50, "{}", recent.documents.len());
}

pub async fn a_position_of_another_store_gets_everything(fixture: &StoreFixture<'_>) {
    let upto = fixture.put("a", Some("1")).await;
    let changes = fixture.store.changes(DocumentVersion(upto.0 + 7), FOREVER);
    let changes = tokio::time::timeout(secs(20), changes).await.unwrap().unwrap();
    assert!(changes.complete);
    assert_eq!((changes.upto, changes.documents.len()), (upto, 1));
}
