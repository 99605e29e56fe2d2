//! Licence expressions of SPDX: whether one of them can be satisfied with allowed licences only.

/// Whether an expression such as `MIT OR (Apache-2.0 AND ISC)` can be satisfied. The old form with `/` means `OR`.
pub(crate) fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut reader = LicenceReader { words: &words, allowed };
    let result = reader.any_of();
    result && reader.words.is_empty()
}

struct LicenceReader<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl LicenceReader<'_> {
    fn any_of(&mut self) -> bool {
        let mut result = self.all_of();
        while self.takes("OR") {
            result |= self.all_of();
        }
        result
    }

    fn all_of(&mut self) -> bool {
        let mut result = self.one();
        while self.takes("AND") {
            result &= self.one();
        }
        result
    }

    fn one(&mut self) -> bool {
        if self.takes("(") {
            let result = self.any_of();
            return self.takes(")") && result;
        }
        let Some((name, rest)) = self.words.split_first() else { return false };
        self.words = rest;
        let mut name = (*name).to_owned();
        if self.takes("WITH") {
            let Some((exception, rest)) = self.words.split_first() else { return false };
            self.words = rest;
            name = format!("{name} WITH {exception}");
        }
        self.allowed.contains(&name)
    }

    fn takes(&mut self, word: &str) -> bool {
        match self.words.split_first() {
            Some((first, rest)) if *first == word => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_satisfied_by_allowed_licences_only() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"];
        let allowed: Vec<_> = allowed.map(str::to_owned).to_vec();
        for good in [
            "MIT",
            "MIT OR GPL-3.0",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "GPL-2.0 OR Apache-2.0 WITH LLVM-exception",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in [
            "",
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT",
            "MIT Apache-2.0",
            "GPL-2.0 WITH LLVM-exception",
        ] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }
}
