//! The parameters of a page's address, and links to other views with the same tenant.

use url::form_urlencoded;

/// Parameters in their order, without empty ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PageQuery(Vec<(String, String)>);

/// Longer parameters are cut: no field of the API takes more.
const LENGTH_MAX: usize = 1_024;

impl PageQuery {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = form_urlencoded::parse(text.as_bytes()).take(40);
        let pairs = pairs.map(|(name, value)| {
            (name.into_owned(), value.trim().chars().take(LENGTH_MAX).collect::<String>())
        });
        Self(pairs.filter(|(_, value)| !value.is_empty()).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The same with one parameter changed, or left out. A new view begins at its first page.
    pub(super) fn with(&self, name: &str, value: Option<&str>) -> Self {
        let mut pairs = self.0.clone();
        pairs.retain(|(own, _)| own != name && own != "cursor");
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            pairs.push((name.to_owned(), value.to_owned()));
        }
        Self(pairs)
    }

    /// The same with one more parameter.
    pub(super) fn and(&self, name: &str, value: &str) -> Self {
        let mut pairs = self.0.clone();
        pairs.push((name.to_owned(), value.to_owned()));
        Self(pairs)
    }

    /// Only these parameters.
    pub(super) fn only(&self, names: &[&str]) -> Self {
        let kept = self.0.iter().filter(|(name, _)| names.contains(&name.as_str()));
        Self(kept.cloned().collect())
    }

    /// The address of a view.
    pub(super) fn to(&self, path: &str) -> String {
        if self.0.is_empty() {
            return path.to_owned();
        }
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(self.0.iter().map(|(name, value)| (name, value)));
        format!("{path}?{}", text.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_view_begins_at_its_first_page() {
        let query = PageQuery::parse("tenant=acme&state=failed&cursor=x&empty=&q=a%20b");
        assert_eq!(query.get("state"), Some("failed"));
        let other = query.with("state", Some("sent"));
        assert_eq!(other.to("/deliveries"), "/deliveries?tenant=acme&q=a+b&state=sent");
        assert_eq!(query.only(&["tenant"]).with("tenant", None).to("/"), "/");
    }
}
