//! The connections to a server.

use std::cell::RefCell;
use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

use super::commands;
use super::request::Request;
use super::store::Store;

/// Serves one connection until it ends; `now` is the server's clock, in µs since 1970. Commands that come together are answered in
/// one write.
///
/// # Errors
/// If the connection breaks, or does not keep to the protocol.
pub async fn serve(
    store: &RefCell<Store>,
    stream: impl AsyncRead + AsyncWrite,
    now: impl Fn() -> u64,
) -> io::Result<()> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = BufReader::new(reader);
    let mut answers = Vec::new();
    while let Some(request) = Request::read(&mut reader).await? {
        {
            let mut store = store.borrow_mut();
            store.set_now(now());
            answers.extend(commands::carry_out(&mut store, &request));
        }
        if reader.buffer().is_empty() {
            writer.write_all(&answers).await?;
            answers.clear();
        }
    }
    Ok(())
}
