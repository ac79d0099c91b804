//! One of the runs that a pipeline makes of a script.

use std::fmt::Write;

/// The bytes and parts that a run seldom exceeds.
const USUAL_BYTES: usize = 256;
const USUAL_PARTS: usize = 6;

/// The keys and arguments of one run of a script, in one text: there are tens of thousands of them a second.
#[derive(Debug, Clone, Default)]
pub(crate) struct Call {
    text: String,
    /// The end of each part.
    ends: Vec<usize>,
    /// The number of parts that are keys. They come first.
    keys: usize,
}

impl Call {
    /// A run with these keys. At least the lock's, which is the first.
    pub(crate) fn of(keys: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let mut call =
            Self { text: String::with_capacity(USUAL_BYTES), ends: Vec::with_capacity(USUAL_PARTS), keys: 0 };
        keys.into_iter().for_each(|key| call.push(key));
        call.keys = call.ends.len();
        call
    }

    /// A run with these two keys, of which the second begins with `side` and has this ending.
    pub(crate) fn of_two(lock: &str, side: &str, ending: &str) -> Self {
        Self::of([lock]).and_key(side, ending)
    }

    /// Adds one more key of two parts, before any argument.
    pub(crate) fn and_key(mut self, side: &str, ending: &str) -> Self {
        self.push_parts(&[side, ending]);
        self.keys = self.ends.len();
        self
    }

    /// Adds an argument.
    pub(crate) fn push(&mut self, part: impl AsRef<str>) {
        self.text.push_str(part.as_ref());
        self.ends.push(self.text.len());
    }

    /// Adds an argument that has several parts.
    pub(crate) fn push_parts(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.text.push_str(part));
        self.ends.push(self.text.len());
    }

    /// Adds an argument that is a number.
    pub(crate) fn push_number(&mut self, number: u64) {
        // Writing to a text cannot fail.
        let _ = write!(self.text, "{number}");
        self.ends.push(self.text.len());
    }

    /// Adds these arguments behind the others.
    pub(crate) fn with(mut self, args: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        args.into_iter().for_each(|arg| self.push(arg));
        self
    }

    /// The key that says which server is asked.
    pub(super) fn key(&self) -> &str {
        self.keys().next().unwrap_or_default()
    }

    /// The keys.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parts(0..self.keys)
    }

    /// The arguments.
    pub(crate) fn args(&self) -> impl ExactSizeIterator<Item = &str> {
        self.parts(self.keys..self.ends.len())
    }

    /// The number of bytes of all parts.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    fn parts(&self, these: std::ops::Range<usize>) -> impl ExactSizeIterator<Item = &str> {
        let begin = move |i: usize| if i == 0 { 0 } else { self.ends[i - 1] };
        these.map(move |i| &self.text[begin(i)..self.ends[i]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_arguments_come_back_as_they_were_put_in() {
        let call = Call::of(["lock", "", "ö"]).with(["a"]).with(["17"]).with([""]);
        assert_eq!(call.keys().collect::<Vec<_>>(), ["lock", "", "ö"]);
        assert_eq!(call.args().collect::<Vec<_>>(), ["a", "17", ""]);
        assert_eq!((call.key(), call.len()), ("lock", 9));
        let mut call = Call::of_two("lock", "side", ":q");
        call.push_parts(&["a", "", "b"]);
        call.push_number(1200);
        assert_eq!(call.keys().collect::<Vec<_>>(), ["lock", "side:q"]);
        assert_eq!(call.args().collect::<Vec<_>>(), ["ab", "1200"]);
        assert_eq!(Call::default().key(), "");
    }
}
