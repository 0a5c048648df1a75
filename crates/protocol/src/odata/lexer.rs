//! Tokens of a filter expression (protocol §6.2).

use crate::model::names::is_identifier_start;
use crate::model::{CompareOp, EdmValue, Ticks, lexical};

/// A token.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Token {
    Open,
    Close,
    /// Separates the arguments of a function and the values of a list, in extended queries only.
    Comma,
    Not,
    /// A property, an operator or a function name, depending on its position.
    Word(String),
    Literal(EdmValue),
    /// OData that the Table service does not support: negated operands and member paths.
    Unsupported,
    /// `null`, which only extended queries can compare.
    Null,
    End,
}

impl Token {
    /// Returns whether this is the given word.
    pub(crate) fn is_word(&self, expected: &str) -> bool {
        matches!(self, Token::Word(word) if word == expected)
    }

    /// Returns the comparison operator that this token represents in the position of an operator.
    pub(crate) fn comparison(&self) -> Option<CompareOp> {
        let Token::Word(word) = self else { return None };
        CompareOp::ALL.into_iter().find(|op| op.word() == word)
    }

    /// Returns whether this token, in the position of an operator, is one that Azure does not support.
    pub(crate) fn is_unsupported_operator(&self) -> bool {
        let is_arithmetic = |word: &String| matches!(word.as_str(), "add" | "sub" | "mul" | "div" | "mod");
        matches!(self, Token::Unsupported) || matches!(self, Token::Word(word) if is_arithmetic(word))
    }
}

/// A token with the offset just past it, in characters. Error messages name this offset.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spanned {
    pub token: Token,
    pub end: usize,
}

/// An invalid token, with the offset just past its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadToken {
    pub end: usize,
    /// The last character of the token, if no token begins with this character.
    pub invalid: Option<char>,
}

/// Returns whether no token of Azure's grammar begins with this character.
fn is_invalid(c: char) -> bool {
    !matches!(c, ',' | '=' | '?' | '*' | ':' | '@' | '$' | '-' | '+')
}

/// Splits the text of a filter into tokens.
pub(crate) struct Lexer {
    chars: Vec<char>,
    at: usize,
    /// Whether a comma is a token.
    extended: bool,
}

impl Lexer {
    pub(crate) fn new(text: &str, extended: bool) -> Self {
        Self { chars: text.chars().collect(), at: 0, extended }
    }

    /// Returns the next token; [`Token::End`] after the end of the text.
    pub(crate) fn next_token(&mut self) -> Result<Spanned, BadToken> {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
        let Some(c) = self.peek() else { return Ok(self.spanned(Token::End)) };
        let token = match c {
            '(' => self.take_one(Token::Open),
            ')' => self.take_one(Token::Close),
            ',' if self.extended => self.take_one(Token::Comma),
            '\'' => Token::Literal(EdmValue::String(self.read_quoted()?)),
            '0'..='9' | '.' => self.read_number()?,
            '-' if self.chars[self.at + 1..].starts_with(&['I', 'N', 'F']) => self.read_minus_infinity(),
            '-' | '+' if self.next_is(|c| c.is_ascii_digit() || c == '.') => self.read_number()?,
            // A negated operand, or a member path.
            '-' if self.next_is(|c| c == '(' || is_identifier_start(c)) => self.take_one(Token::Unsupported),
            '/' => self.take_one(Token::Unsupported),
            c if is_identifier_start(c) => self.read_word()?,
            c => return Err(BadToken { end: self.at + 1, invalid: is_invalid(c).then_some(c) }),
        };
        Ok(self.spanned(token))
    }

