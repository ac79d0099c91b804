//! Lua on the store, as Redis has it: version 5.1, `redis.call`, and a conversion of values both ways.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Table, Value as LuaValue};

use super::bytes::Bytes;
use super::commands;
use super::resp::Value;
use super::store::Store;

/// The scripts that a server knows, and what they work on.
pub struct Scripts {
    lua: Lua,
    store: Rc<RefCell<Store>>,
    known: HashMap<String, Function>,
}

impl Scripts {
    /// None yet.
    ///
    /// # Errors
    /// If Lua has no memory.
    pub fn new(store: Rc<RefCell<Store>>) -> mlua::Result<Self> {
        let lua = Lua::new();
        let redis = lua.create_table()?;
        for (name, raises) in [("call", true), ("pcall", false)] {
            let store = store.clone();
            let call = move |lua: &Lua, args: MultiValue| {
                let command = args.iter().map(argument).collect::<mlua::Result<Vec<_>>>()?;
                match commands::carry_out(&mut store.borrow_mut(), &command) {
                    Value::Error(text) if raises => Err(mlua::Error::runtime(text)),
                    value => to_lua(lua, &value),
                }
            };
            redis.set(name, lua.create_function(call)?)?;
        }
        let error_reply = |lua: &Lua, text: mlua::LuaString| {
            let error = lua.create_table()?;
            error.set("err", text)?;
            Ok(error)
        };
        redis.set("error_reply", lua.create_function(error_reply)?)?;
        let asked = store.clone();
        let acl_check_cmd = move |_: &Lua, args: MultiValue| {
            let name = args.iter().next().map(argument).transpose()?.unwrap_or_default();
            let is_known = commands::is_known(&asked.borrow(), &name);
            is_known.then_some(true).ok_or_else(|| mlua::Error::runtime("ERR Invalid command passed to acl_check_cmd"))
        };
        redis.set("acl_check_cmd", lua.create_function(acl_check_cmd)?)?;
        lua.globals().set("redis", redis)?;
        Ok(Self { lua, store, known: HashMap::new() })
    }

    /// Remembers a script; its digest.
    ///
    /// # Errors
    /// If it is no Lua.
    pub fn load(&mut self, code: &[u8]) -> Result<String, Value> {
        let digest = sha1_smol::Sha1::from(code).digest().to_string();
        if self.known.contains_key(&digest) {
            return Ok(digest);
        }
        let function = self.lua.load(code).into_function();
        let function = function.map_err(|error| Value::Error(format!("ERR Error compiling script {error}")))?;
        self.known.insert(digest.clone(), function);
        Ok(digest)
    }

    /// Runs a known script; `None` if it is not known.
    pub fn run(&mut self, digest: &str, keys: &[Bytes], args: &[Bytes]) -> Option<Value> {
        let script = self.known.get(digest)?;
        Some(self.run_with(script, keys, args).unwrap_or_else(|error| Value::Error(told(&error))))
    }

    fn run_with(&self, script: &Function, keys: &[Bytes], args: &[Bytes]) -> mlua::Result<Value> {
        let list = |parts: &[Bytes]| -> mlua::Result<Table> {
            let strings = parts.iter().map(|part| self.lua.create_string(part)).collect::<mlua::Result<Vec<_>>>()?;
            self.lua.create_sequence_from(strings)
        };
        self.lua.globals().set("KEYS", list(keys)?)?;
        self.lua.globals().set("ARGV", list(args)?)?;
        from_lua(script.call::<LuaValue>(())?)
    }

    /// The store that the scripts work on.
    pub fn store(&self) -> &Rc<RefCell<Store>> {
        &self.store
    }
}

/// The text of an error that a command raised, without Lua's own.
fn told(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause, .. } => told(cause),
        mlua::Error::RuntimeError(text) => text.lines().next().unwrap_or_default().to_owned(),
        other => format!("ERR {}", other.to_string().replace('\n', " ")),
    }
}

fn argument(value: &LuaValue) -> mlua::Result<Bytes> {
    match value {
        LuaValue::String(text) => Ok(text.as_bytes().to_vec()),
        LuaValue::Integer(number) => Ok(number.to_string().into_bytes()),
        LuaValue::Number(number) => Ok(number.to_string().into_bytes()),
        _ => Err(mlua::Error::runtime("ERR Lua redis lib command arguments must be strings or integers")),
    }
}

fn to_lua(lua: &Lua, value: &Value) -> mlua::Result<LuaValue> {
    let tagged = |tag: &str, text: &str| {
        let table = lua.create_table()?;
        table.set(tag, text)?;
        Ok(LuaValue::Table(table))
    };
    match value {
        Value::Status(text) => tagged("ok", text),
        Value::Error(text) => tagged("err", text),
        // Lua's only numbers are floating ones.
        Value::Number(number) => Ok(LuaValue::Number(*number as f64)),
        Value::Text(text) => Ok(LuaValue::String(lua.create_string(text)?)),
        Value::Nil => Ok(LuaValue::Boolean(false)),
        Value::Many(values) => {
            let values = values.iter().map(|value| to_lua(lua, value)).collect::<mlua::Result<Vec<_>>>()?;
            Ok(LuaValue::Table(lua.create_sequence_from(values)?))
        }
    }
}

fn from_lua(value: LuaValue) -> mlua::Result<Value> {
    Ok(match value {
        LuaValue::String(text) => Value::text(text.as_bytes()),
        LuaValue::Integer(number) => Value::Number(number),
        // What is behind the point is cut off.
        LuaValue::Number(number) => Value::Number(number as i64),
        LuaValue::Boolean(true) => Value::Number(1),
        LuaValue::Table(table) => {
            if let Some(text) = table.get::<Option<String>>("err")? {
                return Ok(Value::Error(text));
            }
            let mut values = Vec::new();
            // The list ends before the first hole.
            for index in 1.. {
                match table.get::<LuaValue>(index)? {
                    LuaValue::Nil => break,
                    value => values.push(from_lua(value)?),
                }
            }
            Value::Many(values)
        }
        _ => Value::Nil,
    })
}
