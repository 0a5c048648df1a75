//! The grammar of `$filter` (protocol §6.2, §6.3). A connective keeps all its operands in one node,
//! so that a chain of a thousand `or`s is flat.

use super::lexer::{BadToken, Lexer, Spanned, Token};
use crate::error::{Code, Error, Result};
use crate::protocol::model::{CompareOp, EdmValue};

/// Maximum nesting of parentheses and `not`.
const MAX_DEPTH: usize = 200;

/// A filter expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    Or(Vec<Expr>),
    And(Vec<Expr>),
    Not(Box<Expr>),
    Compare {
        left: Operand,
        op: CompareOp,
        right: Operand,
    },
    /// An operand in the place of a condition.
    Bare(Operand),
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    Property(String),
    Literal(EdmValue),
}

/// Parses a filter with at most `max_comparisons` comparisons and bare
/// operands. The text is already percent-decoded.
///
/// # Errors
/// [`Code::FilterSyntax`] with the offset, in UTF-16 units, just past the offending
/// token, also for too deep or too long expressions; [`Code::NotImplemented`] for functions,
/// arithmetic and member paths (UNVERIFIED 11); [`Code::InvalidInput`] for `null`.
pub fn parse(text: &str, max_comparisons: usize) -> Result<Expr> {
    let mut parser = Parser {
        text,
        lexer: Lexer::new(text),
        current: Spanned { token: Token::End, end: 0 },
        depth: 0,
        comparisons_left: max_comparisons,
    };
    parser.advance()?;
    let expr = parser.or()?;
    if parser.current.token == Token::End { Ok(expr) } else { Err(parser.unexpected_operator()) }
}

struct Parser<'a> {
    text: &'a str,
    lexer: Lexer,
    current: Spanned,
    depth: usize,
    comparisons_left: usize,
}

