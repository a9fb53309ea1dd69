//! Reads Rust source as far as the rules need: tokens without comments and strings, and the paths they spell.

/// A word or a mark, and the line it stands on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) text: String,
    pub(crate) line: usize,
}

/// A path as written, such as `crate::slab::Pool`, with its `use` tree unfolded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourcePath {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    /// How many inline modules (`mod tests { }`) enclose it: each takes one `super`.
    pub(crate) depth: usize,
}

/// One file under `src/`, by its path below it.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) tokens: Vec<Token>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Source { path: path.into(), text: text.into(), tokens: tokens(&blank_out(text)) }
    }

    /// The module path below the crate root: `a/mod.rs` and `a.rs` are `[a]`, `lib.rs` is `[]`.
    pub(crate) fn module(&self) -> Vec<String> {
        let mut parts: Vec<String> = self.path.trim_end_matches(".rs").split('/').map(Into::into).collect();
        if matches!(parts.last().map(String::as_str), Some("mod")) || parts == ["lib"] {
            parts.pop();
        }
        parts
    }

    /// Lines that hold code: not blank and not comment alone.
    pub(crate) fn code_lines(&self) -> usize {
        blank_out(&self.text).lines().filter(|line| !line.trim().is_empty()).count()
    }

    /// Every path of two segments or more, `use` trees unfolded.
    pub(crate) fn paths(&self) -> Vec<SourcePath> {
        let mut found = Vec::new();
        let mut at = 0;
        let mut depth = InlineModules::default();
        while at < self.tokens.len() {
            depth.pass(&self.tokens, at);
            if is_word(&self.tokens[at].text) && self.text_at(at + 1) == "::" {
                let enclosing = depth.open.len();
                at = self.tree(at, &[], enclosing, &mut found);
            } else {
                at += 1;
            }
        }
        found
    }

    /// Whether a mark or word occurs outside comments and strings, and on which lines.
    pub(crate) fn lines_with(&self, word: &str) -> Vec<usize> {
        self.tokens.iter().filter(|token| token.text == word).map(|token| token.line).collect()
    }

    fn text_at(&self, at: usize) -> &str {
        self.tokens.get(at).map_or("", |token| &token.text)
    }

    /// Reads one `a::b::{c, d::*}` from `at` and returns where it ends.
    fn tree(&self, mut at: usize, stem: &[String], depth: usize, found: &mut Vec<SourcePath>) -> usize {
        let mut segments = stem.to_vec();
        let Some(line) = self.tokens.get(at).map(|token| token.line) else { return at };
        loop {
            let text = self.text_at(at);
            if text == "{" {
                at += 1;
                while !matches!(self.text_at(at), "}" | "") {
                    at = self.tree(at, &segments, depth, found);
                    while !matches!(self.text_at(at), "," | "}" | "") {
                        at += 1; // `as name`
                    }
                    if self.text_at(at) == "," {
                        at += 1;
                    }
                }
                return at + 1;
            }
            if text == "*" || is_word(text) {
                segments.push(text.to_string());
                at += 1;
            } else {
                at += usize::from(segments.len() == stem.len()); // not a path after all: step over it
                break;
            }
            if self.text_at(at) == "::" {
                at += 1;
            } else {
                break;
            }
        }
        found.push(SourcePath { segments, line, depth });
        at
    }
}

/// Follows `mod name { ... }` by counting braces.
#[derive(Default)]
struct InlineModules {
    braces: usize,
    open: Vec<usize>,
}

impl InlineModules {
    fn pass(&mut self, tokens: &[Token], at: usize) {
        match tokens[at].text.as_str() {
            "{" => {
                if at >= 2 && tokens[at - 2].text == "mod" && is_word(&tokens[at - 1].text) {
                    self.open.push(self.braces);
                }
                self.braces += 1;
            }
            "}" => {
                self.braces = self.braces.saturating_sub(1);
                if self.open.last() == Some(&self.braces) {
                    self.open.pop();
                }
            }
            _ => {}
        }
    }
}

fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn tokens(code: &str) -> Vec<Token> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let length = if first.is_alphanumeric() || first == '_' {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            found.push(Token { text: rest[..length].trim_start_matches("r#").into(), line: number + 1 });
            rest = rest[length..].trim_start();
        }
    }
    found
}

