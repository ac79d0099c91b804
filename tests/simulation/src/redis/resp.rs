//! The protocol, version 2.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::bytes::Bytes;

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `+OK`
    Status(&'static str),
    /// With its code.
    Error(String),
    /// A whole number.
    Number(i64),
    /// Bytes.
    Text(Bytes),
    /// Nothing.
    Nil,
    /// Several.
    Many(Vec<Value>),
}

impl Value {
    /// As it goes over the wire.
    pub fn write(&self, out: &mut Bytes) {
        match self {
            Self::Status(text) => out.extend(format!("+{text}\r\n").bytes()),
            Self::Error(text) => out.extend(format!("-{text}\r\n").bytes()),
            Self::Number(number) => out.extend(format!(":{number}\r\n").bytes()),
            Self::Text(text) => {
                out.extend(format!("${}\r\n", text.len()).bytes());
                out.extend(text);
                out.extend(b"\r\n");
            }
            Self::Nil => out.extend(b"$-1\r\n"),
            Self::Many(values) => {
                out.extend(format!("*{}\r\n", values.len()).bytes());
                values.iter().for_each(|value| value.write(out));
            }
        }
    }

    /// Bytes, copied.
    pub fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Text(text.as_ref().to_vec())
    }
}

/// The next command; `None` at the end of the connection.
///
/// # Errors
/// If the connection breaks, or what comes is no command.
pub async fn read<R: tokio::io::AsyncRead + Unpin>(from: &mut BufReader<R>) -> io::Result<Option<Vec<Bytes>>> {
    let Some(count) = length(from, b'*').await? else { return Ok(None) };
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let length = length(from, b'$').await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut part = vec![0; length + 2];
        from.read_exact(&mut part).await?;
        part.truncate(length);
        parts.push(part);
    }
    Ok(Some(parts))
}

async fn length<R: tokio::io::AsyncRead + Unpin>(from: &mut BufReader<R>, sign: u8) -> io::Result<Option<usize>> {
    let mut line = String::new();
    if from.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let number = line.as_bytes().strip_prefix(&[sign]).and_then(|_| line[1..].trim_end().parse().ok());
    number.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, line))
}
