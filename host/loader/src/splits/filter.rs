//! A question about samples, such as `label in (1, 2) and not class = 'cat'`.
//!
//! A comparison names a column on its left and values on its right: `=`, `==`, `!=`, `<>`, `<`, `<=`, `>`, `>=`,
//! `in (…)` and `not in (…)`. `and`, `or`, `not` and parentheses combine comparisons. Numbers are written in decimal,
//! texts in single or double quotes; a quote within a text is written twice. A column whose name is not a word is
//! written between backticks.
//!
//! - `token`: the words of a question.

mod token;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use token::{Token, tokens};

/// Most questions within questions.
const DEPTH_MAX: u32 = 100;

/// What samples have in columns.
pub trait Columns {
    /// Returns the number of the column with this name, and whether it has texts; `None` if there is no such column.
    /// The error says why the column cannot be asked.
    fn find(&self, name: &str) -> Result<Option<(usize, bool)>, String>;

    /// Returns the names of all columns that can be asked.
    fn names(&self) -> Vec<String>;

    /// Returns what a sample has in a column.
    fn value(&self, column: usize, sample: u64) -> Value<'_>;

    /// Checks a text with which a column is compared. The error says why no sample can have it.
    fn check(&self, column: usize, text: &str) -> Result<(), String>;
}

/// A value of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'v> {
    /// A whole number.
    Whole(i64),
    /// Another number.
    Number(f64),
    /// A text.
    Text(Cow<'v, str>),
}

impl Value<'_> {
    /// Compares two values; `None` if they have no order, like numbers and NaN.
    fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => Some(one.cmp(other)),
            (Self::Text(one), Self::Text(other)) => Some(one.cmp(other)),
            (one, other) => one.number()?.partial_cmp(&other.number()?),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Whole(number) => Some(*number as f64),
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }
}

/// Why a question cannot be asked.
#[derive(Debug, PartialEq, Eq)]
pub struct FilterError {
    text: String,
    /// First byte of the place in the text.
    at: usize,
    what: String,
}

impl std::error::Error for FilterError {}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, behind) = self.text.split_at(self.at);
        let place = match behind {
            "" => "at the end".to_owned(),
            _ => format!("at `{}`", behind.split_whitespace().next().unwrap_or(behind)),
        };
        write!(f, "`{}`, {place} (character {}): {}", self.text, before.chars().count() + 1, self.what)
    }
}

/// A question about samples.
#[derive(Debug)]
pub struct Filter(Node);

