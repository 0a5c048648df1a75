//! The grammar of `$filter` (protocol §6.2, §6.3). A node holds all operands of a connective, so a chain of a
//! thousand `or`s is flat.

use super::lexer::{BadToken, Lexer, Spanned, Token};
use crate::error::{Code, Error, Result};
use crate::model::{CaseFold, CompareOp, EdmValue, TextTest};

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
    /// An operand in the position of a condition.
    Bare(Operand),
    /// `startswith(operand, needle)` and similar functions, in extended queries only.
    Call {
        test: TextTest,
        operand: Operand,
        needle: EdmValue,
    },
    /// `operand in (values)`, in extended queries only.
    In {
        operand: Operand,
        values: Vec<EdmValue>,
    },
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    Property(String),
    Literal(EdmValue),
    /// `tolower(Property)` or `toupper(Property)`, in extended queries only.
    Folded(CaseFold, String),
    /// `null`, in extended queries only.
    Null,
}

/// The filters that the parser accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grammar {
    /// Maximum number of comparisons, bare operands, function calls and list values together.
    pub max_comparisons: usize,
    /// Whether the parser accepts text functions, lists and `null`, which Azure does not have.
    pub extended: bool,
}

/// Parses a filter. The text must already be percent-decoded.
///
/// # Errors
/// [`Code::FilterSyntax`] with the offset, in UTF-16 units, just past the invalid token, also for expressions that are
/// too deep or too long; [`Code::NotImplemented`] for functions outside the grammar,
/// arithmetic and member paths (UNVERIFIED 11); [`Code::InvalidInput`] for `null` if the grammar lacks it.
pub fn parse(text: &str, grammar: Grammar) -> Result<Expr> {
    let mut parser = Parser {
        text,
        lexer: Lexer::new(text, grammar.extended),
        current: Spanned { token: Token::End, end: 0 },
        depth: 0,
        comparisons_left: grammar.max_comparisons,
        extended: grammar.extended,
    };
    parser.advance()?;
    let expr = parser.parse_or()?;
    if parser.current.token == Token::End { Ok(expr) } else { Err(parser.unexpected_operator()) }
}

struct Parser<'a> {
    text: &'a str,
    lexer: Lexer,
    current: Spanned,
    depth: usize,
    comparisons_left: usize,
    extended: bool,
}

