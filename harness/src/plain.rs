//! Words of a candidate, of a path or of a tool go into what is printed and into reports, and may hold anything.

/// Without characters that a terminal obeys, or that XML cannot hold: each is replaced by the sign for an unreadable one.
pub fn plain(text: &str) -> String {
    let unreadable = |c: char| (c.is_control() && c != '\n' && c != '\t') || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if unreadable(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// As [`plain`], in one line: what is told inside a sentence must not look like the next one.
pub fn line(text: &str) -> String {
    plain(text).replace(['\n', '\t', '\u{2028}', '\u{2029}'], " ")
}

#[cfg(test)]
mod tests {
    use super::{line, plain};

    #[test]
    fn a_sentence_stays_in_its_line() {
        assert_eq!(line("bad\u{1b}[2K\r\n\tPASS\u{2028}1\u{85}"), "bad�[2K�  PASS 1�");
    }

    #[test]
    fn only_what_reads_is_left() {
        assert_eq!(plain("a\u{1b}[2Jb\r\0c\u{9b}d\u{7f}\u{ffff}"), "a�[2Jb��c�d��");
        for kept in ["two\n\tlines", "größer als 1 µs: 日本 🙂"] {
            assert_eq!(plain(kept), kept);
        }
    }
}
