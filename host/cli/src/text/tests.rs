use super::*;

#[test]
fn lines_break_between_words_by_the_width_that_a_terminal_shows() {
    let text = "写真 100 images\n  note: the tail is limited by slots\n";
    assert_eq!(wrapped(text, 80), text);
    assert_eq!(wrapped(text, 15), "写真 100 images\n  note: the\n      tail is\n      limited\n      by slots\n");
    assert_eq!(wrapped("写真写真 x\n", 9), "写真写真\n      x\n");
    assert_eq!(wrapped("aaaaaaaaaaaaaaaaaaaa bb\n", 9), "aaaaaaaaaaaaaaaaaaaa\n      bb\n");
}
