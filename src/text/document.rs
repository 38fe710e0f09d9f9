//! A document of headings, sentences and tables, independent of how it is written.
//!
//! Parts of a sentence between backticks are code.

use super::escape;

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// The title of the blocks after it.
    Heading(String),
    /// A sentence, or several.
    Paragraph(String),
    /// Sentences, one below the other.
    List(Vec<String>),
    /// Rows of cells under these columns; the flag of a column tells whether it has numbers.
    Table(Vec<(&'static str, bool)>, Vec<Vec<String>>),
}

/// The document in Markdown.
pub(crate) fn markdown(title: &str, blocks: &[Block]) -> String {
    let mut text = format!("# {}\n", escaped(title));
    for block in blocks {
        text.push('\n');
        match block {
            Block::Heading(heading) => text.push_str(&format!("## {}\n", escaped(heading))),
            Block::Paragraph(says) => text.push_str(&format!("{}\n", escaped(says))),
            Block::List(lines) => {
                lines.iter().for_each(|line| text.push_str(&format!("- {}\n", escaped(line))));
            }
            Block::Table(columns, rows) => {
                let names = columns.iter().map(|(name, _)| (*name).to_owned());
                text.push_str(&row(names));
                let rules =
                    columns.iter().map(|(_, is_number)| if *is_number { "---:" } else { "---" });
                text.push_str(&row(rules.map(ToOwned::to_owned)));
                rows.iter()
                    .for_each(|cells| text.push_str(&row(cells.iter().map(|it| escaped(it)))));
            }
        }
    }
    text
}

fn row(cells: impl Iterator<Item = String>) -> String {
    format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
}

/// Text in which no character has a meaning in Markdown, except for backticks in pairs.
fn escaped(text: &str) -> String {
    let line = escape::escape_line(text);
    let has_pairs = line.matches('`').count().is_multiple_of(2);
    let (mut out, mut is_code) = (String::with_capacity(line.len()), false);
    for char in line.chars() {
        is_code ^= char == '`' && has_pairs;
        let has_meaning = match char {
            '|' => true,
            '`' => !has_pairs,
            '\\' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '&' | '~' => !is_code,
            _ => false,
        };
        if has_meaning {
            out.push('\\');
        }
        out.push(char);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_markdown_are_not_interpreted_as_markup() {
        let columns = vec![("database", false), ("bytes", true)];
        let cells = |name: &str| vec![name.to_owned(), "1 GiB".to_owned()];
        let blocks = [
            Block::Heading("<b>".to_owned()),
            Block::Paragraph("`a_b|c` grew, _users* did not: `".to_owned()),
            Block::List(vec!["run `compact a_b`".to_owned()]),
            Block::Table(columns, vec![cells("a|b\nc")]),
        ];
        assert_eq!(
            markdown("A week", &blocks),
            "# A week\n\n## \\<b\\>\n\n\\`a\\_b\\|c\\` grew, \\_users\\* did not: \\`\n\n- run `compact a_b`\n\n| database | bytes |\n| --- | ---: |\n| a\\|b\\\\nc | 1 GiB |\n"
        );
    }
}
