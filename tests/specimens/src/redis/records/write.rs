//! One request to write a record, as a script.

use lock_core::driver::Record;
use lock_testkit::HarnessError;
use lock_testkit_servers::resp::Resp;

/// The check that turns away a holder that has lost the lock, or comes after a newer one.
pub(super) const LOOK: &str = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return '' end \
    if string.sub(redis.call('GET', KEYS[2]) or '', 1, 16) > ARGV[2] then return '' end ";
/// Stamps the record: what was written, and by whom, stays.
pub(super) const STAMP: &str = "local rest = string.sub(redis.call('GET', KEYS[2]) or '', 18) \
    if rest == '' then rest = '0000000000000000:' end ";
/// Stamps a new record.
pub(super) const STAMP_ANEW: &str = "local rest = '0000000000000000:' ";
/// Writes the data, if there are any, and says what the record is now.
pub(super) const WRITE: &str = "if ARGV[3] == '1' then rest = ARGV[2] .. ':' .. ARGV[4] end \
    redis.call('SET', KEYS[2], ARGV[2] .. ':' .. rest) return ARGV[2] .. ':' .. rest";
/// Says by whom the data were written, and leaves the data as they are.
pub(super) const SIGN: &str = "rest = ARGV[2] .. ':' .. string.sub(rest, 18) \
    redis.call('SET', KEYS[2], ARGV[2] .. ':' .. rest) return ARGV[2] .. ':' .. rest";

/// One request to write.
pub(super) struct Write<'a> {
    pub(super) redis: &'a Resp,
    pub(super) keys: [String; 2],
    pub(super) nonce: String,
    pub(super) token: String,
    pub(super) data: Option<String>,
}

impl Write<'_> {
    /// Runs one of the scripts; nothing if the writer was turned away.
    pub(super) async fn run(&self, script: &str) -> Result<Option<Record>, HarnessError> {
        let has_data = if self.data.is_some() { "1" } else { "" };
        let [lock, record] = &self.keys;
        let data = self.data.as_deref().unwrap_or_default();
        let parts = ["EVAL", script, "2", lock, record, &self.nonce, &self.token, has_data, data];
        let text = self.redis.command(&parts).await?.as_text().unwrap_or_default();
        if text.is_empty() { Ok(None) } else { stored(&text).map(Some) }
    }

    /// Signs an empty record, and appends the data.
    pub(super) async fn append(mut self, script: &str) -> Result<Option<Record>, HarnessError> {
        let script = format!("{script}{WRITE}");
        let Some(data) = self.data.take() else { return self.run(&script).await };
        self.data = Some(String::new());
        let signed = match self.run(&script).await {
            Err(_) => self.run(&script).await?,
            Ok(signed) => signed,
        };
        if signed.is_none() {
            return Ok(None);
        }
        let append = ["APPEND", &self.keys[1], &data];
        if self.redis.command(&append).await.is_err() {
            // Once more, although only its reply may be lost: the flaw.
            self.redis.command(&append).await?;
        }
        let text = self.redis.command(&["GET", &self.keys[1]]).await?.as_text().unwrap_or_default();
        stored(&text).map(Some)
    }
}

/// The data as they are stored: the test's client speaks text.
pub(super) fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A record, of two tokens and the data in hexadecimal digits.
pub(super) fn stored(text: &str) -> Result<Record, HarnessError> {
    let foreign = || HarnessError::new(format!("no record: {text}"));
    let (tokens, data) = text.split_at_checked(34).ok_or_else(foreign)?;
    let mut bytes = tokens.as_bytes().to_vec();
    for at in (0..data.len()).step_by(2) {
        bytes.push(u8::from_str_radix(data.get(at..at + 2).ok_or_else(foreign)?, 16)?);
    }
    Record::from_bytes(&bytes).ok_or_else(foreign)
}
