//! Contact sheets by `ddlp show`.

use crate::{photos, succeed};

#[test]
fn a_sheet_is_named_with_what_it_shows() {
    let home = photos(0);
    let folder = home.path();
    let said = succeed(folder, "show photos --samples 3 --draws 1 --out s.html");
    assert_eq!(said, "s.html: 3 samples, 1 draw each\n");
    assert!(folder.join("s.html").is_file());
}