#[derive(Debug)]
enum Node {
    Any(Vec<Node>),
    All(Vec<Node>),
    Not(Box<Node>),
    Compare(usize, fn(Option<Ordering>) -> bool, Value<'static>),
    In(usize, Vec<Value<'static>>),
}

impl Filter {
    /// Reads a question about these columns. The error names the place and what to write there.
    pub fn parse(text: &str, columns: &dyn Columns) -> Result<Self, FilterError> {
        let failed = |(at, what)| FilterError { text: text.to_owned(), at, what };
        let tokens = tokens(text).map_err(failed)?;
        let mut parser = Parser { tokens: &tokens, next: 0, end: text.len(), depth: 0, columns };
        let node = parser.any().map_err(failed)?;
        match parser.peek() {
            None => Ok(Self(node)),
            Some(token) => Err(failed((parser.at(), format!("expected `and`, `or` or the end, found {token}")))),
        }
    }

    /// Returns whether the question is about a column.
    pub fn asks(&self, column: usize) -> bool {
        self.0.asks(column)
    }

    /// Returns whether the answer for a sample is yes.
    pub fn matches(&self, columns: &dyn Columns, sample: u64) -> bool {
        self.0.matches(columns, sample)
    }
}

impl Node {
    fn asks(&self, asked: usize) -> bool {
        match self {
            Self::Any(nodes) | Self::All(nodes) => nodes.iter().any(|node| node.asks(asked)),
            Self::Not(node) => node.asks(asked),
            Self::Compare(column, ..) | Self::In(column, _) => *column == asked,
        }
    }

    fn matches(&self, columns: &dyn Columns, sample: u64) -> bool {
        let is_equal = |one: &Value<'_>, other: &Value<'_>| one.compare(other) == Some(Ordering::Equal);
        match self {
            Self::Any(nodes) => nodes.iter().any(|node| node.matches(columns, sample)),
            Self::All(nodes) => nodes.iter().all(|node| node.matches(columns, sample)),
            Self::Not(node) => !node.matches(columns, sample),
            Self::Compare(column, fits, value) => fits(columns.value(*column, sample).compare(value)),
            Self::In(column, values) => {
                let found = columns.value(*column, sample);
                values.iter().any(|value| is_equal(&found, value))
            }
        }
    }
}

/// What is wrong, and at which byte.
type Wrong = (usize, String);

struct Parser<'t> {
    tokens: &'t [(usize, Token)],
    next: usize,
    /// Bytes of the text.
    end: usize,
    depth: u32,
    columns: &'t dyn Columns,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    /// Returns the place of the next token.
    fn at(&self) -> usize {
        self.tokens.get(self.next).map_or(self.end, |(at, _)| *at)
    }

    fn take(&mut self, wanted: &Token) -> bool {
        let is_there = self.peek() == Some(wanted);
        self.next += usize::from(is_there);
        is_there
    }

    fn expect(&mut self, wanted: &Token) -> Result<(), Wrong> {
        if self.take(wanted) { Ok(()) } else { Err(self.expected(&wanted.to_string())) }
    }

    fn expected(&self, what: &str) -> Wrong {
        let found = self.peek().map_or("the end".to_owned(), Token::to_string);
        (self.at(), format!("expected {what}, found {found}"))
    }

    fn any(&mut self) -> Result<Node, Wrong> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err((self.at(), format!("more than {DEPTH_MAX} questions lie within each other")));
        }
        let mut nodes = vec![self.all()?];
        while self.take(&Token::Or) {
            nodes.push(self.all()?);
        }
        self.depth -= 1;
        Ok(Node::Any(nodes))
    }

    fn all(&mut self) -> Result<Node, Wrong> {
        let mut nodes = vec![self.one()?];
        while self.take(&Token::And) {
            nodes.push(self.one()?);
        }
        Ok(Node::All(nodes))
    }

    fn one(&mut self) -> Result<Node, Wrong> {
        let mut is_inverted = false;
        while self.take(&Token::Not) {
            is_inverted = !is_inverted;
        }
        let node = if self.take(&Token::Open) {
            let node = self.any()?;
            self.expect(&Token::Close)?;
            node
        } else {
            self.comparison()?
        };
        Ok(if is_inverted { Node::Not(Box::new(node)) } else { node })
    }

    fn comparison(&mut self) -> Result<Node, Wrong> {
        let at = self.at();
        let Some(Token::Column(name)) = self.peek() else { return Err(self.expected("a column")) };
        let unknown = || format!("there is no column {name}: the columns are {}", self.columns.names().join(", "));
        let (column, is_text) = self.columns.find(name).map_err(|what| (at, what))?.ok_or_else(|| (at, unknown()))?;
        self.next += 1;
        if let Some(Token::Compare(fits)) = self.peek() {
            self.next += 1;
            return Ok(Node::Compare(column, *fits, self.value(name, column, is_text)?));
        }
        let is_inverted = self.take(&Token::Not);
        if !self.take(&Token::In) {
            return Err(self.expected(if is_inverted { "`in`" } else { "a comparison, such as = or `in`" }));
        }
        self.expect(&Token::Open)?;
        let mut values = vec![self.value(name, column, is_text)?];
        while self.take(&Token::Comma) {
            values.push(self.value(name, column, is_text)?);
        }
        self.expect(&Token::Close)?;
        let node = Node::In(column, values);
        Ok(if is_inverted { Node::Not(Box::new(node)) } else { node })
    }

    /// Takes a value with which a column is compared.
    fn value(&mut self, name: &str, column: usize, is_text: bool) -> Result<Value<'static>, Wrong> {
        let at = self.at();
        let value = match (self.peek(), is_text) {
            (Some(Token::Text(text)), true) => {
                self.columns.check(column, text).map_err(|what| (at, what))?;
                Value::Text(Cow::Owned(text.clone()))
            }
            (Some(Token::Whole(number)), false) => Value::Whole(*number),
            (Some(Token::Number(number)), false) => Value::Number(*number),
            (_, true) => return Err(self.expected(&format!("a text in quotes, since {name} has texts"))),
            (_, false) => return Err(self.expected(&format!("a number, since {name} has numbers"))),
        };
        self.next += 1;
        Ok(value)
    }
}

#[cfg(test)]
mod tests;
