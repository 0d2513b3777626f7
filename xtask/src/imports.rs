//! The declarations, imports and names of one Rust file without its tests, read from tokens without a grammar.

use std::collections::BTreeSet;

use crate::lex::code;

/// The imports of one file.
#[derive(Debug, Default)]
pub(crate) struct Imports {
    /// Modules that it declares as files (`mod name;`).
    pub(crate) modules: Vec<String>,
    uses: Vec<Use>,
    /// Paths of two names or more, outside of `use`.
    paths: Vec<Vec<String>>,
    /// Single names that may be items: capitalized or called.
    names: BTreeSet<String>,
}

/// One name that a `use` imports.
#[derive(Debug)]
struct Use {
    path: Vec<String>,
    alias: String,
    public: bool,
}

impl Imports {
    pub(crate) fn parse(text: &str) -> Self {
        let code = code(text);
        let tokens = without_tests(&tokens(&code));
        let mut reader = Reader { tokens: &tokens, at: 0, depth: 0, inline: Vec::new(), found: Self::default() };
        while reader.at < tokens.len() {
            reader.step();
        }
        reader.found
    }

    /// Every path through which the code uses something.
    pub(crate) fn taken(&self) -> impl Iterator<Item = &[String]> {
        let own = self.uses.iter().filter(|import| !import.public || self.names.contains(&import.alias));
        own.map(|import| import.path.as_slice()).chain(self.paths.iter().map(Vec::as_slice))
    }

    /// The path behind an imported name.
    pub(crate) fn of(&self, name: &str) -> Option<&[String]> {
        self.uses.iter().find(|import| import.alias == name).map(|import| import.path.as_slice())
    }
}

struct Reader<'a> {
    tokens: &'a [&'a str],
    at: usize,
    /// Open braces.
    depth: usize,
    /// The brace depths of inline modules; within one of them, one `super` is the file itself.
    inline: Vec<usize>,
    found: Imports,
}

impl<'a> Reader<'a> {
    fn token(&self, ahead: usize) -> &'a str {
        self.tokens.get(self.at + ahead).copied().unwrap_or_default()
    }

    fn before(&self) -> &'a str {
        self.at.checked_sub(1).map_or("", |before| self.tokens[before])
    }

    fn step(&mut self) {
        match (self.token(0), self.token(2)) {
            ("mod", ";") => self.found.modules.push(self.token(1).to_owned()),
            ("mod", "{") => self.inline.push(self.depth),
            ("{", _) => self.depth += 1,
            ("}", _) => {
                self.depth = self.depth.saturating_sub(1);
                self.inline.pop_if(|opened| *opened == self.depth);
            }
            ("use", _) => {
                let public = ["pub", ")"].contains(&self.before());
                self.at += 1;
                return self.use_tree(&[], public);
            }
            (word, _) if is_name(word) && !["::", "."].contains(&self.before()) => return self.path(),
            _ => {}
        }
        self.at += 1;
    }

    /// Reads one tree of a `use`, under `prefix`.
    fn use_tree(&mut self, prefix: &[String], public: bool) {
        let mut path = prefix.to_vec();
        loop {
            match self.token(0) {
                "{" => return self.use_group(&path, public),
                "as" => {
                    self.at += 1;
                    break;
                }
                "::" => {}
                // `self` in a group is the module before the braces.
                "self" if !path.is_empty() => {}
                name if is_name(name) || name == "*" => path.push(name.to_owned()),
                _ => break,
            }
            self.at += 1;
        }
        let renamed = self.token(0);
        if is_name(renamed) {
            self.at += 1;
        }
        let alias = if is_name(renamed) { renamed.to_owned() } else { path.last().cloned().unwrap_or_default() };
        self.found.uses.push(Use { path: self.outside(path), alias, public });
    }

    fn use_group(&mut self, prefix: &[String], public: bool) {
        self.at += 1;
        while !["}", ""].contains(&self.token(0)) {
            self.use_tree(prefix, public);
            if self.token(0) != "}" {
                self.at += 1;
            }
        }
        self.at += 1;
    }

    /// Reads a path in code, or a single name.
    fn path(&mut self) {
        let declared = ["fn", "mod", "struct", "enum", "trait", "type", "const", "static"].contains(&self.before());
        let mut path = vec![self.token(0).to_owned()];
        while self.token(1) == "::" && is_name(self.token(2)) {
            path.push(self.token(2).to_owned());
            self.at += 2;
        }
        self.at += 1;
        let capital = path[0].starts_with(char::is_uppercase);
        if path.len() > 1 {
            self.found.paths.push(self.outside(path));
        } else if !declared && (capital || ["(", "!"].contains(&self.token(0))) {
            self.found.names.extend(path);
        }
    }

    /// `path` as it would be written outside of inline modules.
    fn outside(&self, path: Vec<String>) -> Vec<String> {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let dropped = supers.min(self.inline.len());
        let own = (dropped > 0 && dropped == supers).then(|| "self".to_owned());
        own.into_iter().chain(path.into_iter().skip(dropped)).collect()
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Splits code into names, `::`, and single other characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let length = match word {
            0 if rest.starts_with("::") => 2,
            0 => first.len_utf8(),
            word => word,
        };
        tokens.push(&rest[..length]);
        rest = rest[length..].trim_start();
    }
    tokens
}

/// `tokens` without items that are compiled only for tests.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        match attribute_end(tokens, at) {
            Some(end) if is_for_tests(&tokens[at..end]) => at = item_end(tokens, end),
            Some(end) => {
                kept.extend(&tokens[at..end]);
                at = end;
            }
            None => {
                kept.push(tokens[at]);
                at += 1;
            }
        }
    }
    kept
}

/// The end of the attribute that begins at `at`, if there is one.
fn attribute_end(tokens: &[&str], at: usize) -> Option<usize> {
    (tokens[at] == "#" && tokens.get(at + 1) == Some(&"[")).then(|| block_end(tokens, at + 1))
}

fn is_for_tests(attribute: &[&str]) -> bool {
    attribute.starts_with(&["#", "[", "cfg", "("]) && attribute.contains(&"test") && !attribute.contains(&"not")
}

/// The end of the item that begins at `at`, possibly with more attributes: a semicolon or its closing brace.
fn item_end(tokens: &[&str], mut at: usize) -> usize {
    while at < tokens.len() {
        match tokens[at] {
            ";" => return at + 1,
            "{" => return block_end(tokens, at),
            "(" | "[" => at = block_end(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// The end of the bracketed block that begins at `at`.
fn block_end(tokens: &[&str], at: usize) -> usize {
    let mut depth = 0;
    for (end, token) in tokens.iter().enumerate().skip(at) {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return end + 1;
        }
    }
    tokens.len()
}
