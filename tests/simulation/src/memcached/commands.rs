//! The commands, and their answers.

use std::io::Write;

use super::request::{Request, number};
use super::store::{Item, Store};

const NOT_NUMERIC: &[u8] = b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";

/// Carries out one command. Returns its answer.
#[must_use]
pub fn carry_out(store: &mut Store, request: &Request) -> Vec<u8> {
    let mut answer = Vec::new();
    match (request.word(0), request.word(1)) {
        (b"mn", _) => answer.extend(b"MN\r\n"),
        (b"mg", key) => meta_get(store, key, request, &mut answer),
        (b"ma", key) => meta_arithmetic(store, key, request, &mut answer),
        (b"md", key) => meta_delete(store, key, request, &mut answer),
        (b"ms", key) => {
            let end = store.end(request.number(b'T').unwrap_or_default());
            store.set(key, &request.data, end);
            told(store, b"HD", request, None, &mut answer);
        }
        (b"add" | b"set" | b"cas", key) => answer.extend(classic_store(store, key, request)),
        (b"gets", key) => classic_get(store, key, &mut answer),
        (b"delete", key) => {
            let is_there = store.get(key).is_some();
            store.remove(key);
            answer.extend(if is_there { &b"DELETED\r\n"[..] } else { b"NOT_FOUND\r\n" });
        }
        (b"flush_all", _) => {
            store.flush();
            answer.extend(b"OK\r\n");
        }
        (b"version", _) => answer.extend(b"VERSION 1.6.18\r\n"),
        (b"stats", of) => stats(store, of, &mut answer),
        (b"lru_crawler", b"metadump") => dump(store, &mut answer),
        _ => answer.extend(b"ERROR\r\n"),
    }
    answer
}

/// Ends an answer with what the request's flags ask for, in their order.
fn told(store: &Store, code: &[u8], request: &Request, item: Option<&Item>, answer: &mut Vec<u8>) {
    answer.extend(code);
    for (flag, value) in request.flags() {
        let shown = match (flag, item) {
            (b'c', Some(item)) => item.cas.to_string().into_bytes(),
            (b't', Some(item)) => store.left(item).to_string().into_bytes(),
            (b'O', _) => value.to_vec(),
            _ => continue,
        };
        answer.extend([b' ', flag]);
        answer.extend(shown);
    }
    answer.extend(b"\r\n");
}

/// An answer about an item, with this value if the request asks for one.
fn told_of(store: &Store, request: &Request, item: &Item, value: &[u8], answer: &mut Vec<u8>) {
    if request.flag(b'v').is_none() {
        return told(store, b"HD", request, Some(item), answer);
    }
    told(store, format!("VA {}", value.len()).as_bytes(), request, Some(item), answer);
    answer.extend(value);
    answer.extend(b"\r\n");
}

fn meta_get(store: &mut Store, key: &[u8], request: &Request, answer: &mut Vec<u8>) {
    let end = request.number(b'T').map(|seconds| store.end(seconds));
    let Some(item) = store.get(key) else { return told(store, b"EN", request, None, answer) };
    item.ends_at = end.unwrap_or(item.ends_at);
    let item = item.clone();
    told_of(store, request, &item, &item.value, answer);
}

