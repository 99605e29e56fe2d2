//! Converts a mail's HTML to plain text: no tags, line breaks after blocks, and the URL after each link. Knows the HTML
//! that is common in mails, not all of it.

/// Elements that are left out with their content.
const HIDDEN: [&str; 4] = ["style", "script", "head", "title"];
/// Elements on their own lines.
const LINES: [&str; 6] = ["div", "tr", "li", "section", "header", "footer"];
/// Elements with an empty line before and after them.
const BLOCKS: [&str; 12] =
    ["p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "ul", "ol", "hr", "blockquote"];
/// The longest entity.
const ENTITY_MAX: usize = 10;

pub(super) fn to_text(html: &str) -> String {
    let mut text = PlainText::default();
    let mut rest = html;
    while let Some(open) = rest.find('<') {
        text.words(&rest[..open]);
        let tag = &rest[open + 1..];
        if let Some(comment) = tag.strip_prefix("!--") {
            let end = comment.find("-->").map_or(comment.len(), |at| at + 3);
            rest = &comment[end..];
            continue;
        }
        let Some(close) = tag.find('>') else { return text.finish() };
        let (inside, name) = (&tag[..close], name(&tag[..close]));
        rest = &tag[close + 1..];
        if HIDDEN.contains(&name.as_str()) && !inside.starts_with('/') {
            rest = behind(rest, &name);
            continue;
        }
        text.tag(inside, &name);
    }
    text.words(rest);
    text.finish()
}

fn name(tag: &str) -> String {
    let name = tag.trim_start_matches('/').split([' ', '\t', '\r', '\n', '/']).next();
    name.unwrap_or_default().to_ascii_lowercase()
}

/// The text from the end tag of an element on.
fn behind<'a>(html: &'a str, name: &str) -> &'a str {
    let end = format!("</{name}");
    let at =
        html.as_bytes().windows(end.len()).position(|w| w.eq_ignore_ascii_case(end.as_bytes()));
    at.and_then(|at| html.get(at..)).unwrap_or_default()
}

#[derive(Default)]
struct PlainText {
    text: String,
    /// The URL of the open link, and where its words begin.
    link: Option<(String, usize)>,
}

impl PlainText {
    fn tag(&mut self, inside: &str, name: &str) {
        match (name, inside.starts_with('/')) {
            ("a", false) => self.link = href(inside).map(|href| (href, self.text.len())),
            ("a", true) => self.end_link(),
            ("td" | "th", true) if !self.text.ends_with(['\n', ' ']) => self.text.push(' '),
            ("li", false) => {
                self.lines(1);
                self.text.push_str("- ");
            }
            ("br", _) if self.text.trim_end_matches(' ').ends_with('\n') => self.lines(2),
            ("br", _) => self.lines(1),
            (name, _) if LINES.contains(&name) => self.lines(1),
            (name, _) if BLOCKS.contains(&name) => self.lines(2),
            _ => {}
        }
    }

    /// Ends the text with so many line breaks, if there is any text.
    fn lines(&mut self, wanted: usize) {
        self.text.truncate(self.text.trim_end_matches(' ').len());
        let there = self.text.len() - self.text.trim_end_matches('\n').len();
        if !self.text.is_empty() {
            (there..wanted).for_each(|_| self.text.push('\n'));
        }
    }

    /// Adds the URL of a link after its words, unless the words contain it.
    fn end_link(&mut self) {
        let Some((href, begin)) = self.link.take() else { return };
        let words = self.text.get(begin..).unwrap_or_default().trim();
        let bare = href.trim_start_matches("mailto:").trim_start_matches("tel:");
        if words.is_empty() {
            self.text.push_str(bare);
        } else if !words.contains(bare) {
            self.text.truncate(self.text.trim_end_matches(' ').len());
            self.text.push_str(&format!(" ({bare})"));
        }
    }

    fn words(&mut self, raw: &str) {
        let plain = decode(raw);
        let blank = plain.starts_with(char::is_whitespace);
        if blank && !self.text.is_empty() && !self.text.ends_with(['\n', ' ']) {
            self.text.push(' ');
        }
        let words: Vec<_> = plain.split_whitespace().collect();
        self.text.push_str(&words.join(" "));
        if !words.is_empty() && plain.ends_with(char::is_whitespace) {
            self.text.push(' ');
        }
    }

    fn finish(self) -> String {
        self.text.trim().to_owned()
    }
}

/// The URL of a link that works outside of a browser.
fn href(tag: &str) -> Option<String> {
    let at = tag.to_ascii_lowercase().find("href=")? + "href=".len();
    let value = tag.get(at..)?;
    let value = match value.chars().next()? {
        quote @ ('"' | '\'') => value[1..].split(quote).next()?,
        _ => value.split(char::is_whitespace).next()?,
    };
    let href = decode(value.trim());
    let known = ["https://", "http://", "mailto:", "tel:"];
    known.iter().any(|scheme| href.starts_with(scheme)).then_some(href)
}

/// Replaces entities by their characters; unknown ones stay.
fn decode(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(ENTITY_MAX).position(|b| b == b';');
        match end.and_then(|end| Some((entity(&rest[1..end])?, end))) {
            Some((c, end)) => {
                out.push(c);
                rest = &rest[end + 1..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn entity(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let hex = number.strip_prefix(['x', 'X']).map(|hex| u32::from_str_radix(hex, 16));
        return char::from_u32(hex.unwrap_or_else(|| number.parse()).ok()?)
            .filter(|c| !c.is_control() || *c == '\n');
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "copy" => '©',
        "reg" => '®',
        "trade" => '™',
        "euro" => '€',
        "hellip" => '…',
        "ndash" => '–',
        "mdash" => '—',
        "laquo" => '«',
        "raquo" => '»',
        "lsquo" => '‘',
        "rsquo" => '’',
        "ldquo" => '“',
        "rdquo" => '”',
        "bull" => '•',
        "middot" => '·',
        "times" => '×',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mail_can_be_read_without_its_markup() {
        for (html, text) in [
            ("<p>Hello <b>Ada</b>,</p><p>5 &lt; 6<br>bye</p>", "Hello Ada,\n\n5 < 6\nbye"),
            ("<head><STYLE>p{}</STYLE></head><!-- <p>no</p> --><p>yes", "yes"),
            (
                "<a href=\"https://a.example/?x=1&amp;y=2\">Track it</a> now",
                "Track it (https://a.example/?x=1&y=2) now",
            ),
            ("<a href='https://a.example'>https://a.example</a>", "https://a.example"),
            ("<a href=\"https://a.example\"><img src=x></a>", "https://a.example"),
            ("<a href=\"mailto:a@b.example\">write to us</a>", "write to us (a@b.example)"),
            ("<a href=\"#top\">up</a> <a href=\"javascript:x()\">no</a>", "up no"),
            ("<ul><li>pen</li><li>ink</li></ul>end", "- pen\n- ink\n\nend"),
            ("<tr><td>pen</td><td>2</td></tr>", "pen 2"),
            ("caf&#233; &#x2f; &euro;5 &unknown; R&D &#0;", "café / €5 &unknown; R&D &#0;"),
            ("<div>a</div><div>b</div>c<br><br>d", "a\nb\nc\n\nd"),
            ("<p", ""),
            ("ü<a href=ü>x</a>", "üx"),
        ] {
            assert_eq!(to_text(html), text, "{html}");
        }
    }
}