/// Returns the text with comments replaced by spaces and the inside of strings and characters by quotes,
/// line for line. Documentation comments are comments.
pub(crate) fn blank_out(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (end, filler) = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => (line_end(&chars, at), ' '),
            '/' if chars.get(at + 1) == Some(&'*') => (block_comment_end(&chars, at), ' '),
            '"' => (string_end(&chars, at), '"'),
            'r' if !after_word(&chars, at) && raw_hashes(&chars, at).is_some() => {
                (raw_string_end(&chars, at), '"')
            }
            '\'' => (char_end(&chars, at), '"'),
            c => {
                out.push(c);
                at += 1;
                continue;
            }
        };
        for &c in &chars[at..end] {
            out.push(if c == '\n' { '\n' } else { filler });
        }
        at = end;
    }
    out
}

fn line_end(chars: &[char], from: usize) -> usize {
    chars[from..].iter().position(|&c| c == '\n').map_or(chars.len(), |length| from + length)
}

fn block_comment_end(chars: &[char], from: usize) -> usize {
    let mut depth = 0;
    let mut at = from;
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (depth, at) = (depth + 1, at + 2),
            ('*', Some('/')) => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], from: usize) -> usize {
    let mut at = from + 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// Whether the `r` at `at` ends a longer word; `br` and `cr` before a quote are string openings, too.
fn after_word(chars: &[char], at: usize) -> bool {
    let word = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric() || *c == '_');
    let before = at.checked_sub(1).and_then(|at| chars.get(at));
    match before {
        Some('b' | 'c') => word(at.checked_sub(2).and_then(|at| chars.get(at))),
        before => word(before),
    }
}

fn raw_hashes(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|&&c| c == '#').count();
    (chars.get(at + 1 + hashes) == Some(&'"')).then_some(hashes)
}

fn raw_string_end(chars: &[char], from: usize) -> usize {
    let hashes = raw_hashes(chars, from).unwrap_or(0);
    let mut at = from + hashes + 2;
    while at < chars.len() {
        if chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    chars.len()
}

/// A character literal's end, or the next character where the quote opens a lifetime.
fn char_end(chars: &[char], from: usize) -> usize {
    match (chars.get(from + 1), chars.get(from + 2)) {
        (Some('\\'), _) => {
            chars[from + 3..].iter().position(|&c| c == '\'').map_or(chars.len(), |length| from + 4 + length)
        }
        (Some(_), Some('\'')) => from + 3,
        _ => from + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        Source::new("a/b.rs", text).paths().iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn use_trees_are_unfolded() {
        assert_eq!(
            paths(
                "use crate::{error::{Error, Result as R}, sys::*, tensor};\nfn f() { crate::slab::Pool::new() }"
            ),
            [
                "crate::error::Error",
                "crate::error::Result",
                "crate::sys::*",
                "crate::tensor",
                "crate::slab::Pool::new"
            ]
        );
        assert_eq!(
            paths("use std::sync::atomic::{self, AtomicU64};").last().unwrap(),
            "std::sync::atomic::AtomicU64"
        );
        assert_eq!(paths("a::<b>::c; x: [crate::a::B; 2]"), ["a", "crate::a::B"]);
    }

    #[test]
    fn comments_and_strings_are_no_code() {
        let text = "// crate::slab::A\n/* crate::slab /* nested */ crate::sys::A */\n\
                    let s = \"crate::slab::B\"; let r = r#\"crate::slab::\"C\"#; let b = br\"crate::sys::D\";\n\
                    let c = '\"'; let d = '\\''; fn f<'a>(x: &'a crate::error::E) {} \"a\\\"crate::sys::F\"";
        assert_eq!(paths(text), ["crate::error::E"]);
        assert!(Source::new("x.rs", "// unsafe\nlet s = \"unsafe\";").lines_with("unsafe").is_empty());
    }

    #[test]
    fn lines_are_kept() {
        let source = Source::new("x.rs", "/* a\n b */\nlet s = \"x\ny\";\n\nunsafe {}\n");
        assert_eq!(source.lines_with("unsafe"), [6]);
        assert_eq!(source.code_lines(), 3);
    }

    #[test]
    fn inline_modules_add_depth() {
        let source = Source::new(
            "a/b.rs",
            "use super::x;\nmod tests { use super::super::y; fn f() {} }\nuse super::z;",
        );
        let depths: Vec<usize> = source.paths().iter().map(|path| path.depth).collect();
        assert_eq!(depths, [0, 1, 0]);
    }

    #[test]
    fn module_paths_follow_the_file_names() {
        let module = |path| Source::new(path, "").module().join("::");
        assert_eq!(module("slab/mod.rs"), "slab");
        assert_eq!(module("slab/layout.rs"), "slab::layout");
        assert_eq!(module("error.rs"), "error");
        assert_eq!(module("lib.rs"), "");
    }
}