fn meta_arithmetic(store: &mut Store, key: &[u8], request: &Request, answer: &mut Vec<u8>) {
    let (delta, expected) = (request.number::<u64>(b'D').unwrap_or(1), request.number::<u64>(b'C').unwrap_or_default());
    let end = request.number(b'T').map(|seconds| store.end(seconds));
    let cas = match store.get(key) {
        Some(item) if item.value.is_empty() => return answer.extend(NOT_NUMERIC),
        Some(item) if expected != 0 && item.cas != expected => return told(store, b"EX", request, None, answer),
        Some(item) if numeric(&item.value).is_none() => return answer.extend(NOT_NUMERIC),
        Some(_) => store.next_cas(),
        None => {
            let Some(seconds) = request.number(b'N') else { return told(store, b"NF", request, None, answer) };
            let value = request.number::<u64>(b'J').unwrap_or_default().to_string().into_bytes();
            let ends_at = store.end(seconds);
            let cas = store.set(key, &value, ends_at);
            return told_of(store, request, &Item { value: value.clone(), cas, ends_at }, &value, answer);
        }
    };
    let Some(item) = store.get(key) else { return told(store, b"NF", request, None, answer) };
    let value = numeric(&item.value).unwrap_or_default().wrapping_add(delta).to_string().into_bytes();
    // A shorter number is written into the place of the longer one, with blanks behind it.
    let longest = item.value.len().max(value.len());
    item.value = value.clone();
    item.value.resize(longest, b' ');
    (item.cas, item.ends_at) = (cas, end.unwrap_or(item.ends_at));
    let item = item.clone();
    told_of(store, request, &item, &value, answer);
}

fn numeric(value: &[u8]) -> Option<u64> {
    number(value.trim_ascii_end())
}

fn meta_delete(store: &mut Store, key: &[u8], request: &Request, answer: &mut Vec<u8>) {
    let expected = request.number::<u64>(b'C').unwrap_or_default();
    let code = match store.get(key) {
        None => b"NF",
        Some(item) if expected != 0 && item.cas != expected => b"EX",
        Some(_) => {
            store.remove(key);
            b"HD"
        }
    };
    told(store, code, request, None, answer);
}

/// `add|set|cas key flags seconds bytes [number]`
fn classic_store(store: &mut Store, key: &[u8], request: &Request) -> &'static [u8] {
    let end = store.end(number(request.word(3)).unwrap_or_default());
    let there = store.get(key).map(|item| item.cas);
    match (request.word(0), there) {
        (b"add", Some(_)) => return b"NOT_STORED\r\n",
        (b"cas", None) => return b"NOT_FOUND\r\n",
        (b"cas", Some(cas)) if number(request.word(5)) != Some(cas) => return b"EXISTS\r\n",
        _ => store.set(key, &request.data, end),
    };
    b"STORED\r\n"
}

fn classic_get(store: &mut Store, key: &[u8], answer: &mut Vec<u8>) {
    if let Some(Item { value, cas, .. }) = store.get(key) {
        answer.extend(b"VALUE ");
        answer.extend(key);
        answer.extend(format!(" 0 {} {cas}\r\n", value.len()).as_bytes());
        answer.extend(&*value);
        answer.extend(b"\r\n");
    }
    answer.extend(b"END\r\n");
}

fn stats(store: &Store, of: &[u8], answer: &mut Vec<u8>) {
    let (uptime, time, flushes) = (store.uptime().to_string(), store.second().to_string(), store.flushes().to_string());
    let told: &[(&str, &str)] = match of {
        b"settings" => &[("cas_enabled", "yes"), ("evictions", "off")],
        b"" => &[
            ("uptime", &uptime),
            ("time", &time),
            ("cmd_flush", &flushes),
            ("evictions", "0"),
            ("slabs_moved", "0"),
            ("slab_reassign_running", "0"),
            ("bytes", "0"),
            ("limit_maxbytes", "67108864"),
        ],
        // No item is cold.
        _ => &[],
    };
    for (name, value) in told {
        answer.extend(format!("STAT {name} {value}\r\n").as_bytes());
    }
    answer.extend(b"END\r\n");
}

fn dump(store: &mut Store, answer: &mut Vec<u8>) {
    for (key, item) in store.items() {
        answer.extend(b"key=");
        for byte in key {
            if byte.is_ascii_alphanumeric() {
                answer.push(byte);
            } else {
                // A vector takes every byte.
                let _ = write!(answer, "%{byte:02X}");
            }
        }
        let (end, cas) = (item.ends_at.unwrap_or(-1), item.cas);
        answer.extend(format!(" exp={end} la=0 cas={cas} fetch=yes cls=1 size={}\r\n", item.value.len()).as_bytes());
    }
    answer.extend(b"END\r\n");
}
