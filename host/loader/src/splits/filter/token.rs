//! The words of a question about samples.

use std::cmp::Ordering;
use std::fmt;

/// A word of a question.
#[derive(Clone, Debug)]
pub enum Token {
    And,
    Or,
    Not,
    In,
    Open,
    Close,
    Comma,
    /// Whether the comparison of two values fits.
    Compare(fn(Option<Ordering>) -> bool),
    Column(String),
    Whole(i64),
    Number(f64),
    Text(String),
}

/// Of words that can be expected. Comparisons, columns and values differ from everything.
impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        use Token::{And, Close, Comma, In, Not, Open, Or};
        let is_word = matches!(self, And | Or | Not | In | Open | Close | Comma);
        is_word && std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// The word as messages show it.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::And => f.write_str("`and`"),
            Self::Or => f.write_str("`or`"),
            Self::Not => f.write_str("`not`"),
            Self::In => f.write_str("`in`"),
            Self::Open => f.write_str("`(`"),
            Self::Close => f.write_str("`)`"),
            Self::Comma => f.write_str("`,`"),
            Self::Compare(_) => f.write_str("a comparison"),
            Self::Column(name) => write!(f, "`{name}`"),
            Self::Whole(number) => write!(f, "{number}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "'{text}'"),
        }
    }
}

/// Says whether an order is what a comparison asks for.
type Compare = fn(Option<Ordering>) -> bool;

/// Comparisons, a longer one before those that begin like it.
const COMPARISONS: [(&str, Compare); 8] = [
    ("==", |order| order == Some(Ordering::Equal)),
    ("!=", |order| order != Some(Ordering::Equal)),
    ("<>", |order| order != Some(Ordering::Equal)),
    ("<=", |order| order.is_some_and(Ordering::is_le)),
    (">=", |order| order.is_some_and(Ordering::is_ge)),
    ("=", |order| order == Some(Ordering::Equal)),
    ("<", |order| order == Some(Ordering::Less)),
    (">", |order| order == Some(Ordering::Greater)),
];

/// Returns the words of a text, each with the place of its first byte. The error names the first place without a word.
pub fn tokens(text: &str) -> Result<Vec<(usize, Token)>, (usize, String)> {
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, length) = match first {
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            ',' => (Token::Comma, 1),
            '\'' | '"' => quoted(rest, first)
                .map(|(text, length)| (Token::Text(text), length))
                .ok_or_else(|| (at, format!("this text has no end: write {first} behind it")))?,
            '`' => quoted(rest, first)
                .map(|(name, length)| (Token::Column(name), length))
                .ok_or_else(|| (at, "the name of this column has no end: write ` behind it".to_owned()))?,
            _ => match COMPARISONS.into_iter().find(|(sign, _)| rest.starts_with(sign)) {
                Some((sign, fits)) => (Token::Compare(fits), sign.len()),
                None => word(rest).map_err(|what| (at, what))?,
            },
        };
        tokens.push((at, token));
        at += length;
    }
    Ok(tokens)
}

/// Returns a text that begins with a quote, and the bytes up to its end.
fn quoted(rest: &str, quote: char) -> Option<(String, usize)> {
    let (mut text, mut at) = (String::new(), 1);
    loop {
        let end = at + rest[at..].find(quote)?;
        text.push_str(&rest[at..end]);
        at = end + 1;
        if !rest[at..].starts_with(quote) {
            return Some((text, at));
        }
        text.push(quote);
        at += 1;
    }
}

/// Returns a number, a word of the language, or the name of a column.
fn word(rest: &str) -> Result<(Token, usize), String> {
    let is_sign = |at: usize| at == 0 || rest[..at].ends_with(['e', 'E']);
    let is_number = rest.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c));
    let belongs = |(at, c): (usize, char)| match c {
        '+' | '-' => is_number && is_sign(at),
        '.' => is_number,
        c => c.is_alphanumeric() || c == '_',
    };
    let length = rest.char_indices().find(|&next| !belongs(next)).map_or(rest.len(), |(at, _)| at);
    let word = &rest[..length];
    let token = match word.to_ascii_lowercase().as_str() {
        "" => {
            let sign = rest.chars().next().unwrap_or_default();
            return Err(format!("{sign} means nothing here: write texts in quotes, and names of columns in backticks"));
        }
        "and" => Token::And,
        "or" => Token::Or,
        "not" => Token::Not,
        "in" => Token::In,
        _ if !is_number => Token::Column(word.to_owned()),
        _ => match (word.parse::<i64>(), word.parse::<f64>()) {
            (Ok(whole), _) => Token::Whole(whole),
            (_, Ok(number)) if number.is_finite() => Token::Number(number),
            _ => return Err(format!("{word} is no number")),
        },
    };
    Ok((token, length))
}
