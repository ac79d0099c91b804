//! The commands that the scripts call.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::bytes::Bytes;
use super::hash::Hash;
use super::resp::Value;
use super::store::{Data, Store, WrongType};

/// Whether there is such a command, among those that not every server has.
#[must_use]
pub fn is_known(store: &Store, name: &[u8]) -> bool {
    name == b"ECHO" || (name == b"DELIFEQ" && store.compares)
}

/// Carries out one command.
pub fn carry_out(store: &mut Store, command: &[Bytes]) -> Value {
    run(store, command).unwrap_or_else(|error| error)
}

fn run(store: &mut Store, command: &[Bytes]) -> Result<Value, Value> {
    let name = String::from_utf8_lossy(command.first().map_or(&[][..], |name| name)).to_ascii_uppercase();
    let args = command.get(1..).unwrap_or_default();
    if name == "TIME" {
        let parts = [store.now / 1_000_000, store.now % 1_000_000];
        return Ok(Value::Many(parts.iter().map(|part| Value::text(part.to_string())).collect()));
    }
    let [key, rest @ ..] = args else { return Err(arity(&name)) };
    let only = || if rest.is_empty() { Ok(()) } else { Err(arity(&name)) };
    match (&*name, rest) {
        ("GET", _) => only().and(Ok(text_or_nil(store.text(key)?))),
        ("SET", [value, options @ ..]) => set(store, key, value, options),
        ("ECHO", _) => only().and(Ok(Value::text(key))),
        ("DELIFEQ", [value]) if store.compares => {
            let is_equal = store.text(key)? == Some(value);
            Ok(flag(is_equal && store.remove(key)))
        }
        ("APPEND", [more]) => append(store, key, more),
        ("DEL", _) => {
            let removed = args.iter().filter(|key| store.remove(key)).count();
            Ok(Value::Number(removed as i64))
        }
        ("RPUSH", values) => push(store, key, values),
        ("LRANGE", [first, last]) => list(store, key, number(first)?, number(last)?),
        ("KEYS", _) => Ok(keys(store, key)),
        ("EXISTS", _) => Ok(Value::Number(args.iter().filter(|key| store.get(key).is_some()).count() as i64)),
        ("TYPE", _) => only().and(Ok(Value::Status(store.get(key).map_or("none", Data::kind)))),
        ("PEXPIRE", [ms]) => {
            let ms = number(ms)?;
            Ok(flag(store.ends_in(key, ms)))
        }
        ("PTTL", _) => Ok(Value::Number(match store.left(key) {
            None => -2,
            Some(None) => -1,
            Some(Some(left)) => left as i64,
        })),
        ("PUBLISH", [message]) => {
            store.published.push((key.clone(), message.clone()));
            Ok(Value::Number(store.listened.iter().filter(|channel| *channel == key).count() as i64))
        }
        _ if name.starts_with('H') => hash(store, &name, key, rest),
        _ if name.starts_with('Z') => sorted(store, &name, key, rest),
        _ => Err(unknown(&name)),
    }
}

/// `SET key value [NX] [GET] [PX ms | KEEPTTL]`
fn set(store: &mut Store, key: &Bytes, value: &Bytes, options: &[Bytes]) -> Result<Value, Value> {
    let (mut only_new, mut old, mut keep, mut ends_at) = (false, false, false, None);
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match &*option.to_ascii_uppercase() {
            b"NX" => only_new = true,
            b"GET" => old = true,
            b"KEEPTTL" => keep = true,
            b"PX" => {
                let ms: i64 = number(options.next().ok_or_else(|| arity("SET"))?)?;
                let ms = u64::try_from(ms).ok().filter(|ms| *ms > 0);
                ends_at = Some(store.now / 1000 + ms.ok_or_else(|| error("ERR invalid expire time in 'set' command"))?);
            }
            _ => return Err(error("ERR syntax error")),
        }
    }
    let before = if old { text_or_nil(store.text(key)?) } else { Value::Nil };
    if only_new && store.get(key).is_some() {
        return Ok(before);
    }
    store.set(key, Data::Text(value.clone()), ends_at, keep);
    Ok(if old { before } else { Value::Status("OK") })
}

fn append(store: &mut Store, key: &Bytes, more: &Bytes) -> Result<Value, Value> {
    let mut text = store.text(key)?.cloned().unwrap_or_default();
    text.extend(more);
    let length = text.len() as i64;
    store.set(key, Data::Text(text), None, true);
    Ok(Value::Number(length))
}

fn push(store: &mut Store, key: &Bytes, values: &[Bytes]) -> Result<Value, Value> {
    let mut list = match store.get(key) {
        None => Vec::new(),
        Some(Data::List(list)) => list.clone(),
        Some(_) => return Err(WrongType.into()),
    };
    list.extend_from_slice(values);
    let length = list.len() as i64;
    store.set(key, Data::List(list), None, true);
    Ok(Value::Number(length))
}

fn list(store: &mut Store, key: &Bytes, first: i64, last: i64) -> Result<Value, Value> {
    let all = match store.get(key) {
        None => &[][..],
        Some(Data::List(list)) => list,
        Some(_) => return Err(WrongType.into()),
    };
    Ok(Value::Many(part(all, first, last).iter().map(Value::text).collect()))
}