impl Parser<'_> {
    fn advance(&mut self) -> Result<Token> {
        let next = self.lexer.next_token().map_err(|bad| self.bad_token(&bad))?;
        Ok(std::mem::replace(&mut self.current, next).token)
    }

    /// Returns the error of an invalid character, which names the character, as recorded.
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

    /// Returns the error of the current token in the position of an operator.
    fn unexpected_operator(&self) -> Error {
        if self.current.token.is_unsupported_operator() {
            Code::NotImplemented.into()
        } else {
            self.unexpected()
        }
    }

    // The functions that recurse hold no expression on the stack while they do, so that nesting up to the limit uses
    // little stack.
    fn parse_or(&mut self) -> Result<Expr> {
        let (mut any, mut all) = (Vec::new(), Vec::new());
        loop {
            self.parse_unary().map(|part| all.push(part))?;
            if self.skip_word("and")? {
                continue;
            }
            any.push(chain(std::mem::take(&mut all), Expr::And));
            if !self.skip_word("or")? {
                return Ok(chain(any, Expr::Or));
            }
        }
    }

    /// Skips a connective, and returns whether it was there.
    fn skip_word(&mut self, connective: &str) -> Result<bool> {
        let is_there = self.current.token.is_word(connective);
        if is_there {
            self.advance()?;
        }
        Ok(is_there)
    }

    fn parse_unary(&mut self) -> Result<Expr> {
        if self.current.token != Token::Not {
            return self.parse_comparison();
        }
        self.open_nested()?;
        let negated = self.parse_unary().map(|negated| Expr::Not(Box::new(negated)));
        self.depth -= 1;
        negated
    }

    /// Skips a token that begins a nested expression, and counts the depth.
    fn open_nested(&mut self) -> Result<()> {
        self.advance()?;
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(self.unexpected()) } else { Ok(()) }
    }

    fn parse_comparison(&mut self) -> Result<Expr> {
        match self.current.token {
            Token::Word(_) | Token::Literal(_) => self.count_comparison()?,
            Token::Null if self.extended => self.count_comparison()?,
            _ => {}
        }
        self.parse_primary().and_then(|left| self.parse_operator(left))
    }

    fn parse_operator(&mut self, left: Expr) -> Result<Expr> {
        if self.extended && self.current.token.is_word("in") {
            return self.parse_list(left);
        }
        let Some(op) = self.current.token.comparison() else { return self.refuse_null(left) };
        self.advance()?;
        let right = self.parse_right_side()?;
        compare_operands(left, op, right)
    }

    /// Parses the right side of a comparison. `not` binds tighter than a comparison, and its result cannot be
    /// an operand of a comparison.
    fn parse_right_side(&mut self) -> Result<Expr> {
        if self.current.token == Token::Not { self.parse_unary() } else { self.parse_primary() }
    }

    fn count_comparison(&mut self) -> Result<()> {
        let left = self.comparisons_left.checked_sub(1);
        self.comparisons_left = left.ok_or_else(|| self.unexpected())?;
        Ok(())
    }

    /// Refuses `null` alone, with the error of a grammar without `null`.
    fn refuse_null(&self, expr: Expr) -> Result<Expr> {
        if expr == Expr::Bare(Operand::Null) { Err(Code::InvalidInput.into()) } else { Ok(expr) }
    }

    /// Parses `in (value, …)` after its operand.
    fn parse_list(&mut self, left: Expr) -> Result<Expr> {
        let Expr::Bare(operand @ (Operand::Property(_) | Operand::Folded(..))) = left else {
            return Err(self.unexpected());
        };
        self.advance()?;
        self.expect(&Token::Open)?;
        let mut values = Vec::new();
        loop {
            if !values.is_empty() {
                self.count_comparison()?;
            }
            values.push(self.parse_literal()?);
            if self.current.token != Token::Comma {
                break;
            }
            self.advance()?;
        }
        self.expect(&Token::Close)?;
        Ok(Expr::In { operand, values })
    }

    fn parse_literal(&mut self) -> Result<EdmValue> {
        match &self.current.token {
            Token::Literal(_) => {}
            Token::Null => return Err(Code::InvalidInput.into()),
            Token::Word(_) | Token::Unsupported => return Err(Code::NotImplemented.into()),
            _ => return Err(self.unexpected()),
        }
        match self.advance()? {
            Token::Literal(value) => Ok(value),
            _ => Err(self.unexpected()),
        }
    }

    fn expect(&mut self, expected: &Token) -> Result<()> {
        if self.current.token != *expected {
            return Err(self.unexpected_operator());
        }
        self.advance().map(drop)
    }

    fn parse_primary(&mut self) -> Result<Expr> {
        match &self.current.token {
            Token::Open => self.parse_parenthesized(),
            Token::Word(_) | Token::Literal(_) => self.parse_operand(),
            Token::Unsupported => Err(Code::NotImplemented.into()),
            Token::Null if self.extended => {
                self.advance()?;
                Ok(Expr::Bare(Operand::Null))
            }
            Token::Null => Err(Code::InvalidInput.into()),
            _ => Err(self.unexpected()),
        }
    }

    fn parse_parenthesized(&mut self) -> Result<Expr> {
        self.open_nested()?;
        let inner = self.parse_or();
        self.depth -= 1;
        inner.and_then(|inner| self.expect(&Token::Close).map(|()| inner))
    }

    fn parse_operand(&mut self) -> Result<Expr> {
        let operand = match self.advance()? {
            Token::Word(name) if self.current.token == Token::Open => self.parse_function(&name)?,
            Token::Word(name) => Expr::Bare(Operand::Property(name)),
            Token::Literal(value) => Expr::Bare(Operand::Literal(value)),
            _ => return Err(self.unexpected()),
        };
        if self.current.token.is_unsupported_operator() {
            return Err(Code::NotImplemented.into());
        }
        Ok(operand)
    }

    fn parse_function(&mut self, name: &str) -> Result<Expr> {
        let test = match name {
            _ if !self.extended => return Err(Code::NotImplemented.into()),
            "startswith" => TextTest::StartsWith,
            "endswith" => TextTest::EndsWith,
            "contains" | "substringof" => TextTest::Contains,
            "tolower" => return self.parse_folded(CaseFold::Lower).map(Expr::Bare),
            "toupper" => return self.parse_folded(CaseFold::Upper).map(Expr::Bare),
            _ => return Err(Code::NotImplemented.into()),
        };
        self.expect(&Token::Open)?;
        let is_needle_first = name == "substringof";
        let mut needle = if is_needle_first { Some(self.parse_literal()?) } else { None };
        if is_needle_first {
            self.expect(&Token::Comma)?;
        }
        let operand = self.parse_text_operand()?;
        if !is_needle_first {
            self.expect(&Token::Comma)?;
            needle = Some(self.parse_literal()?);
        }
        self.expect(&Token::Close)?;
        let needle = needle.ok_or_else(|| self.unexpected())?;
        Ok(Expr::Call { test, operand, needle })
    }

    /// Parses a property, or a property whose case is changed.
    fn parse_text_operand(&mut self) -> Result<Operand> {
        let name = self.parse_name()?;
        match name.as_str() {
            _ if self.current.token != Token::Open => Ok(Operand::Property(name)),
            "tolower" => self.parse_folded(CaseFold::Lower),
            "toupper" => self.parse_folded(CaseFold::Upper),
            _ => Err(Code::NotImplemented.into()),
        }
    }

    fn parse_folded(&mut self, fold: CaseFold) -> Result<Operand> {
        self.expect(&Token::Open)?;
        let name = self.parse_name()?;
        self.expect(&Token::Close)?;
        Ok(Operand::Folded(fold, name))
    }

    fn parse_name(&mut self) -> Result<String> {
        match &self.current.token {
            Token::Word(_) => {}
            Token::Literal(_) | Token::Unsupported => return Err(Code::NotImplemented.into()),
            _ => return Err(self.unexpected()),
        }
        match self.advance()? {
            Token::Word(name) => Ok(name),
            _ => Err(self.unexpected()),
        }
    }
}

