//! The records beside mutexes: `<lock>:r`, written by one script that looks who holds the lock.

use std::sync::Arc;
use std::time::Duration;

use lock_core::driver::{Attempt, Kind, Record, RecordWrite};
use lock_core::{Error, ErrorKind, FencingToken, LockName, Phase};

use crate::client::links::Links;
use crate::confirm::Confirmation;
use crate::store::call::{Request, milliseconds};
use crate::store::keys::KeySpace;
use crate::store::reply::Fields;
use crate::store::scripts;

/// The records of one client.
#[derive(Debug)]
pub(crate) struct Records {
    links: Arc<Links>,
    keys: Arc<KeySpace>,
    /// The check that replicas have what was written, if that is wanted.
    confirmation: Option<Arc<Confirmation>>,
}

impl Records {
    /// The records over these links.
    pub(crate) fn new(links: &Arc<Links>, keys: &Arc<KeySpace>, confirmation: Option<Arc<Confirmation>>) -> Self {
        Self { links: links.clone(), keys: keys.clone(), confirmation }
    }

    pub(crate) async fn read(&self, name: &LockName) -> Result<Option<Record>, Error> {
        let keys = self.keys.checked(name, Kind::Mutex)?;
        let record = keys.to_read_record();
        let args = [record[0].as_bytes()];
        let request = Request::new(&scripts::READ_RECORD, &record, &args);
        let reply = self.links.run(request, Phase::Inspect, self.links.until(), |_| {});
        let reply = reply.await.map_err(|failed| failed.error)?;
        let mut fields = self.links.fields(reply.value, &record[0], Phase::Inspect)?;
        if fields.is_empty() { Ok(None) } else { self.record(&mut fields, name, Phase::Inspect).map(Some) }
    }

    pub(crate) async fn write(
        &self,
        attempt: &Attempt,
        token: FencingToken,
        data: Option<&[u8]>,
        retention: Duration,
    ) -> Result<RecordWrite, Error> {
        let keys = self.keys.of(&attempt.name, attempt.kind);
        let (nonce, token) = (attempt.id.to_string(), format!("{token:016}"));
        let (retention, has_data) = (milliseconds(retention), if data.is_some() { "1" } else { "" });
        let args =
            [nonce.as_bytes(), token.as_bytes(), retention.as_bytes(), has_data.as_bytes(), data.unwrap_or_default()];
        let (to_write, until) = (keys.to_write_record(), self.links.until());
        let request = Request::new(&scripts::RECORD, &to_write, &args);
        let asked = self.links.run_for(attempt, request, Phase::Hold, until);
        let (reply, before) = asked.await?;
        let mut fields = self.links.fields(reply.value, &nonce, Phase::Hold)?;
        if fields.number()? == 0 {
            if before.0 {
                // Either an earlier sending of this request has written it, and the grant has ended since, or it had ended before.
                let what =
                    "the grant is gone; whether the record was written is unknown, as the first answer never came";
                let unknown = attempt.error(ErrorKind::Indeterminate, Phase::Hold, what);
                return Err(unknown.with_server(self.links.server()));
            }
            return Ok(RecordWrite::NotHeld);
        }
        let record = self.record(&mut fields, &attempt.name, Phase::Hold)?;
        if let Some(confirmation) = &self.confirmation {
            confirmation.is_kept(attempt, until).await?;
        }
        Ok(RecordWrite::Done(record))
    }

    fn record(&self, fields: &mut Fields<'_>, name: &LockName, phase: Phase) -> Result<Record, Error> {
        Record::from_bytes(&fields.bytes()?).ok_or_else(|| {
            let what = "something else is in the record's place";
            Error::new(ErrorKind::Protocol, phase, what).with_name(name).with_server(self.links.server())
        })
    }
}
