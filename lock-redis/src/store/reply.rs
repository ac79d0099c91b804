//! A script's reply, field by field, and the grants that it tells.

use std::time::Duration;

use lock_core::{Error, FencingToken, GrantId, Phase};
use redis::Value;

use crate::cause;
use crate::error;

/// The bytes of a wrong field that an error shows.
const SHOWN: usize = 200;

/// A waiter's grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Of the waiter.
    pub nonce: GrantId,
    /// The grant's token.
    pub token: FencingToken,
    /// The time for which it is kept: the waiter's TTL, or a claim time.
    pub valid_for: Duration,
}

/// The fields of a reply, in order.
pub(crate) struct Fields<'s> {
    rest: Rest,
    phase: Phase,
    server: &'s str,
}

/// The fields that have not been read.
enum Rest {
    /// A value each.
    Values(std::vec::IntoIter<Value>),
    /// One text with a colon between two fields, as the short ways of the queue reply: one value costs the server and this client less than
    /// several.
    Text { text: String, read: usize },
}

impl<'s> Fields<'s> {
    /// The fields behind the token that says which request is answered; `None` if that is another one.
    pub(crate) fn answering(token: &str, value: Value, phase: Phase, server: &'s str) -> Option<Self> {
        let rest = match value {
            Value::Array(values) => Rest::Values(values.into_iter()),
            Value::BulkString(bytes) => Rest::Text { text: String::from_utf8(bytes).ok()?, read: 0 },
            _ => return None,
        };
        let mut fields = Self { rest, phase, server };
        let is_answer = fields.text().ok()? == token;
        // A lone text is the answer to another command, such as `ECHO`.
        let is_lone = matches!(fields.rest, Rest::Text { .. }) && fields.is_empty();
        (is_answer && !is_lone).then_some(fields)
    }

    pub(crate) fn is_empty(&self) -> bool {
        match &self.rest {
            Rest::Values(values) => values.as_slice().is_empty(),
            Rest::Text { text, read } => *read > text.len(),
        }
    }

    fn next(&mut self) -> Option<Value> {
        match &mut self.rest {
            Rest::Values(values) => values.next(),
            Rest::Text { text, read } => {
                let rest = text.get(*read..)?;
                let field = rest.split(':').next().unwrap_or(rest);
                *read += field.len() + 1;
                Some(Value::BulkString(field.as_bytes().to_vec()))
            }
        }
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        match self.next() {
            Some(Value::BulkString(bytes)) => Ok(bytes),
            Some(Value::SimpleString(text)) => Ok(text.into_bytes()),
            Some(Value::Int(number)) => Ok(number.to_string().into_bytes()),
            other => Err(self.wrong("a text", &other)),
        }
    }

