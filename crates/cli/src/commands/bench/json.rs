//! JSON that people can read too: an object's fields stand one below the other, and what is in a list stays on a line.

use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io::{Result, Write};

/// A value as text.
pub(crate) fn text(value: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, Layout(PrettyFormatter::new()));
    value.serialize(&mut serializer).expect("plain data with text for keys has a JSON form");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is text")
}

struct Layout(PrettyFormatter<'static>);

impl Formatter for Layout {
    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> Result<()> {
        self.0.end_object_value(writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_stay_on_a_line() {
        let value = serde_json::json!({"a": [1, [2, 3]], "b": {}, "c": [{"d": 1}, {"d": 2}]});
        let expected =
            "{\n  \"a\": [1, [2, 3]],\n  \"b\": {},\n  \"c\": [{\n    \"d\": 1\n  }, {\n    \"d\": 2\n  }]\n}\n";
        assert_eq!(text(&value), expected);
        assert_eq!(serde_json::from_str::<serde_json::Value>(expected).unwrap(), value);
    }
}
