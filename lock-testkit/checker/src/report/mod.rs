//! Draws a history: one page that needs no network and no other file.

use std::io;

use crate::Picture;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page, as HTML.
///
/// # Errors
/// None in practice: a picture consists of numbers and texts, which can always be written as JSON.
pub fn page(picture: &Picture) -> io::Result<String> {
    // Within a script element, only `<` could end it.
    let data = serde_json::to_string(picture)?.replace('<', "\\u003c");
    Ok(PAGE.replace("/*STYLE*/", STYLE).replace("/*DATA*/", &data).replace("/*SCRIPT*/", SCRIPT))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::picture;

    #[test]
    fn whatever_is_drawn_is_in_the_legend() {
        let drawn = SCRIPT.split_once("Object.fromEntries([").unwrap().1.split_once(']').unwrap().0;
        let legend = PAGE.split_once(r#"<span class="key">"#).unwrap().1.split_once("</nav>").unwrap().0;
        for color in drawn.split(", ").map(|name| name.trim_matches('\'')) {
            assert!(STYLE.contains(&format!("--{color}: ")), "{color} is no colour");
            assert!(legend.contains(&format!(r#"<i class="{color}"></i>"#)), "{color} is not explained");
        }
        assert!(legend.contains("</b> fencing token"), "what the numbers in the bars are");
    }

    #[test]
    fn a_name_cannot_break_out_of_the_page() {
        let line = r#"{"t":1,"proc":"w","op":"acquire","id":"w.1","phase":"invoke","owner":"w","res":"</script><b>","kind":"mutex","ttl":1}"#;
        let page = page(&picture(&History::parse(line).unwrap(), None)).unwrap();
        assert!(page.contains(r"\u003c/script>\u003cb>") && !page.contains("</script><b>"));
        assert_eq!(page.matches("</script>").count(), 2, "the data's and the page's own");
    }
}