/// From one index to another, both counted from the end if they are negative.
fn part<T>(all: &[T], first: i64, last: i64) -> &[T] {
    let length = all.len() as i64;
    let begin = if first < 0 { (length + first).max(0) } else { first.min(length) };
    let end = if last < 0 { length + last + 1 } else { (last + 1).min(length) };
    all.get(begin as usize..end.max(0) as usize).unwrap_or_default()
}

/// The only pattern that is known is a beginning with a star behind it.
fn keys(store: &mut Store, pattern: &[u8]) -> Value {
    let beginning = pattern.strip_suffix(b"*").unwrap_or(pattern);
    let all = store.keys().into_iter();
    Value::Many(all.filter(|key| key.starts_with(beginning)).map(Value::Text).collect())
}

fn hash(store: &mut Store, name: &str, key: &Bytes, rest: &[Bytes]) -> Result<Value, Value> {
    if name == "HSET" {
        store.begin(key, Data::Hash(Hash::default()));
        let hash = store.hash(key)?.ok_or_else(|| Value::from(WrongType))?;
        let new = rest.chunks_exact(2).filter(|pair| hash.insert(pair[0].clone(), pair[1].clone()));
        return Ok(Value::Number(new.count() as i64));
    }
    let mut none = Hash::default();
    let hash = store.hash(key)?.unwrap_or(&mut none);
    let field = |field: &Bytes| hash.get(field).map_or(Value::Nil, Value::text);
    Ok(match (name, rest) {
        ("HGET", [one]) => field(one),
        ("HMGET", fields) => Value::Many(fields.iter().map(field).collect()),
        ("HEXISTS", [one]) => flag(hash.get(one).is_some()),
        ("HLEN", []) => Value::Number(hash.len() as i64),
        ("HGETALL", []) => {
            Value::Many(hash.iter().flat_map(|(field, value)| [Value::text(field), Value::text(value)]).collect())
        }
        // Small hashes are told whole.
        ("HSCAN", [_cursor, ..]) => {
            let all = hash.iter().flat_map(|(field, value)| [Value::text(field), Value::text(value)]).collect();
            Value::Many(vec![Value::text("0"), Value::Many(all)])
        }
        ("HDEL", fields) => {
            let removed = fields.iter().filter(|field| hash.remove(field)).count();
            store.tidy(key);
            Value::Number(removed as i64)
        }
        _ => return Err(unknown(name)),
    })
}

fn sorted(store: &mut Store, name: &str, key: &Bytes, rest: &[Bytes]) -> Result<Value, Value> {
    if let ("ZADD", [options @ .., score, member]) = (name, rest) {
        let score = number(score)?;
        let only_new = options.iter().any(|option| option.eq_ignore_ascii_case(b"NX"));
        store.begin(key, Data::Sorted(BTreeMap::new()));
        let set = store.sorted(key)?.ok_or_else(|| Value::from(WrongType))?;
        let is_new = !set.contains_key(member);
        if is_new || !only_new {
            set.insert(member.clone(), score);
        }
        return Ok(flag(is_new));
    }
    let mut none = BTreeMap::new();
    let set = store.sorted(key)?.unwrap_or(&mut none);
    Ok(match (name, rest) {
        ("ZCARD", []) => Value::Number(set.len() as i64),
        ("ZSCORE", [member]) => set.get(member).map_or(Value::Nil, |score| Value::text(score.to_string())),
        ("ZREM", members) => {
            let removed = members.iter().filter(|member| set.remove(*member).is_some()).count();
            store.tidy(key);
            Value::Number(removed as i64)
        }
        ("ZRANGE", [first, last, options @ ..]) => range(set, number(first)?, number(last)?, !options.is_empty()),
        _ => return Err(unknown(name)),
    })
}

fn range(set: &BTreeMap<Bytes, f64>, first: i64, last: i64, with_scores: bool) -> Value {
    let mut line: Vec<_> = set.iter().collect();
    line.sort_by(|one, other| one.1.total_cmp(other.1).then_with(|| one.0.cmp(other.0)));
    let shown = |(member, score): &(&Bytes, &f64)| {
        let score = with_scores.then(|| Value::text(score.to_string()));
        [Some(Value::text(member)), score].into_iter().flatten().collect::<Vec<_>>()
    };
    Value::Many(part(&line, first, last).iter().flat_map(shown).collect())
}

fn number<N: FromStr>(text: &[u8]) -> Result<N, Value> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| error("ERR value is not an integer or out of range"))
}

fn text_or_nil(text: Option<&Bytes>) -> Value {
    text.map_or(Value::Nil, Value::text)
}

fn flag(flag: bool) -> Value {
    Value::Number(i64::from(flag))
}

fn error(text: &str) -> Value {
    Value::Error(text.to_owned())
}

fn arity(name: &str) -> Value {
    Value::Error(format!("ERR wrong number of arguments for '{name}' command"))
}

fn unknown(name: &str) -> Value {
    Value::Error(format!("ERR unknown command '{name}' or wrong number of arguments"))
}
