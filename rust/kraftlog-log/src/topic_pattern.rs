//! Regular expressions over topic names and transactional ids: subscriptions of consumer groups (KIP-848), filters of
//! lists of transactions (KIP-1152).
//!
//! The syntax is that of the `regex` crate, which comes from RE2 as Kafka's RE2/J does: no back references and no
//! look-around, so that a match takes time in proportion to the name and to the size of the compiled pattern. Both
//! are bounded here: nobody else is served while a pattern is compiled or matched against one name.

use regex::bytes::{Regex, RegexBuilder};

/// Most bytes of a pattern, which are compiled in some 5 ms.
pub const PATTERN_BYTES_MAX: usize = 8 * 1024;
/// Most bytes of a pattern with Unicode classes, which cost a hundred times as much each.
pub const UNICODE_PATTERN_BYTES_MAX: usize = 256;
/// Sizes of compiled patterns in bytes, with the time that a match may take in proportion to the first of them. That
/// is 0.04 ms for a name of 249 bytes and a hostile pattern; common ones take less than 0.001 ms.
const SIZES: [(usize, u32); 3] = [(8 * 1024, 1), (32 * 1024, 40), (SIZE_MAX, 250)];
/// A pattern that is larger when compiled is refused.
const SIZE_MAX: usize = 128 * 1024;
const DFA_CACHE_BYTES: usize = 256 * 1024;

/// A pattern that has to match a whole name.
#[derive(Debug)]
pub struct TopicPattern {
    regex: Regex,
    cost: u32,
}

impl TopicPattern {
    /// Compile a pattern for topic names, which are ASCII: Perl classes and case folding are those of ASCII, as in
    /// RE2/J, unless a short pattern needs Unicode.
    ///
    /// # Errors
    /// The reason, in words, if `pattern` is not a regular expression or too large, as text or when compiled.
    pub fn new(pattern: &str) -> Result<Self, String> {
        Self::first_of(pattern, [false, true])
    }

    /// Compile a pattern for any text: a dot is a character instead of a byte, unless the pattern is long.
    ///
    /// # Errors
    /// As for `new`.
    pub fn of_text(pattern: &str) -> Result<Self, String> {
        Self::first_of(pattern, [true, false])
    }

    /// Whether the whole of `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name.as_bytes())
    }

    /// How long a match may take; 1 for a small pattern.
    pub fn cost(&self) -> u32 {
        self.cost
    }

    fn first_of(pattern: &str, modes: [bool; 2]) -> Result<Self, String> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(format!("it has {} bytes, more than {PATTERN_BYTES_MAX}", pattern.len()));
        }
        let mut reason = None;
        for is_unicode in modes {
            if is_unicode && pattern.len() > UNICODE_PATTERN_BYTES_MAX {
                continue;
            }
            if !is_unicode && switches_unicode_on(pattern) {
                reason.get_or_insert_with(|| {
                    format!("a pattern with the flag u has at most {UNICODE_PATTERN_BYTES_MAX} bytes")
                });
                continue;
            }
            match Self::compiled(pattern, is_unicode) {
                Ok(compiled) => return Ok(compiled),
                Err(error) => drop(reason.get_or_insert(error)),
            }
        }
        Err(reason.unwrap_or_default())
    }

    fn compiled(pattern: &str, is_unicode: bool) -> Result<Self, String> {
        // Parentheses of the pattern itself must not close the group that is put around it.
        compile(pattern, is_unicode, SIZE_MAX)?;
        let whole = format!(r"\A(?:{pattern})\z");
        let mut result = Err(String::new());
        for (size_max, cost) in SIZES {
            result = compile(&whole, is_unicode, size_max).map(|regex| Self { regex, cost });
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

/// Whether a group may have the flag `u`, which RE2/J does not know; an escaped parenthesis counts as well.
fn switches_unicode_on(pattern: &str) -> bool {
    pattern.match_indices("(?").any(|(at, found)| {
        let flags = pattern[at + found.len()..].bytes();
        flags.take_while(|byte| byte.is_ascii_alphabetic() || *byte == b'-').any(|byte| byte == b'u')
    })
}

fn compile(pattern: &str, is_unicode: bool, size_max: usize) -> Result<Regex, String> {
    RegexBuilder::new(pattern)
        .unicode(is_unicode)
        .size_limit(size_max)
        .dfa_size_limit(DFA_CACHE_BYTES)
        .build()
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{TopicPattern, PATTERN_BYTES_MAX};

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
            (r"\w{249}", &"a".repeat(249), true),
            (r"\pL+", "abc", true),
            (r"\pL+", "ab1", false),
            (r"(?i)\p{Greek}|[a-ω]+", "abc", true),
            (r"(?u)\w+", "abc", true),
        ] {
            assert_eq!(TopicPattern::new(pattern).unwrap().matches(name), matches, "{pattern} {name}");
            assert_eq!(TopicPattern::of_text(pattern).unwrap().matches(name), matches, "{pattern} {name}");
        }
    }

    #[test]
    fn a_dot_is_a_character_of_a_text() {
        assert!(TopicPattern::of_text("caf.").unwrap().matches("café"));
        assert!(TopicPattern::of_text(r"\w+").unwrap().matches("café"));
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
            &r"\pL".repeat(100),
            &r"(?u:\w)".repeat(100),
            &r"(?i-u)(?iu)k".repeat(100),
            &"a?".repeat(3_000),
            &"a".repeat(PATTERN_BYTES_MAX + 1),
        ] {
            for result in [TopicPattern::new(pattern), TopicPattern::of_text(pattern)] {
                assert!(!result.unwrap_err().is_empty(), "{pattern}");
            }
        }
    }

    #[test]
    fn the_cost_follows_the_compiled_size() {
        assert_eq!(TopicPattern::new("topic-.*").unwrap().cost(), 1);
        assert_eq!(TopicPattern::new(&"a?".repeat(200)).unwrap().cost(), 40);
        assert_eq!(TopicPattern::new(&"a?".repeat(1_000)).unwrap().cost(), 250);
        let names: Vec<_> = (0..300).map(|number| format!("topic{number:03}")).collect();
        assert!(TopicPattern::new(&names.join("|")).unwrap().matches("topic299"));
    }
}
