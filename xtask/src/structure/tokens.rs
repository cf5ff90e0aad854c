//! Finds paths in token streams: macro calls, bodies of `macro_rules!`, arguments of attributes.

use std::collections::HashSet;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use super::model::{Namespaces, Segments};

/// A path in a token stream, and the namespaces of its last segment.
pub struct TokenPath {
    pub path: Segments,
    pub namespaces: Namespaces,
}

/// Keywords before a declared name.
const DECLARING: [&str; 10] = [
    "fn", "struct", "enum", "union", "trait", "type", "const", "static", "mod", "let",
];

/// Names of the language and its prelude, which macro calls often mention but never declare.
const PRELUDE: [&str; 33] = [
    "Box",
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "Drop",
    "Eq",
    "Err",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "Hash",
    "Into",
    "Iterator",
    "None",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Result",
    "Self",
    "Send",
    "Some",
    "String",
    "Sync",
    "Vec",
    "bool",
    "char",
    "f32",
    "f64",
    "str",
];

/// Returns the paths in `tokens`, groups included.
///
/// A single lower-case identifier counts only if it is called, since most are variables. A single upper-case one counts
/// unless it is declared here.
pub fn paths(tokens: TokenStream) -> Vec<TokenPath> {
    let mut found = Vec::new();
    collect(tokens, &mut found);
    found
}

fn collect(tokens: TokenStream, found: &mut Vec<TokenPath>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => collect(group.stream(), found),
            TokenTree::Ident(_) => {
                let end = path_end(&tokens, at);
                found.extend(path(&tokens, at, end));
                at = end;
                continue;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
        at += 1;
    }
}

/// Returns the index after the last segment of the path that begins at `at`.
fn path_end(tokens: &[TokenTree], at: usize) -> usize {
    let mut end = at + 1;
    while is_double_colon(tokens, end) && ident(tokens.get(end + 2)).is_some() {
        end += 3;
    }
    end
}

fn path(tokens: &[TokenTree], at: usize, end: usize) -> Option<TokenPath> {
    let names: Vec<String> = (at..end)
        .step_by(3)
        .filter_map(|index| ident(tokens.get(index)))
        .collect();
    let before = |steps: usize| at.checked_sub(steps).and_then(|index| tokens.get(index));
    // `$name` is an argument; `$crate` is the crate.
    if is_punct(before(1), '$') && names[0] != "crate" {
        return None;
    }
    // A method or a field, but not the end of a range.
    if is_punct(before(1), '.') && !is_punct(before(2), '.') {
        return None;
    }
    // The name of a lifetime.
    if is_punct(before(1), '\'') {
        return None;
    }
    let leading = at >= 2 && is_double_colon(tokens, at - 2);
    // After generic arguments or `$name`: the rest of a path that begins earlier.
    let continues = matches!(before(3), Some(TokenTree::Ident(_) | TokenTree::Group(_)));
    if leading && (continues || is_punct(before(3), '>')) {
        return None;
    }
    let after = tokens.get(end);
    let is_macro = is_punct(after, '!') && !is_punct(tokens.get(end + 1), '=');
    let is_call = matches!(after, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis);
    if let [name] = names.as_slice() {
        let declared = ident(before(1)).is_some_and(|word| DECLARING.contains(&word.as_str()));
        let upper = name.starts_with(|letter: char| letter.is_uppercase());
        if declared || !(upper || is_call || is_macro) {
            return None;
        }
    }
    let namespaces = if is_macro {
        Namespaces::MACRO
    } else if is_call {
        Namespaces::VALUE
    } else {
        Namespaces::TYPE.and(Namespaces::VALUE)
    };
    let path = Segments { leading, names };
    Some(TokenPath { path, namespaces })
}

/// Returns the identifiers that may be names of items that a macro call declares.
pub fn identifiers(tokens: TokenStream) -> HashSet<String> {
    let mut found = HashSet::new();
    names(tokens, &mut found);
    found
}

fn names(tokens: TokenStream, found: &mut HashSet<String>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => names(group.stream(), found),
            TokenTree::Ident(name) => {
                let qualified = at >= 2 && is_double_colon(&tokens, at - 2);
                let name = unraw(name);
                let known = PRELUDE.contains(&name.as_str()) || is_integer(&name);
                if !known && !qualified && !is_double_colon(&tokens, at + 1) {
                    found.insert(name);
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Returns whether this is the name of an integer type.
fn is_integer(name: &str) -> bool {
    let width = name.strip_prefix(['i', 'u']);
    width.is_some_and(|width| ["8", "16", "32", "64", "128", "size"].contains(&width))
}

/// Returns the string literals in `tokens` that are paths of at least two segments, as in serde's
/// `with = "module::name"`.
pub fn quoted_paths(tokens: TokenStream) -> Vec<Segments> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => found.extend(quoted_paths(group.stream())),
            TokenTree::Literal(literal) => {
                let text = syn::parse_str::<syn::LitStr>(&literal.to_string()).ok();
                let path = text.and_then(|text| text.parse::<syn::Path>().ok());
                found.extend(
                    path.map(|path| segments(&path))
                        .filter(|path| path.names.len() > 1),
                );
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
    found
}

/// Returns a parsed path without its generic arguments.
pub fn segments(path: &syn::Path) -> Segments {
    Segments {
        leading: path.leading_colon.is_some(),
        names: path
            .segments
            .iter()
            .map(|segment| unraw(&segment.ident))
            .collect(),
    }
}

/// Returns the name of an identifier, without `r#`.
pub fn unraw(ident: &proc_macro2::Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#")
        .map_or_else(|| name.clone(), str::to_owned)
}

fn ident(token: Option<&TokenTree>) -> Option<String> {
    match token {
        Some(TokenTree::Ident(name)) => Some(unraw(name)),
        _ => None,
    }
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

fn is_double_colon(tokens: &[TokenTree], at: usize) -> bool {
    matches!(tokens.get(at), Some(TokenTree::Punct(punct)) if punct.as_char() == ':' && punct.spacing() == Spacing::Joint)
        && is_punct(tokens.get(at + 1), ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let found = paths(text.parse().unwrap());
        found.iter().map(|it| it.path.names.join("::")).collect()
    }

    #[test]
    fn paths_and_calls_are_found_in_tokens() {
        assert_eq!(
            found("x, crate::a::B, [super::f(y)], $crate::c, g(1), h!(Z)"),
            ["crate::a::B", "super::f", "crate::c", "g", "h", "Z"]
        );
        assert_eq!(found("..End, a..=b::LAST"), ["End", "b::LAST"]);
    }

    #[test]
    fn variables_fields_methods_and_declarations_are_no_paths() {
        assert_eq!(
            found("x, y.z(), self.a, $t::b, struct S; fn f(), n != m, A::<u8>::c"),
            ["A"]
        );
    }
}
