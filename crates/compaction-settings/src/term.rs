//! A small parser for Erlang terms, the notation of `[compactions]` in CouchDB 2.x.
//!
//! Owns atoms, strings, numbers, tuples and lists, and nothing else of the language. Limited in
//! length and depth; never panics.

use crate::number;

/// An Erlang term.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Term {
    Atom(String),
    Text(String),
    Integer(i128),
    Float(f64),
    Tuple(Vec<Self>),
    List(Vec<Self>),
}

/// Maximum length of a text, in bytes.
const MAX_LENGTH: usize = 64 * 1024;
/// Maximum nesting of a text.
const MAX_DEPTH: usize = 16;

/// Why a text is not a term, and at which letter, counted from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("letter {at}: {what}")]
pub(crate) struct TermError {
    at: usize,
    what: &'static str,
}

/// Reads a single term; only white space and comments may follow it.
pub(crate) fn parse(text: &str) -> Result<Term, TermError> {
    if text.len() > MAX_LENGTH {
        return Err(TermError { at: MAX_LENGTH, what: "too long" });
    }
    let mut reader = Reader { letters: text.chars().collect(), at: 0, in_comment: false };
    let term = reader.term(0)?;
    reader.space();
    match reader.peek() {
        None if reader.in_comment => {
            reader.fail("the comment after % swallows the full stop that CouchDB adds at the end")
        }
        None => Ok(term),
        Some(_) => reader.fail("something follows the term"),
    }
}

struct Reader {
    letters: Vec<char>,
    at: usize,
    /// Whether the last comment continues to the end of the text.
    in_comment: bool,
}

impl Reader {
    fn fail<T>(&self, what: &'static str) -> Result<T, TermError> {
        Err(TermError { at: self.at + 1, what })
    }

    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += 1;
        Some(letter)
    }

    fn take(&mut self, wanted: char) -> bool {
        let found = self.peek() == Some(wanted);
        if found {
            self.at += 1;
        }
        found
    }

    fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> String {
        let mut taken = String::new();
        while let Some(letter) = self.peek().filter(|letter| wanted(*letter)) {
            taken.push(letter);
            self.at += 1;
        }
        taken
    }

    /// Skips white space and comments, which run from `%` to the end of the line. CouchDB reads
    /// single bytes, so only ASCII characters count as white space.
    fn space(&mut self) {
        loop {
            self.take_while(|letter| letter <= ' ');
            if !self.take('%') {
                return;
            }
            self.take_while(|letter| letter != '\n');
            self.in_comment = self.peek().is_none();
        }
    }

    fn term(&mut self, depth: usize) -> Result<Term, TermError> {
        if depth > MAX_DEPTH {
            return self.fail("nested too deeply");
        }
        self.space();
        match self.peek() {
            Some('[') => self.sequence(']', depth).map(Term::List),
            Some('{') => self.sequence('}', depth).map(Term::Tuple),
            Some('"') => {
                let mut text = String::new();
                // Adjacent strings are joined.
                while self.peek() == Some('"') {
                    text.push_str(&self.quoted('"')?);
                    self.space();
                }
                Ok(Term::Text(text))
            }
            Some('\'') => self.quoted('\'').map(Term::Atom),
            Some(letter) if letter.is_lowercase() => {
                Ok(Term::Atom(self.take_while(|letter| {
                    letter.is_alphanumeric() || letter == '_' || letter == '@'
                })))
            }
            Some(letter) if letter.is_ascii_digit() || "+-".contains(letter) => self.number(),
            Some(_) => self.fail("no term starts like this"),
            None => self.fail("the term ends too early"),
        }
    }

    fn sequence(&mut self, close: char, depth: usize) -> Result<Vec<Term>, TermError> {
        self.at += 1;
        let mut terms = Vec::new();
        self.space();
        if self.take(close) {
            return Ok(terms);
        }
        loop {
            terms.push(self.term(depth + 1)?);
            self.space();
            if self.take(close) {
                return Ok(terms);
            }
            if !self.take(',') {
                return self.fail(match close {
                    ']' => "a comma or ] is missing",
                    _ => "a comma or } is missing",
                });
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, TermError> {
        self.at += 1;
        let mut text = String::new();
        loop {
            match self.next() {
                None => return self.fail("a quote is not closed"),
                Some(letter) if letter == quote => return Ok(text),
                Some('\\') => text.push(match self.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    Some('s') => ' ',
                    Some(letter) if !letter.is_alphanumeric() => letter,
                    _ => return self.fail("this escape is not supported here"),
                }),
                Some(letter) => text.push(letter),
            }
        }
    }

    fn number(&mut self) -> Result<Term, TermError> {
        let mut text = String::new();
        if let Some(sign) = self.peek().filter(|sign| "+-".contains(*sign)) {
            text.push(sign);
            self.at += 1;
            self.space();
        }
        text += &self.take_while(|letter| letter.is_ascii_alphanumeric() || letter == '.');
        if self.peek() == Some('%') {
            return self.fail("write per cents in quotes, as in \"60%\": % begins a comment");
        }
        match number::number(&text) {
            Some(number::Number::Integer(value)) => Ok(Term::Integer(value)),
            Some(number::Number::Float(value)) => Ok(Term::Float(value)),
            Some(number::Number::Infinity) | None => self.fail("this is not a number"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_terms_of_compaction_rules() {
        let atom = |name: &str| Term::Atom(name.to_owned());
        let text = |text: &str| Term::Text(text.to_owned());
        let read = parse(
            "[ {db_fragmentation,\"70%\"}, % why\n {'to', \"0\" \"6:00\"}, {strict_window, true}, {n, -5, 2.5}, [] ]",
        );
        assert_eq!(
            read,
            Ok(Term::List(vec![
                Term::Tuple(vec![atom("db_fragmentation"), text("70%")]),
                Term::Tuple(vec![atom("to"), text("06:00")]),
                Term::Tuple(vec![atom("strict_window"), atom("true")]),
                Term::Tuple(vec![atom("n"), Term::Integer(-5), Term::Float(2.5)]),
                Term::List(vec![]),
            ]))
        );
    }

    #[test]
    fn refuses_invalid_terms_with_their_place() {
        for (text, error) in [
            ("", "letter 1: the term ends too early"),
            ("[{a, b]", "letter 7: a comma or } is missing"),
            ("[a b]", "letter 4: a comma or ] is missing"),
            ("[a,]", "letter 4: no term starts like this"),
            ("[a].", "letter 4: something follows the term"),
            (
                "[a] % b",
                "letter 8: the comment after % swallows the full stop that CouchDB adds at the end",
            ),
            (
                "[{a, 60%}]",
                "letter 8: write per cents in quotes, as in \"60%\": % begins a comment",
            ),
            ("\u{a0}[a]", "letter 1: no term starts like this"),
            ("\"a", "letter 3: a quote is not closed"),
            ("Variable", "letter 1: no term starts like this"),
            ("1e9", "letter 4: this is not a number"),
            ("<<1>>", "letter 1: no term starts like this"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), error, "{text}");
        }
        let deep = "[".repeat(100);
        assert_eq!(parse(&deep).unwrap_err().to_string(), "letter 18: nested too deeply");
    }

    proptest! {
        #[test]
        fn term_like_text_causes_no_panic(text in "[\\[\\]{},a-c\"'%0-9.\\\\ é-]{0,60}") {
            drop(parse(&text));
        }

        #[test]
        fn arbitrary_characters_cause_no_panic(text in any::<String>()) {
            drop(parse(&text));
        }
    }
}
