//! Values of variables, expanded by a shell but never run by it.

/// Whether a shell could make anything else of it.
pub(super) fn is_plain(value: &str) -> bool {
    !value.contains('$')
}

/// Shell text that prints `value` with its variables expanded. Quotes, backticks and `$(` mean
/// themselves; a backslash does too, unless it stands before a dollar sign and so hides it.
pub(super) fn script(value: &str) -> String {
    let mut text = String::from("printf %s \"");
    let mut characters = value.chars().peekable();
    while let Some(character) = characters.next() {
        match (character, characters.peek()) {
            ('\\', Some('$')) => {
                text.push_str("\\$");
                characters.next();
            }
            ('\\' | '"' | '`', _) | ('$', Some('(' | '[')) => {
                text.push('\\');
                text.push(character);
            }
            _ => text.push(character),
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn expanded(value: &str) -> String {
        let output = Command::new("bash")
            .args(["-c", &script(value)])
            .env_clear()
            .env("A", "one two")
            .output()
            .unwrap();
        assert!(output.status.success(), "{value:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn variables_are_expanded_and_nothing_is_run() {
        for (value, wanted) in [
            ("$A", "one two"),
            ("x${A}y", "xone twoy"),
            ("/bin:$PATH_NOT_SET", "/bin:"),
            ("${B:-c}", "c"),
            (r"\$A", "$A"),
            ("$(echo run)", "$(echo run)"),
            ("`echo run`", "`echo run`"),
            ("$((1+1))", "$((1+1))"),
            (r"C:\dir\$A", r"C:\dir$A"),
            ("say \"hi\"", "say \"hi\""),
            (r"end\", r"end\"),
            ("two\nlines", "two\nlines"),
            ("%s %d", "%s %d"),
        ] {
            assert_eq!(expanded(value), wanted, "{value:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn text_without_dollars_stays_as_it_is(value in "[^\\$\0]{0,40}") {
            prop_assert!(is_plain(&value));
            prop_assert_eq!(expanded(&value), value);
        }
    }
}
