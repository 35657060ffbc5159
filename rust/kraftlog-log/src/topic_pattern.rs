//! Regular expressions over topic names, for the subscriptions of consumer groups (KIP-848).
//!
//! The syntax is that of the `regex` crate, which comes from RE2 as Kafka's RE2/J does: no back references and no
//! look-around, so that a match takes time in proportion to the name.

use regex::Regex;

/// Most bytes of a compiled pattern; a longer one is refused.
const SIZE_MAX: usize = 1 << 20;

/// A pattern that has to match a whole topic name.
#[derive(Debug)]
pub struct TopicPattern(Regex);

impl TopicPattern {
    /// Compile `pattern`.
    ///
    /// # Errors
    /// The reason, in words, if `pattern` is not a regular expression or too large when compiled.
    pub fn new(pattern: &str) -> Result<Self, String> {
        // Parentheses of the pattern itself must not close the group that is put around it.
        compile(pattern)?;
        compile(&format!(r"\A(?:{pattern})\z")).map(Self)
    }

    /// Whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

fn compile(pattern: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(pattern)
        .size_limit(SIZE_MAX)
        .dfa_size_limit(SIZE_MAX)
        .build()
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::TopicPattern;

    #[test]
    fn matches_whole_names_only() {
        for (pattern, name, matches) in [
            ("foo.*", "foo-1", true),
            ("foo.*", "a-foo", false),
            ("foo", "foobar", false),
            ("a|ab", "ab", true),
            ("", "", true),
            ("(?i)FOO", "foo", true),
            ("[[:alpha:]]+", "abc", true),
        ] {
            assert_eq!(TopicPattern::new(pattern).unwrap().matches(name), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn refuses_what_is_no_pattern_or_too_large() {
        for pattern in [
            "[",
            "a)(b",
            "(",
            "*",
            r"(a)\1",
            "(?=a)",
            "(?<!a)b",
            "a{9999999}",
            r"(?x)a #",
            "((a{100}){100}){100}",
        ] {
            assert!(TopicPattern::new(pattern).is_err(), "{pattern}");
        }
    }
}
