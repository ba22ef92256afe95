//! `atoll-interpreter-image FOLDER`: builds the tree in the folder, under a name of its recipe, unless
//! it is there; prints its path. For tests, and by hand.

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        return fail("usage: atoll-interpreter-image FOLDER");
    };
    let tree = Path::new(&folder).join(atoll_interpreter_image::recipe_digest());
    if let Err(error) = atoll_interpreter_image::build(&tree, tell).await {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        return fail(&format!("{error}{}", cause.unwrap_or_default()));
    }
    match writeln!(io::stdout(), "{}", tree.display()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot print the path: {error}")),
    }
}

fn tell(step: &str) {
    // Nobody is left to hear a failure to complain.
    writeln!(io::stderr(), "{step}").ok();
}

fn fail(problem: &str) -> ExitCode {
    tell(problem);
    ExitCode::FAILURE
}