    fn spanned(&self, token: Token) -> Spanned {
        Spanned { token, end: self.at }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next_is(&self, test: impl Fn(char) -> bool) -> bool {
        self.chars.get(self.at + 1).is_some_and(|c| test(*c))
    }

    fn take_one(&mut self, token: Token) -> Token {
        self.at += 1;
        token
    }

    /// Returns the content of a quoted literal, in which quotes are doubled.
    fn read_quoted(&mut self) -> Result<String, BadToken> {
        self.at += 1;
        let mut text = String::new();
        while let Some(c) = self.peek() {
            self.at += 1;
            if c != '\'' {
                text.push(c);
            } else if self.peek() == Some('\'') {
                self.at += 1;
                text.push('\'');
            } else {
                return Ok(text);
            }
        }
        Err(BadToken { end: self.at, invalid: None })
    }

    fn read_word(&mut self) -> Result<Token, BadToken> {
        let start = self.at;
        while self.peek().is_some_and(unicode_ident::is_xid_continue) {
            self.at += 1;
        }
        let word: String = self.chars[start..self.at].iter().collect();
        if self.peek() == Some('\'') {
            return self.read_typed(&word);
        }
        Ok(match word.as_str() {
            "not" => Token::Not,
            "true" | "True" => Token::Literal(EdmValue::Boolean(true)),
            "false" | "False" => Token::Literal(EdmValue::Boolean(false)),
            "NaN" => Token::Literal(EdmValue::Double(f64::NAN)),
            "INF" => Token::Literal(EdmValue::Double(f64::INFINITY)),
            "null" => Token::Null,
            _ => Token::Word(word),
        })
    }

    fn read_minus_infinity(&mut self) -> Token {
        self.at += "-INF".len();
        Token::Literal(EdmValue::Double(f64::NEG_INFINITY))
    }

    /// Reads `datetime'…'`, `guid'…'`, `X'…'`, `binary'…'`, ignoring the case of the prefix (UNVERIFIED,
    /// accepted only here).
    fn read_typed(&mut self, prefix: &str) -> Result<Token, BadToken> {
        let text = self.read_quoted()?;
        let value = match prefix.to_ascii_lowercase().as_str() {
            "datetime" => Ticks::parse(&text).ok().map(EdmValue::DateTime),
            "guid" => lexical::parse_guid(&text).map(EdmValue::Guid),
            "x" | "binary" => lexical::parse_hex(&text).map(EdmValue::Binary),
            _ => None,
        };
        value.map(Token::Literal).ok_or(BadToken { end: self.at, invalid: None })
    }

    /// Reads digits with an optional sign, fraction, exponent and suffix `L` or `D`.
    fn read_number(&mut self) -> Result<Token, BadToken> {
        let start = self.at;
        if matches!(self.peek(), Some('-' | '+')) {
            self.at += 1;
        }
        while let Some(c) = self.peek() {
            let is_after_exponent = self.at > start && matches!(self.chars[self.at - 1], 'e' | 'E');
            let is_part = c.is_ascii_digit()
                || matches!(c, '.' | 'e' | 'E')
                || (is_after_exponent && matches!(c, '+' | '-'));
            if !is_part {
                break;
            }
            self.at += 1;
        }
        let text: String = self.chars[start..self.at].iter().collect();
        let text = text.trim_start_matches('+');
        let suffix = self.peek().filter(|c| matches!(c, 'L' | 'l' | 'D' | 'd'));
        if suffix.is_some() {
            self.at += 1;
        }
        let value = match suffix {
            Some('L' | 'l') => lexical::parse_integer(text).map(EdmValue::Int64),
            Some(_) => lexical::parse_double(text).map(EdmValue::Double),
            None if text.contains(['.', 'e', 'E']) => lexical::parse_double(text).map(EdmValue::Double),
            None => lexical::parse_integer(text)
                .map(EdmValue::Int32)
                .or_else(|| lexical::parse_integer(text).map(EdmValue::Int64)),
        };
        let has_more_letters = self.peek().is_some_and(unicode_ident::is_xid_continue);
        if has_more_letters { Err(BadToken { end: self.at + 1, invalid: None }) } else { Ok(()) }?;
        value.map(Token::Literal).ok_or(BadToken { end: self.at, invalid: None })
    }
}
