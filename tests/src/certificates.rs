//! Certificates for servers of the tests, made by openssl.

use std::path::Path;
use std::process::{Command, Stdio};

/// Makes the certificate `leaf.pem` of `localhost`, with its key `leaf.key`, and the authority `ca.pem`.
const SCRIPT: &str = "\
    curve='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
    openssl req -x509 $curve -keyout ca.key -out ca.pem -days 2 -subj /CN=test &&
    openssl req $curve -keyout leaf.key -out leaf.csr -subj /CN=localhost &&
    echo subjectAltName=DNS:localhost > leaf.ext &&
    openssl x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out leaf.pem -days 2 -extfile leaf.ext";

/// Returns whether openssl is installed; otherwise prints that the test is skipped.
pub fn can_be_made() -> bool {
    let is_installed = Command::new("openssl").arg("version").stdout(Stdio::null()).status().is_ok();
    if !is_installed {
        println!("SKIPPED: openssl is not installed");
    }
    is_installed
}

/// Makes certificates in a folder.
pub fn make(folder: &Path) {
    let made = Command::new("sh").args(["-c", SCRIPT]).current_dir(folder).stderr(Stdio::null()).status();
    assert!(made.expect("a shell").success(), "certificates");
}