/// Returns the only part, or one node with all parts.
fn chain(mut parts: Vec<Expr>, join: fn(Vec<Expr>) -> Expr) -> Expr {
    if parts.len() == 1 { parts.swap_remove(0) } else { join(parts) }
}

/// Creates the comparison of two operands, or of a function call with a Boolean.
fn compare_operands(left: Expr, op: CompareOp, right: Expr) -> Result<Expr> {
    match (left, right) {
        (Expr::Bare(left), Expr::Bare(right)) => Ok(Expr::Compare { left, op, right }),
        (call @ Expr::Call { .. }, Expr::Bare(Operand::Literal(EdmValue::Boolean(expected)))) => match op {
            CompareOp::Eq | CompareOp::Ne if expected == (op == CompareOp::Eq) => Ok(call),
            CompareOp::Eq | CompareOp::Ne => Ok(Expr::Not(Box::new(call))),
            _ => Err(Code::NotImplemented.into()),
        },
        // Azure does not support comparisons of conditions, which OData has.
        _ => Err(Code::NotImplemented.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: Grammar = Grammar { max_comparisons: 1000, extended: false };
    const EXTENDED: Grammar = Grammar { max_comparisons: 1000, extended: true };

    fn up_to(max_comparisons: usize) -> Grammar {
        Grammar { max_comparisons, extended: false }
    }
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
        parse(text, PLAIN).unwrap_or_else(|e| panic!("{text}: {e}"))
    }
    fn refused(text: &str) -> (Code, String) {
        let error = parse(text, PLAIN).unwrap_err();
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
            ("DateTime'9999-12-31'", DateTime(crate::model::Ticks::parse("9999-12-31").unwrap())),
            (
                "guid'C9DA6455-213D-42C9-9A79-3E9149A57833'",
                Guid(lexical_guid("c9da6455-213d-42c9-9a79-3e9149a57833")),
            ),
            (
                "datetime'2012-11-10T03:04:05.200Z'",
                DateTime(crate::model::Ticks::parse("2012-11-10T03:04:05.2Z").unwrap()),
            ),
        ] {
            let tree =
                Expr::Compare { left: property("P"), op: CompareOp::Ge, right: Operand::Literal(value) };
            assert_eq!(parsed(&format!("P ge {text}")), tree, "{text}");
        }
    }

    fn lexical_guid(text: &str) -> uuid::Uuid {
        crate::model::lexical::parse_guid(text).unwrap()
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

    /// Nested expressions use little stack.
    #[test]
    fn the_deepest_filter_is_parsed_on_a_small_stack() {
        let filters = ["(", "not ", "a eq 1 or a eq 1 and ("].map(|nested| {
            let is_closed = nested.ends_with('(');
            format!("{}a eq 1{}", nested.repeat(MAX_DEPTH), ")".repeat(if is_closed { MAX_DEPTH } else { 0 }))
        });
        let parse_all = move || filters.iter().for_each(|filter| drop(parse(filter, EXTENDED).unwrap()));
        std::thread::Builder::new().stack_size(1 << 20).spawn(parse_all).unwrap().join().unwrap();
    }

    #[test]
    fn depth_and_length_are_bounded() {
        let deep = |n: usize| format!("{}a eq 1{}", "(".repeat(n), ")".repeat(n));
        assert!(parse(&deep(MAX_DEPTH), up_to(1000)).is_ok());
        assert_eq!(refused(&deep(MAX_DEPTH + 1)).0, Code::FilterSyntax);
        assert_eq!(refused(&deep(100_000)).0, Code::FilterSyntax);
        assert_eq!(refused(&"not ".repeat(100_000)).0, Code::FilterSyntax);
        let long = vec!["a eq 1"; 500].join(" or ");
        assert!(parse(&long, up_to(500)).is_ok());
        assert!(parse(&long, up_to(499)).is_err());
        assert!(parse("(a) eq 1", up_to(1)).is_ok());
    }

    fn call(test: TextTest, operand: Operand, needle: &str) -> Expr {
        Expr::Call { test, operand, needle: EdmValue::String(needle.into()) }
    }

    #[test]
    fn extended_queries_have_functions_lists_and_null() {
        let parsed = |text: &str| parse(text, EXTENDED).unwrap_or_else(|e| panic!("{text}: {e}"));
        let lower = || Operand::Folded(CaseFold::Lower, "a".into());
        let text = |text: &str| Operand::Literal(EdmValue::String(text.into()));
        let starts = || call(TextTest::StartsWith, property("a"), "x");
        let compare = |left, op, right| Expr::Compare { left, op, right };
        for (filter, tree) in [
            ("startswith(a,'x')", starts()),
            ("startswith ( a , 'x' )", starts()),
            ("startswith(a,'x') eq true", starts()),
            ("startswith(a,'x') ne false", starts()),
            ("startswith(a,'x') eq false", Expr::Not(Box::new(starts()))),
            ("not startswith(a,'x')", Expr::Not(Box::new(starts()))),
            ("b eq 1 and startswith(a,'x')", Expr::And(vec![eq("b", 1), starts()])),
            ("endswith(a,'it''s')", call(TextTest::EndsWith, property("a"), "it's")),
            ("contains(tolower(a),'')", call(TextTest::Contains, lower(), "")),
            ("substringof('x',a)", call(TextTest::Contains, property("a"), "x")),
            ("tolower(a) eq 'x'", compare(lower(), CompareOp::Eq, text("x"))),
            (
                "'X' lt toupper(a)",
                compare(text("X"), CompareOp::Lt, Operand::Folded(CaseFold::Upper, "a".into())),
            ),
            ("a eq null", compare(property("a"), CompareOp::Eq, Operand::Null)),
            ("null ne a", compare(Operand::Null, CompareOp::Ne, property("a"))),
            (
                "a in (1, 'x')",
                Expr::In {
                    operand: property("a"),
                    values: vec![EdmValue::Int32(1), EdmValue::String("x".into())],
                },
            ),
            ("in in(1)", Expr::In { operand: property("in"), values: vec![EdmValue::Int32(1)] }),
            ("startswith eq 1", eq("startswith", 1)),
        ] {
            assert_eq!(parsed(filter), tree, "{filter}");
        }
    }

    #[test]
    fn what_extended_queries_lack_is_refused() {
        for (text, code) in [
            ("startswith(a,b)", Code::NotImplemented),
            ("startswith('x',a)", Code::NotImplemented),
            ("substringof(a,'x')", Code::NotImplemented),
            ("startswith(trim(a),'x')", Code::NotImplemented),
            ("length(a) eq 1", Code::NotImplemented),
            ("StartsWith(a,'x')", Code::NotImplemented),
            ("startswith(a,'x') lt true", Code::NotImplemented),
            ("a in (b)", Code::NotImplemented),
            ("startswith(a,'x'", Code::FilterSyntax),
            ("startswith(a)", Code::FilterSyntax),
            ("startswith(a,)", Code::FilterSyntax),
            ("startswith(a,'x','y')", Code::FilterSyntax),
            ("a in ()", Code::FilterSyntax),
            ("a in (1,)", Code::FilterSyntax),
            ("a in 1", Code::FilterSyntax),
            ("1 in (1)", Code::FilterSyntax),
            ("a, b", Code::FilterSyntax),
            ("a in (null)", Code::InvalidInput),
            ("null", Code::InvalidInput),
        ] {
            assert_eq!(parse(text, EXTENDED).map_err(|error| error.code), Err(code), "{text}");
        }
    }

    #[test]
    fn calls_and_values_count_as_comparisons() {
        for (text, comparisons) in [
            ("startswith(a,'x') and b eq null", 2),
            ("a in (1,2,3) or null eq b", 4),
            ("tolower(a) eq 'x'", 1),
        ] {
            let parse_with = |max_comparisons| parse(text, Grammar { max_comparisons, extended: true });
            assert!(parse_with(comparisons).is_ok(), "{text}");
            assert_eq!(
                parse_with(comparisons - 1).map_err(|error| error.code),
                Err(Code::FilterSyntax),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC{0,60}") {
            let _ = parse(&text, PLAIN);
            let _ = parse(&text, EXTENDED);
        }

        #[test]
        fn no_token_soup_makes_the_parser_panic(
            words in prop::collection::vec(prop::sample::select(vec![
                "(", ")", "a", "eq", "1", "'x'", "and", "or", "not", "-", "1.", "1e", ".", "guid'", "INF", "-INF", "'",
            ]), 0..20)
        ) {
            let _ = parse(&words.join(" "), PLAIN);
            let _ = parse(&words.concat(), PLAIN);
        }

        /// The extended grammar changes only the results of filters that Azure does not support.
        #[test]
        fn both_grammars_agree_on_what_the_service_knows(
            words in prop::collection::vec(prop::sample::select(vec![
                "(", ")", ",", "a", "b", "eq", "ne", "1", "'x'", "and", "or", "not", "in", "null", "true",
                "startswith", "endswith", "contains", "substringof", "tolower", "toupper", "year", "-",
            ]), 0..20),
            max_comparisons in 0_usize..6,
        ) {
            let text = words.join(" ");
            let plain = parse(&text, up_to(max_comparisons));
            let extended = parse(&text, Grammar { max_comparisons, extended: true });
            let may_differ = match &plain {
                Ok(_) => false,
                Err(error) => match error.code {
                    Code::NotImplemented => true,
                    Code::InvalidInput => words.contains(&"null"),
                    _ => words.contains(&"in"),
                },
            };
            prop_assert!(may_differ || plain == extended, "{text}: {plain:?}, {extended:?}");
        }
    }
}
