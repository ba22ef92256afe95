//! `NAME=VALUE` arguments.

use std::collections::BTreeMap;

use crate::error::Error;

/// Variables; a name alone takes the value of the same variable here.
pub(super) fn variables(arguments: &[String]) -> Result<BTreeMap<String, String>, Error> {
    let pair = |argument: &String| match argument.split_once('=') {
        Some(("", _)) => Err(Error::Usage(format!("--env: {argument:?} has no name before `=`"))),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => match std::env::var(argument) {
            Ok(value) => Ok((argument.clone(), value)),
            Err(_) => Err(Error::Usage(format!(
                "--env: {argument} is not set here; write {argument}=VALUE to give it a value"
            ))),
        },
    };
    arguments.iter().map(pair).collect()
}

/// Labels.
pub(super) fn labels(arguments: &[String]) -> Result<Vec<(String, String)>, Error> {
    let pair = |argument: &String| match argument.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(Error::Usage(format!("--label: {argument:?} must look like KEY=VALUE"))),
    };
    arguments.iter().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::{labels, variables};

    #[test]
    fn pairs_split_at_the_first_equals_sign() {
        let read = variables(&["A=b=c".to_owned(), "E=".to_owned()]).unwrap();
        assert_eq!(read["A"], "b=c");
        assert_eq!(read["E"], "");
        assert!(variables(&["=x".to_owned()]).is_err());
        assert!(variables(&["ATOLL_NOT_SET_ANYWHERE".to_owned()]).is_err());
        assert!(labels(&["alone".to_owned()]).is_err());
        assert_eq!(labels(&["k=v".to_owned()]).unwrap(), [("k".to_owned(), "v".to_owned())]);
    }
}
