//! What differs from language to language.

use crate::environment::Variables;
use serde_json::{Value, json};

/// The language that a shell of the agent's own speaks, in every image.
pub(super) const SHELL: &str = "bash";
/// Languages that one kernel serves alike.
const KIN: [&str; 2] = ["javascript", "typescript"];

/// A language's full name in lower case; Python when none is given.
pub fn normalise(name: &str) -> String {
    let name = name.trim().to_lowercase();
    match name.as_str() {
        "" => "python".to_owned(),
        "js" => "javascript".to_owned(),
        "ts" => "typescript".to_owned(),
        _ => name,
    }
}

/// Whether a kernel for one of the languages can run the other.
pub(super) fn are_kin(one: &str, other: &str) -> bool {
    KIN.contains(&one) && KIN.contains(&other)
}

/// What an image lacks for a language.
pub(super) fn remedy(language: &str) -> String {
    let package = match language {
        "python" => "the PyPI package ipykernel",
        "javascript" | "typescript" => "a Jupyter kernel such as the npm package tslab",
        "r" => "the R package IRkernel",
        "java" => "the IJava kernel",
        "go" => "the gonb kernel",
        _ => "a Jupyter kernel for it",
    };
    format!(
        "this sandbox has no kernel for {language}; use the code-interpreter template, or install \
         {package}"
    )
}

/// Something a kernel may be slow to do for the first time.
pub(super) fn warm_up(language: &str) -> &'static str {
    match language {
        // What a first result and a first error need, leaving no name behind.
        "python" => concat!(
            "exec('''import sys\n",
            "shell = __import__('IPython').get_ipython()\n",
            "shell.display_formatter.format([1, 'a', {'b': 1.5}])\n",
            "try:\n    1 / 0\n",
            "except ZeroDivisionError:\n",
            "    shell.InteractiveTB.structured_traceback(*sys.exc_info())\n",
            "''', {})",
        ),
        "javascript" | "typescript" => "await Promise.resolve([1, 'a']);",
        _ => "",
    }
}

/// Code that sets and removes variables, where the language is known.
pub(super) fn assign(language: &str, set: &Variables, unset: &[&str]) -> Option<String> {
    let quoted = |text: &str| Value::from(text).to_string();
    Some(match language {
        "python" => format!(
            "__import__('os').environ.update({})\n\
             [__import__('os').environ.pop(name, None) for name in {}]",
            json!(set),
            json!(unset),
        ),
        "javascript" | "typescript" => format!(
            "Object.assign(process.env, {}); for (const name of {}) delete process.env[name];",
            json!(set),
            json!(unset),
        ),
        "r" => {
            let set = set.iter().map(|(name, value)| {
                format!("do.call(Sys.setenv, list({}={}))\n", quoted(name), quoted(value))
            });
            let unset = unset.iter().map(|name| format!("Sys.unsetenv({})\n", quoted(name)));
            format!("invisible({{{}}})", set.chain(unset).collect::<String>())
        }
        // A running Java cannot change its environment; properties are what there is.
        "java" => {
            let set = set.iter().map(|(name, value)| {
                format!("System.setProperty({}, {});\n", quoted(name), quoted(value))
            });
            let unset =
                unset.iter().map(|name| format!("System.clearProperty({});\n", quoted(name)));
            set.chain(unset).collect()
        }
        SHELL => {
            let set = set
                .iter()
                .filter(|(name, _)| is_shell_name(name))
                .map(|(name, value)| format!("export {name}='{}'\n", value.replace('\'', r"'\''")));
            let unset = unset.iter().filter(|name| is_shell_name(name));
            set.chain(unset.map(|name| format!("unset {name}\n"))).collect()
        }
        _ => return None,
    })
}

fn is_shell_name(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_short_forms() {
        let cases = [("", "python"), (" JS ", "javascript"), ("ts", "typescript"), ("R", "r")];
        for (given, want) in cases {
            assert_eq!(normalise(given), want);
        }
    }

    #[test]
    fn values_cannot_break_out_of_their_quotes() {
        let set = Variables::from([("A".to_owned(), "x'\"\\\n$(id)".to_owned())]);
        let python = assign("python", &set, &["B"]).unwrap();
        assert!(python.contains(r#"{"A":"x'\"\\\n$(id)"}"#) && python.contains(r#"["B"]"#));
        let shell = assign("bash", &set, &["B", "not a name"]).unwrap();
        assert_eq!(shell, "export A='x'\\''\"\\\n$(id)'\nunset B\n");
        assert_eq!(assign("cobol", &set, &[]), None);
    }
}
