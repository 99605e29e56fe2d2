//! How the parts of a server use the store's documents: they write some, and follow those that other nodes write.

use std::collections::{HashMap, HashSet};

use postrider_core::ports::store::{
    Document, DocumentChanges, DocumentVersion, Documents, PutResult, StoreResult,
};

/// Writes or deletes a document, whatever its version is.
pub(crate) async fn overwrite(
    store: &(impl Documents + ?Sized),
    name: &str,
    json: Option<&str>,
) -> StoreResult<DocumentVersion> {
    Ok(match store.put_document(name, json, None, None).await? {
        PutResult::Written(version) => version,
        PutResult::Conflict(present) => {
            present.map_or(DocumentVersion::NONE, |found| found.version)
        }
    })
}

/// Documents that a part wrote itself, and has applied already. They come back as changes.
#[derive(Debug, Default)]
pub(crate) struct OwnWrites(HashMap<String, DocumentVersion>);

impl OwnWrites {
    pub(crate) fn note(&mut self, name: &str, version: DocumentVersion) {
        self.0.insert(name.to_owned(), version);
    }

    /// What changes mean for a part: names with their texts, none if a document is gone. Own writes are left out, and
    /// so is everything before them. `known` returns the names of the documents that the part has applied.
    pub(crate) fn news<'a>(
        &mut self,
        changes: &'a DocumentChanges,
        is_of_part: impl Fn(&str) -> bool,
        known: impl FnOnce() -> Vec<String>,
    ) -> Vec<(String, Option<&'a str>)> {
        let listed = changes.documents.iter();
        let listed = listed.filter(|document| is_of_part(&document.name) && self.is_new(document));
        let mut news: Vec<_> =
            listed.map(|document| (document.name.clone(), document.json.as_deref())).collect();
        if changes.complete {
            let listed = changes.documents.iter().map(|document| document.name.as_str());
            let listed: HashSet<&str> = listed.collect();
            let is_newer = |name: &str| self.0.get(name).is_some_and(|own| *own > changes.upto);
            let gone = known().into_iter();
            let gone = gone.filter(|name| !listed.contains(name.as_str()) && !is_newer(name));
            news.extend(gone.map(|name| (name, None)));
        }
        self.0.retain(|_, own| *own > changes.upto);
        news
    }

    fn is_new(&self, document: &Document) -> bool {
        self.0.get(&document.name).is_none_or(|own| document.version > *own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(name: &str, version: u64, json: Option<&str>) -> Document {
        Document {
            name: name.to_owned(),
            version: DocumentVersion(version),
            json: json.map(str::to_owned),
            expires_at: None,
        }
    }

    fn changes(upto: u64, complete: bool, documents: Vec<Document>) -> DocumentChanges {
        DocumentChanges { upto: DocumentVersion(upto), documents, complete }
    }

    #[test]
    fn own_writes_are_not_news_and_neither_is_what_was_before_them() {
        let mut own = OwnWrites::default();
        own.note("a", DocumentVersion(3));
        own.note("b", DocumentVersion(9));
        let seen = vec![
            document("a", 3, Some("own")),
            document("b", 4, Some("older than the own one")),
            document("c", 5, None),
            document("other/d", 6, Some("1")),
        ];
        let seen = changes(6, false, seen);
        let ours = |name: &str| !name.starts_with("other/");
        assert_eq!(own.news(&seen, ours, Vec::new), [("c".to_owned(), None)]);
        let seen = changes(10, false, vec![document("b", 10, Some("2"))]);
        assert_eq!(own.news(&seen, ours, Vec::new), [("b".to_owned(), Some("2"))]);
        assert!(own.0.is_empty(), "what was followed is forgotten");
    }

    #[test]
    fn what_a_complete_list_lacks_is_gone_unless_it_was_written_since() {
        let mut own = OwnWrites::default();
        own.note("new", DocumentVersion(8));
        let seen = changes(7, true, vec![document("a", 1, Some("1"))]);
        let known = || ["a", "gone", "new"].map(str::to_owned).to_vec();
        let news = own.news(&seen, |_| true, known);
        assert_eq!(news, [("a".to_owned(), Some("1")), ("gone".to_owned(), None)]);
    }
}