    pub(crate) fn text(&mut self) -> Result<String, Error> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes).map_err(|e| self.wrong("UTF-8", &Some(Value::BulkString(e.into_bytes()))))
    }

    pub(crate) fn number(&mut self) -> Result<i64, Error> {
        match self.next() {
            Some(Value::Int(number)) => Ok(number),
            Some(Value::BulkString(digits)) => std::str::from_utf8(&digits)
                .ok()
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| self.wrong("a number", &Some(Value::BulkString(digits.clone())))),
            other => Err(self.wrong("a number", &other)),
        }
    }

    /// A number, or a text of a number, a colon and another text.
    pub(crate) fn number_and_text(&mut self) -> Result<(i64, String), Error> {
        if let Rest::Values(values) = &self.rest
            && let Some(Value::BulkString(bytes)) = values.as_slice().first()
            && let Ok(text) = std::str::from_utf8(bytes)
            && let Some((number, text)) = text.split_once(':')
            && let Ok(number) = number.parse()
        {
            let read = (number, text.to_owned());
            self.next();
            return Ok(read);
        }
        Ok((self.number()?, String::new()))
    }

    pub(crate) fn grant_id(&mut self) -> Result<GrantId, Error> {
        self.text()?.parse().map_err(|_| self.wrong("a nonce", &None))
    }

    pub(crate) fn token(&mut self) -> Result<FencingToken, Error> {
        let number = self.number()?;
        u64::try_from(number)
            .ok()
            .and_then(FencingToken::new)
            .ok_or_else(|| self.wrong("a token", &Some(Value::Int(number))))
    }

    pub(crate) fn milliseconds(&mut self) -> Result<Duration, Error> {
        let number = self.number()?;
        u64::try_from(number).map(Duration::from_millis).map_err(|_| self.wrong("a time", &Some(Value::Int(number))))
    }

    /// All that is left: `nonce, token, ms, ...`.
    pub(crate) fn grants(mut self) -> Result<Vec<Granted>, Error> {
        let mut grants = Vec::new();
        while !self.is_empty() {
            grants.push(Granted { nonce: self.grant_id()?, token: self.token()?, valid_for: self.milliseconds()? });
        }
        Ok(grants)
    }

    /// The fields of a field.
    pub(crate) fn inner(&mut self) -> Result<Self, Error> {
        match self.next() {
            Some(Value::Array(values)) => Ok(Self { rest: Rest::Values(values.into_iter()), ..*self }),
            other => Err(self.wrong("an array", &other)),
        }
    }

    /// A field that is a list of texts.
    pub(crate) fn texts(&mut self) -> Result<Vec<String>, Error> {
        let mut inner = self.inner()?;
        let mut texts = Vec::new();
        while !inner.is_empty() {
            texts.push(inner.text()?);
        }
        Ok(texts)
    }

    /// A field that is a flat list of pairs.
    pub(crate) fn pairs(&mut self) -> Result<Vec<(String, String)>, Error> {
        let mut inner = self.inner()?;
        let mut pairs = Vec::new();
        while !inner.is_empty() {
            pairs.push((inner.text()?, inner.text()?));
        }
        Ok(pairs)
    }

    fn wrong(&self, wanted: &str, got: &Option<Value>) -> Error {
        let got = cause::shortened(format!("{got:?}"), SHOWN);
        error::bad_reply(self.phase, self.server, format!("a reply has {got} where {wanted} belongs"))
    }
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;

    use super::*;

    #[test]
    fn only_a_reply_with_the_token_of_the_request_is_read() {
        let text = |text: &str| Value::BulkString(text.into());
        let answering = |value| Fields::answering("abc", value, Phase::Wait, "here");
        for right in [Value::Array(vec![text("abc"), Value::Int(1)]), text("abc:1")] {
            let mut fields = answering(right).unwrap();
            assert_eq!((fields.number().unwrap(), fields.is_empty()), (1, true));
            assert_eq!(fields.number().unwrap_err().kind(), ErrorKind::Protocol);
        }
        let others = ["abd:abc", "abc", "abcd", "abc\u{7f}", "", ":abc"].map(text);
        let others = others
            .into_iter()
            .chain([Value::BulkString(b"abc:\xff".to_vec()), Value::SimpleString("abc:1".to_owned())]);
        for wrong in [Value::Array(vec![text("abd"), text("abc")]), Value::Array(Vec::new()), Value::Nil]
            .into_iter()
            .chain(others)
        {
            assert!(answering(wrong.clone()).is_none(), "{wrong:?}");
        }
    }

    /// A server's answer, or none.
    fn answer(bytes: &[u8]) -> Option<Value> {
        redis::parse_redis_value(bytes).ok().filter(|value| !matches!(value, Value::ServerError(_)))
    }

    #[test]
    fn a_reply_from_outside_is_read_to_its_end_or_refused_in_few_words() {
        const NONCE: &str = "00112233445566778899aabbccddeeff";
        let samples = [
            format!("*4\r\n$3\r\nabc\r\n$32\r\n{NONCE}\r\n:17\r\n:2000\r\n"),
            format!("*4\r\n+abc\r\n+{NONCE}\r\n$2\r\n17\r\n$4\r\n2000\r\n"),
            "*3\r\n$3\r\nabc\r\n:-1\r\n*4\r\n$1\r\na\r\n$1\r\nb\r\n$-1\r\n:3\r\n".to_owned(),
            "*2\r\n$3\r\nabc\r\n%1\r\n+a\r\n,1.5\r\n".to_owned(),
            format!("$59\r\nabc:{NONCE}:1234567890123456:30000\r\n"),
            format!("*3\r\n+abc\r\n+{0}\r\n*2\r\n+a\r\n+{0}\r\n", "long".repeat(200)),
        ];
        let samples: Vec<_> = samples.iter().map(String::as_bytes).collect();
        let read = |value: Value| Fields::answering("abc", value, Phase::Wait, "here");
        lock_testkit::fuzz::bytes("replies", &samples, |bytes| {
            let Some(value) = answer(bytes) else { return };
            let Some(grants) = read(value.clone()) else { return };
            match &value {
                Value::Array(fields) => assert!(!fields.is_empty()),
                text => assert!(matches!(text, Value::BulkString(bytes) if bytes.starts_with(b"abc")), "{text:?}"),
            }
            match grants.grants() {
                Ok(grants) => {
                    let fields = |granted: &Granted| {
                        let nonce = Value::BulkString(granted.nonce.to_string().into_bytes());
                        let token = i64::try_from(u64::from(granted.token)).unwrap();
                        let claim = i64::try_from(granted.valid_for.as_millis()).unwrap();
                        [nonce, Value::Int(token), Value::Int(claim)]
                    };
                    let token = Value::SimpleString("abc".to_owned());
                    let again = std::iter::once(token).chain(grants.iter().flat_map(fields)).collect();
                    assert_eq!(read(Value::Array(again)).unwrap().grants().unwrap(), grants);
                }
                Err(error) => assert!(error.what().len() < 400, "{} bytes", error.what().len()),
            }
            let mut fields = read(value).unwrap();
            while !fields.is_empty() {
                if let Err(error) = fields.inner().and_then(|mut inner| inner.pairs()) {
                    assert!(error.what().len() < 400, "{} bytes", error.what().len());
                }
            }
        });
    }
}