impl Parser<'_> {
    fn advance(&mut self) -> Result<Token> {
        let next = self.lexer.token().map_err(|bad| self.bad_token(&bad))?;
        Ok(std::mem::replace(&mut self.current, next).token)
    }

    /// Names an invalid character, as recorded.
    fn bad_token(&self, bad: &BadToken) -> Error {
        let Some(c) = bad.invalid else { return self.syntax_error(bad.end) };
        let position = self.position(bad.end - 1);
        Error::with_message(
            Code::FilterSyntax,
            format!("Syntax error: character '{c}' is not valid at position {position} in '{}'.", self.text),
        )
    }

    /// Converts an offset in characters to UTF-16 units.
    fn position(&self, at: usize) -> usize {
        self.text.chars().take(at).map(char::len_utf16).sum()
    }

    /// Returns an error at an offset in characters.
    fn syntax_error(&self, at: usize) -> Error {
        let position = self.position(at);
        Error::with_message(
            Code::FilterSyntax,
            format!("Syntax error at position {position} in '{}'.", self.text),
        )
    }

    fn unexpected(&self) -> Error {
        self.syntax_error(self.current.end)
    }

    /// Returns the error of the current token in an operator's place.
    fn unexpected_operator(&self) -> Error {
        if self.current.token.is_unsupported_operator() {
            Code::NotImplemented.into()
        } else {
            self.unexpected()
        }
    }

    fn or(&mut self) -> Result<Expr> {
        self.chain("or", Self::and, Expr::Or)
    }

    fn and(&mut self) -> Result<Expr> {
        self.chain("and", Self::unary, Expr::And)
    }

    fn chain(
        &mut self,
        connective: &str,
        part: fn(&mut Self) -> Result<Expr>,
        join: fn(Vec<Expr>) -> Expr,
    ) -> Result<Expr> {
        let first = part(self)?;
        if !self.current.token.is_word(connective) {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.current.token.is_word(connective) {
            self.advance()?;
            parts.push(part(self)?);
        }
        Ok(join(parts))
    }

    fn unary(&mut self) -> Result<Expr> {
        if self.current.token != Token::Not {
            return self.comparison();
        }
        self.advance()?;
        self.nested(|p| Ok(Expr::Not(Box::new(p.unary()?))))
    }

    fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Result<Expr>) -> Result<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.unexpected());
        }
        let expr = inner(self)?;
        self.depth -= 1;
        Ok(expr)
    }

    fn comparison(&mut self) -> Result<Expr> {
        if matches!(self.current.token, Token::Word(_) | Token::Literal(_)) {
            let left = self.comparisons_left.checked_sub(1);
            self.comparisons_left = left.ok_or_else(|| self.unexpected())?;
        }
        let left = self.primary()?;
        let Some(op) = self.current.token.comparison() else { return Ok(left) };
        self.advance()?;
        let right = self.primary()?;
        match (left, right) {
            (Expr::Bare(left), Expr::Bare(right)) => Ok(Expr::Compare { left, op, right }),
            // Comparing the results of conditions is OData that the service does not support.
            _ => Err(Code::NotImplemented.into()),
        }
    }

    fn primary(&mut self) -> Result<Expr> {
        match &self.current.token {
            Token::Open => {
                self.advance()?;
                let inner = self.nested(Self::or)?;
                if self.current.token != Token::Close {
                    return Err(self.unexpected_operator());
                }
                self.advance()?;
                Ok(inner)
            }
            Token::Word(_) | Token::Literal(_) => self.operand(),
            Token::Unsupported => Err(Code::NotImplemented.into()),
            Token::Null => Err(Code::InvalidInput.into()),
            _ => Err(self.unexpected()),
        }
    }

    fn operand(&mut self) -> Result<Expr> {
        let operand = match self.advance()? {
            Token::Word(_) if self.current.token == Token::Open => {
                return Err(Code::NotImplemented.into());
            }
            Token::Word(name) => Operand::Property(name),
            Token::Literal(value) => Operand::Literal(value),
            _ => return Err(self.unexpected()),
        };
        if self.current.token.is_unsupported_operator() {
            return Err(Code::NotImplemented.into());
        }
        Ok(Expr::Bare(operand))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn property(name: &str) -> Operand {
        Operand::Property(name.into())
    }
    fn int(n: i32) -> Operand {
        Operand::Literal(EdmValue::Int32(n))
    }
    fn eq(name: &str, n: i32) -> Expr {
        Expr::Compare { left: property(name), op: CompareOp::Eq, right: int(n) }
    }
    fn parsed(text: &str) -> Expr {
        parse(text, 1000).unwrap_or_else(|e| panic!("{text}: {e}"))
    }
    fn refused(text: &str) -> (Code, String) {
        let error = parse(text, 1000).unwrap_err();
        (error.code, error.text().to_owned())
    }

    #[test]
    fn precedence_is_not_and_or() {
        let tree = Expr::Or(vec![eq("a", 1), Expr::And(vec![eq("b", 2), Expr::Not(Box::new(eq("c", 3)))])]);
        assert_eq!(parsed("a eq 1 or b eq 2 and not c eq 3"), tree);
        assert_eq!(
            parsed("(a eq 1 or b eq 2)and(c eq 3)"),
            Expr::And(vec![Expr::Or(vec![eq("a", 1), eq("b", 2)]), eq("c", 3)])
        );
        assert_eq!(parsed("not(a eq 1)"), Expr::Not(Box::new(eq("a", 1))));
        assert_eq!(parsed("not Flag"), Expr::Not(Box::new(Expr::Bare(property("Flag")))));
        assert_eq!(parsed("  a   eq   1  "), eq("a", 1));
        assert_eq!(parsed("\na\r\n\teq\u{a0}1\u{2028}"), eq("a", 1));
        assert_eq!(parsed("(a) eq (1)"), eq("a", 1));
        assert_eq!(parsed("a eq 1 or b eq 2 or c eq 3"), Expr::Or(vec![eq("a", 1), eq("b", 2), eq("c", 3)]));
    }

    #[test]
    fn literals_have_their_types() {
        use EdmValue::*;
        for (text, value) in [
            ("'it''s'", String("it's".into())),
            ("''", String("".into())),
            ("'a  b'", String("a  b".into())),
            ("5", Int32(5)),
            ("-5", Int32(-5)),
            ("2147483648", Int64(2_147_483_648)),
            ("5L", Int64(5)),
            ("-9223372036854775808l", Int64(i64::MIN)),
            ("3.0", Double(3.0)),
            ("1E3", Double(1000.0)),
            ("1e-2", Double(0.01)),
            ("3D", Double(3.0)),
            ("3d", Double(3.0)),
            ("INF", Double(f64::INFINITY)),
            ("-INF", Double(f64::NEG_INFINITY)),
            ("true", Boolean(true)),
            ("False", Boolean(false)),
            ("X'0aFF'", Binary(vec![10, 255])),
            ("x''", Binary(vec![])),
            ("binary'01'", Binary(vec![1])),
            ("Binary'01'", Binary(vec![1])),
            ("DateTime'9999-12-31'", DateTime(crate::protocol::model::Ticks::parse("9999-12-31").unwrap())),
            (
                "guid'C9DA6455-213D-42C9-9A79-3E9149A57833'",
                Guid(lexical_guid("c9da6455-213d-42c9-9a79-3e9149a57833")),
            ),
            (
                "datetime'2012-11-10T03:04:05.200Z'",
                DateTime(crate::protocol::model::Ticks::parse("2012-11-10T03:04:05.2Z").unwrap()),
            ),
        ] {
            let tree =
                Expr::Compare { left: property("P"), op: CompareOp::Ge, right: Operand::Literal(value) };
            assert_eq!(parsed(&format!("P ge {text}")), tree, "{text}");
        }
    }

    fn lexical_guid(text: &str) -> uuid::Uuid {
        crate::protocol::model::lexical::parse_guid(text).unwrap()
    }

    #[test]
    fn syntax_errors_name_the_end_of_the_offending_token() {
        for (text, position) in [
            ("aaa bbb ccc", 7),
            ("property1 eq 1'invalid'", 23),
            ("a eq", 4),
            ("a eq 1 and", 10),
            ("(a eq 1", 7),
            ("a eq 1)", 7),
            ("a eq 'x", 7),
            ("a Eq 1", 4),
            ("a eq 1 OR b eq 2", 9),
            ("a eq guid'zz'", 13),
            ("a eq datetime'x'", 16),
            ("a eq 1x", 7),
            ("a eq 1e400", 10),
            ("é eq 'ß' x", 10),
            ("a eq '😀' x", 11),
            ("", 0),
            (",", 1),
            ("a eq 1--", 7),
        ] {
            assert_eq!(
                refused(text),
                (Code::FilterSyntax, format!("Syntax error at position {position} in '{text}'.")),
            );
        }
    }

    #[test]
    fn characters_that_begin_no_token_are_named() {
        for (text, c, position) in [("<a", '<', 0), ("a eq \"x\"", '"', 5), ("é eq '😀' & b", '&', 10)] {
            let message =
                format!("Syntax error: character '{c}' is not valid at position {position} in '{text}'.");
            assert_eq!(refused(text), (Code::FilterSyntax, message));
        }
    }

    #[test]
    fn operators_are_names_where_no_operator_may_stand() {
        for word in ["and", "or", "eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "div", "mod"] {
            assert_eq!(parsed(&format!("{word} eq 1")), eq(word, 1));
            let chain = Expr::And(vec![eq("a", 1), eq(word, 2)]);
            assert_eq!(parsed(&format!("a eq 1 and {word} eq 2")), chain);
            assert_eq!(parsed(&format!("not {word}")), Expr::Not(Box::new(Expr::Bare(property(word)))));
            let turned = Expr::Compare { left: int(1), op: CompareOp::Lt, right: property(word) };
            assert_eq!(parsed(&format!("1 lt {word}")), turned);
        }
        assert_eq!(refused("sub sub 1 eq 0").0, Code::NotImplemented);
        assert_eq!(refused("(sub) sub 1").0, Code::NotImplemented);
        for text in ["and a eq 1", "a eq 1 or or b eq 2", "a eq eq 1", "eq 1", "sub 1"] {
            assert_eq!(refused(text).0, Code::FilterSyntax, "{text}");
        }
    }

    #[test]
    fn what_odata_has_and_the_service_does_not_is_not_implemented() {
        for text in [
            "startswith(a,'x')",
            "substringof('x',a) eq true",
            "year(a) eq 2000",
            "a add 1 eq 2",
            "a/b eq 1",
            "(a eq 1) eq true",
            "a eq tolower(b)",
            "-a eq 1",
        ] {
            assert_eq!(refused(text).0, Code::NotImplemented, "{text}");
        }
        for text in ["a eq null", "null eq a"] {
            assert_eq!(refused(text).0, Code::InvalidInput, "{text}");
        }
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let deep = |n: usize| format!("{}a eq 1{}", "(".repeat(n), ")".repeat(n));
        assert!(parse(&deep(MAX_DEPTH), 1000).is_ok());
        assert_eq!(refused(&deep(MAX_DEPTH + 1)).0, Code::FilterSyntax);
        assert_eq!(refused(&deep(100_000)).0, Code::FilterSyntax);
        assert_eq!(refused(&"not ".repeat(100_000)).0, Code::FilterSyntax);
        let long = vec!["a eq 1"; 500].join(" or ");
        assert!(parse(&long, 500).is_ok());
        assert!(parse(&long, 499).is_err());
        assert!(parse("(a) eq 1", 1).is_ok());
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,60}") {
            let _ = parse(&text, 100);
        }

        #[test]
        fn no_token_soup_makes_the_parser_panic(
            words in prop::collection::vec(prop::sample::select(vec![
                "(", ")", "a", "eq", "1", "'x'", "and", "or", "not", "-", "1.", "1e", ".", "guid'", "INF", "-INF", "'",
            ]), 0..20)
        ) {
            let _ = parse(&words.join(" "), 100);
            let _ = parse(&words.concat(), 100);
        }
    }
}
