//! Reads members of JSON objects; whatever doesn't fit is refused by name. Null is as absent.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::ApiError;

/// One JSON object and where it stands in the body.
pub(crate) struct Object<'a> {
    path: String,
    members: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// The whole body, which must be an object.
    pub(crate) fn body(value: &'a Value) -> Result<Self, ApiError> {
        Self::at("body", value).map(|object| Self { path: String::new(), ..object })
    }

    /// The value at `path`, which must be an object.
    pub(crate) fn at(path: &str, value: &'a Value) -> Result<Self, ApiError> {
        let members = value.as_object();
        let members = members.ok_or_else(|| ApiError::invalid(path, "must be a JSON object"))?;
        Ok(Self { path: path.to_owned(), members })
    }

    /// Where `name` stands, for messages.
    pub(crate) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The member, unless it is null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, wanted: &str) -> ApiError {
        ApiError::invalid(&self.path(name), format!("must be {wanted}"))
    }

    fn fitting<T>(
        &self,
        name: &str,
        wanted: &str,
        fit: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let Some(value) = self.get(name) else { return Ok(None) };
        fit(value).map(Some).ok_or_else(|| self.wrong(name, wanted))
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, ApiError> {
        self.fitting(name, "a string", Value::as_str)
    }

    /// A text that must be there.
    pub(crate) fn need_text(&self, name: &str) -> Result<&'a str, ApiError> {
        self.text(name)?.ok_or_else(|| ApiError::invalid(&self.path(name), "is required"))
    }

    /// A whole number.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>, ApiError> {
        self.fitting(name, "a whole number", Value::as_i64)
    }

    /// A truth value.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, ApiError> {
        self.fitting(name, "true or false", Value::as_bool)
    }

    /// An array.
    pub(crate) fn array(&self, name: &str) -> Result<&'a [Value], ApiError> {
        let found = self.fitting(name, "an array", Value::as_array)?;
        Ok(found.map_or(&[], Vec::as_slice))
    }

    /// An array of texts.
    pub(crate) fn texts(&self, name: &str) -> Result<Vec<String>, ApiError> {
        let items = self.array(name)?.iter();
        let texts: Option<Vec<_>> = items.map(|item| item.as_str().map(str::to_owned)).collect();
        texts.ok_or_else(|| self.wrong(name, "an array of strings"))
    }

    /// An object.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Object<'a>>, ApiError> {
        self.get(name).map(|value| Object::at(&self.path(name), value)).transpose()
    }

    /// An object of texts.
    pub(crate) fn map(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, ApiError> {
        let Some(object) = self.object(name)? else { return Ok(None) };
        let pairs = object.members.iter().map(|(key, value)| match value.as_str() {
            Some(text) => Ok((key.clone(), text.to_owned())),
            None => Err(object.wrong(key, "a string")),
        });
        pairs.collect::<Result<_, _>>().map(Some)
    }

    /// Whether the member holds anything: not null, no empty text, array or object.
    pub(crate) fn says_something(&self, name: &str) -> bool {
        match self.get(name) {
            None | Some(Value::Null) => false,
            Some(Value::Bool(_) | Value::Number(_)) => true,
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(items)) => !items.is_empty(),
            Some(Value::Object(members)) => !members.is_empty(),
        }
    }
}
