//! Writing HTML: escaping, tables.

use std::fmt::{self, Display, Write};

/// Text that is shown literally, whatever it contains.
pub struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c if c.is_control() => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// Longest text of a cell that is kept on one line.
const SHORT_CHARS: usize = 24;

/// A table. The text of cells is escaped; columns from `numbers_from` on are right-aligned.
pub struct Table<'a> {
    /// Headings of the columns.
    pub heads: Vec<&'a str>,
    /// First column that holds numbers.
    pub numbers_from: usize,
    /// Rows, each as long as `heads`.
    pub rows: Vec<Vec<String>>,
}

impl Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = |column: usize| if column >= self.numbers_from { " class=\"n\"" } else { "" };
        let class = |column: usize, cell: &str| match class(column) {
            "" if cell.chars().count() <= SHORT_CHARS => " class=\"s\"",
            class => class,
        };
        let words = if self.numbers_from == self.heads.len() { " class=\"words\"" } else { "" };
        write!(f, "<div class=\"scroll\"><table{words}><thead><tr>")?;
        for (column, head) in self.heads.iter().enumerate() {
            write!(f, "<th{}>{}</th>", class(column, head), Escaped(head))?;
        }
        f.write_str("</tr></thead><tbody>\n")?;
        for row in &self.rows {
            f.write_str("<tr>")?;
            for (column, cell) in row.iter().enumerate() {
                write!(f, "<td{}>{}</td>", class(column, cell), Escaped(cell))?;
            }
            f.write_str("</tr>\n")?;
        }
        f.write_str("</tbody></table></div>\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_control_characters_are_escaped() {
        assert_eq!(Escaped("<a href='x'>&\"\u{0}").to_string(), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{fffd}");
    }

    #[test]
    fn tables_escape_cells() {
        let table = Table { heads: vec!["a", "b"], numbers_from: 1, rows: vec![vec!["<x>".into(), "1".into()]] };
        let html = table.to_string();
        assert!(html.contains("<td class=\"s\">&lt;x&gt;</td><td class=\"n\">1</td>"), "{html}");
        assert!(html.contains("<table><thead>"), "{html}");
        let words = Table { numbers_from: 2, ..table }.to_string();
        assert!(words.contains("<table class=\"words\">"), "a narrow screen shows it in lines: {words}");
    }
}
