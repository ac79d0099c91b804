//! Reads a script's reply field by field.

use std::time::Duration;

use lock_core::{Error, FencingToken, GrantId, Phase};
use redis::Value;

use crate::error;
use crate::queue::Granted;

/// The fields of a reply, in order.
pub(crate) struct Fields {
    rest: std::vec::IntoIter<Value>,
    phase: Phase,
    server: String,
}

impl Fields {
    /// What stands behind the token that says which request is answered; `None` if that is another one.
    pub(crate) fn answering(token: &str, value: Value, phase: Phase, server: &str) -> Option<Self> {
        let Value::Array(fields) = value else { return None };
        let mut fields = Self { rest: fields.into_iter(), phase, server: server.to_owned() };
        (fields.text().ok()? == token).then_some(fields)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.as_slice().is_empty()
    }

    pub(crate) fn bytes(&mut self) -> Result<Vec<u8>, Error> {
        match self.rest.next() {
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
        match self.rest.next() {
            Some(Value::Int(number)) => Ok(number),
            Some(Value::BulkString(digits)) => std::str::from_utf8(&digits)
                .ok()
                .and_then(|digits| digits.parse().ok())
                .ok_or_else(|| self.wrong("a number", &Some(Value::BulkString(digits.clone())))),
            other => Err(self.wrong("a number", &other)),
        }
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

    /// All that is left: `nonce, token, claim ms, ...`.
    pub(crate) fn grants(mut self) -> Result<Vec<Granted>, Error> {
        let mut grants = Vec::new();
        while !self.is_empty() {
            grants.push(Granted { nonce: self.grant_id()?, token: self.token()?, claim: self.milliseconds()? });
        }
        Ok(grants)
    }

    /// The fields of a field.
    pub(crate) fn inner(&mut self) -> Result<Self, Error> {
        match self.rest.next() {
            Some(Value::Array(values)) => {
                Ok(Self { rest: values.into_iter(), phase: self.phase, server: self.server.clone() })
            }
            other => Err(self.wrong("an array", &other)),
        }
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
        error::bad_reply(self.phase, &self.server, format!("a reply has {got:?} where {wanted} belongs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reply_with_the_token_of_the_request_is_read() {
        let text = |text: &str| Value::BulkString(text.into());
        let answering = |value| Fields::answering("abc", value, Phase::Wait, "here");
        let mut fields = answering(Value::Array(vec![text("abc"), Value::Int(1)])).unwrap();
        assert_eq!((fields.number().unwrap(), fields.is_empty()), (1, true));
        for wrong in [Value::Array(vec![text("abd"), text("abc")]), Value::Array(Vec::new()), text("abc"), Value::Nil] {
            assert!(answering(wrong.clone()).is_none(), "{wrong:?}");
        }
    }
}
