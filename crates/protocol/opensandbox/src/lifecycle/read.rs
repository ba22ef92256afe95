//! Reads members of a JSON object, collecting everything that doesn't fit.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::error::{ApiError, Problem};

/// One object of a body, and where it lies.
pub(crate) struct Object<'a> {
    members: &'a Map<String, Value>,
    loc: Vec<Value>,
}

/// Everything found wrong so far.
#[derive(Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    /// Adds one.
    pub(crate) fn push(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    /// `Ok` when nothing was wrong.
    pub(crate) fn finish(self) -> Result<(), ApiError> {
        if self.0.is_empty() { Ok(()) } else { Err(ApiError::unprocessable(self.0)) }
    }
}

impl<'a> Object<'a> {
    /// The body itself, which must be an object.
    pub(crate) fn body(value: &'a Value) -> Result<Self, ApiError> {
        let loc = vec![Value::from("body")];
        match value.as_object() {
            Some(members) => Ok(Self { members, loc }),
            None => Err(Problem::at(loc, "model_type", "Input should be an object".into()).into()),
        }
    }

    /// The path of a member.
    pub(crate) fn loc(&self, name: &str) -> Vec<Value> {
        let mut loc = self.loc.clone();
        loc.push(name.into());
        loc
    }

    /// Notes that `name` doesn't fit.
    pub(crate) fn wrong(
        &self,
        problems: &mut Problems,
        name: &str,
        kind: &'static str,
        message: impl Into<String>,
    ) {
        let input = self.members.get(name).cloned();
        let problem = Problem::at(self.loc(name), kind, message.into());
        problems.push(match input {
            Some(input) => problem.with_input(input),
            None => problem,
        });
    }

    /// Notes that `name` is needed.
    pub(crate) fn missing(&self, problems: &mut Problems, name: &str) {
        self.wrong(problems, name, "missing", "Field required");
    }

    /// A member that is there and not null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.members.get(name).filter(|value| !value.is_null())
    }

    /// All members.
    pub(crate) fn members(&self) -> &'a Map<String, Value> {
        self.members
    }

    /// Text.
    pub(crate) fn string(&self, problems: &mut Problems, name: &str) -> Option<String> {
        let value = self.get(name)?;
        if value.as_str().is_none() {
            self.wrong(problems, name, "string_type", "Input should be a valid string");
        }
        value.as_str().map(str::to_owned)
    }

    /// Text that must be there.
    pub(crate) fn required_string(&self, problems: &mut Problems, name: &str) -> Option<String> {
        if self.get(name).is_none() {
            self.missing(problems, name);
        }
        self.string(problems, name)
    }

    /// A whole number, also as text or as a float without a fraction.
    pub(crate) fn integer(&self, problems: &mut Problems, name: &str) -> Option<i64> {
        let value = self.get(name)?;
        let number = lax_integer(value);
        if number.is_none() {
            self.wrong(problems, name, "int_parsing", "Input should be a valid integer");
        }
        number
    }

    /// A truth value.
    pub(crate) fn flag(&self, problems: &mut Problems, name: &str) -> Option<bool> {
        let value = self.get(name)?;
        let flag = lax_bool(value);
        if flag.is_none() {
            self.wrong(problems, name, "bool_parsing", "Input should be true or false");
        }
        flag
    }

    /// A nested object.
    pub(crate) fn object(&self, problems: &mut Problems, name: &str) -> Option<Object<'a>> {
        let value = self.get(name)?;
        let members = value.as_object();
        if members.is_none() {
            self.wrong(problems, name, "model_type", "Input should be an object");
        }
        members.map(|members| Object { members, loc: self.loc(name) })
    }

    /// An array.
    pub(crate) fn array(&self, problems: &mut Problems, name: &str) -> Option<&'a Vec<Value>> {
        let value = self.get(name)?;
        if value.as_array().is_none() {
            self.wrong(problems, name, "list_type", "Input should be a valid list");
        }
        value.as_array()
    }

    /// An array of objects.
    pub(crate) fn objects(&self, problems: &mut Problems, name: &str) -> Vec<Object<'a>> {
        let mut objects = Vec::new();
        for (index, item) in self.array(problems, name).into_iter().flatten().enumerate() {
            let mut loc = self.loc(name);
            loc.push(index.into());
            match item.as_object() {
                Some(members) => objects.push(Object { members, loc }),
                None => problems.push(Problem::at(
                    loc,
                    "model_type",
                    "Input should be an object".into(),
                )),
            }
        }
        objects
    }

    /// An array of texts.
    pub(crate) fn strings(&self, problems: &mut Problems, name: &str) -> Option<Vec<String>> {
        let items = self.array(problems, name)?;
        let mut strings = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match item.as_str() {
                Some(text) => strings.push(text.to_owned()),
                None => {
                    let mut loc = self.loc(name);
                    loc.push(index.into());
                    let message = "Input should be a valid string".into();
                    problems
                        .push(Problem::at(loc, "string_type", message).with_input(item.clone()));
                }
            }
        }
        Some(strings)
    }

    /// A map of texts; members that are null are kept as `None`.
    pub(crate) fn string_map(
        &self,
        problems: &mut Problems,
        name: &str,
    ) -> Option<BTreeMap<String, Option<String>>> {
        Some(self.object(problems, name)?.as_string_map(problems))
    }

    /// This object itself as a map of texts.
    pub(crate) fn as_string_map(
        &self,
        problems: &mut Problems,
    ) -> BTreeMap<String, Option<String>> {
        let mut map = BTreeMap::new();
        for (key, value) in self.members {
            match value {
                Value::String(text) => {
                    map.insert(key.clone(), Some(text.clone()));
                }
                Value::Null => {
                    map.insert(key.clone(), None);
                }
                Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                    let message = "Input should be a valid string";
                    self.wrong(problems, key, "string_type", message);
                }
            }
        }
        map
    }

    /// A map of texts in which null is not allowed.
    pub(crate) fn strict_map(
        &self,
        problems: &mut Problems,
        name: &str,
    ) -> Option<BTreeMap<String, String>> {
        let object = self.object(problems, name)?;
        let map = object.as_string_map(problems);
        let mut strict = BTreeMap::new();
        for (key, value) in map {
            match value {
                Some(value) => {
                    strict.insert(key, value);
                }
                None => {
                    object.wrong(problems, &key, "string_type", "Input should be a valid string");
                }
            }
        }
        Some(strict)
    }
}

fn lax_integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            // Whole floats within the range that a double counts exactly.
            let float = number.as_f64().filter(|float| float.fract() == 0.0)?;
            (float.abs() < 9_007_199_254_740_992.0).then(|| {
                #[allow(clippy::cast_possible_truncation, reason = "checked to be whole and small")]
                let whole = float as i64;
                whole
            })
        }),
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(flag) => Some(i64::from(*flag)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn lax_bool(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(flag) => Some(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(0) => Some(false),
            Some(1) => Some(true),
            Some(_) | None => None,
        },
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
